"""Sizes and times as options take them: one rule for every verb."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import click

from weigh.errors import FormatError
from weigh.units import parse_duration, parse_limit, parse_size

if TYPE_CHECKING:
    _Type = click.ParamType[float | str]
else:
    _Type = click.ParamType  # click takes no type arguments before version 8.2


class Quantity(_Type):
    """What *read* makes of a text; ``as_text`` checks it and keeps what was typed."""

    def __init__(
        self, name: str, read: Callable[[str], float], *, as_text: bool = False
    ) -> None:
        self.name = name
        self._read = read
        self._as_text = as_text

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float | str:
        """Return the quantity, or *value* itself.

        Raises:
            click.BadParameter: *value* is no such quantity, or lacks a unit.
        """
        text = str(value)
        try:
            found = self._read(text)
        except FormatError as error:
            self.fail(str(error), param, ctx)
        return text if self._as_text else found


SIZE = Quantity("size", parse_size)  # bytes
DURATION = Quantity("time", parse_duration)  # seconds
LIMIT = Quantity("time", parse_limit)  # whole seconds
# a bare number is seconds: only for options that are not named as a scheduler's
SECONDS = Quantity("time", partial(parse_duration, bare=1))
# for flows that read the text themselves, as they do for Python programs
SIZE_TEXT = Quantity("size", parse_size, as_text=True)
TIME_TEXT = Quantity("time", parse_duration, as_text=True)
