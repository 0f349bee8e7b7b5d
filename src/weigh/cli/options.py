"""A verb whose options have their defaults in settings files and variables."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from weigh.errors import FormatError, WeighError
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


_MOST = 50


def files(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows about files."""
    return [CompletionItem(begun, type="file")]


def jobs(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the jobs that were submitted from here."""
    from weigh.flow.completion import job_names  # noqa: PLC0415 - only at <TAB>

    return _offer(job_names(os.getcwd(), os.environ), begun)


def records(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """Offer the labels and ids of the newest records."""
    from weigh.flow.completion import record_names  # noqa: PLC0415 - only at <TAB>

    return _offer(record_names(os.getcwd(), os.environ), begun)


def _offer(found: Iterator[tuple[str, str]], begun: str) -> list[CompletionItem]:
    """Give the first of *found*, (word, what it is), that go on from *begun*."""
    fitting = ((word, what) for word, what in found if word.startswith(begun))
    try:
        first = dict(islice(fitting, _MOST))
    except (WeighError, OSError):
        return []  # a shell that asks is no place to complain
    return [CompletionItem(word, help=what) for word, what in first.items()]
