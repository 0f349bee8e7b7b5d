"""A job script as text: lines, interpreter, first command, and sizes in directives."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from weigh.model.record import Allocation, Job, Request
from weigh.units import MIB, Bytes, Seconds

_MOST_DIGITS = 18


def whole_number(text: str | None) -> int | None:
    """Read plain digits; return None if *text* is anything else."""
    if text is None or not text.isascii() or not text.isdecimal():
        return None
    return int(text) if len(text) <= _MOST_DIGITS else None


def positive_number(text: str | None) -> int | None:
    """Read plain digits greater than zero; return None otherwise."""
    return whole_number(text) or None


def binary_size(size: Bytes) -> str:
    """Write *size* in whole GiB or else MiB, rounded up and never zero.

    Zero has a meaning of its own: ``--mem=0`` is all the memory of a node.
    """
    mebibytes = max(1, -(-size // MIB))
    if mebibytes % 1024:
        return f"{mebibytes}M"
    return f"{mebibytes // 1024}G"


BOM = "\ufeff"

_SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"})


class Line(msgspec.Struct, frozen=True):
    """One line of a script, counted from 1, without its line break."""

    line: int
    text: str


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script's lines, and what its bytes show.

    ``interpreter`` are the words after ``#!``, empty if there is no such line;
    ``first_command`` is the number of the first line that is not blank or a comment;
    ``carriage_returns`` is the first line with a Windows line ending.
    """

    lines: tuple[Line, ...]
    interpreter: tuple[str, ...] = ()
    first_command: int | None = None
    bom: bool = False
    carriage_returns: int | None = None
    nul: int | None = None

    @property
    def program(self) -> str:
        """Return the program that runs it, ``bash``; for env(1), what env runs."""
        names = [word.rpartition("/")[2] for word in self.interpreter]
        if names and names[0] == "env":
            names = [word for word in names[1:] if word[:1] != "-" and "=" not in word]
        return names[0] if names else ""

    @property
    def is_shell(self) -> bool:
        """Return whether a Bourne shell runs it; without ``#!`` one does."""
        return not self.interpreter or self.program in _SHELLS


def read_script(text: str) -> Script:
    """Read a script exactly as it is on disk, line breaks included."""
    bom = text.startswith(BOM)
    rows = text.removeprefix(BOM).split("\n")
    if rows[-1] == "":
        rows.pop()
    lines = tuple(
        Line(number, row.removesuffix("\r")) for number, row in enumerate(rows, 1)
    )
    return Script(
        lines=lines,
        interpreter=_interpreter(lines),
        first_command=next((one.line for one in lines if _is_command(one.text)), None),
        bom=bom,
        carriage_returns=_first(rows, "\r", at_end=True),
        nul=_first(rows, "\0"),
    )


def _interpreter(lines: tuple[Line, ...]) -> tuple[str, ...]:
    if not lines or not lines[0].text.startswith("#!"):
        return ()
    return tuple(lines[0].text[2:].split())


def _is_command(row: str) -> bool:
    # sbatch stops reading directives at the first such line, whatever language it is
    return row.strip()[:1] not in ("", "#")


def _first(rows: list[str], mark: str, *, at_end: bool = False) -> int | None:
    found = (
        number
        for number, row in enumerate(rows, 1)
        if (row.endswith(mark) if at_end else mark in row)
    )
    return next(found, None)


class Dialect(Protocol):
    """One scheduler's text formats: sizes, times, flags, environment of its jobs.

    Formatted values are rounded up: a scheduler kills a job that exceeds its limit
    by one byte or one second.
    """

    NAME: str
    PREFIX: str

    def format_memory(self, size: Bytes) -> str:
        """Write *size* in the scheduler's unit, rounded up."""

    def parse_memory(self, text: str) -> Bytes:
        """Read a size as the scheduler would.

        Raises:
            FormatError: the scheduler would reject it.
        """

    def format_time(self, seconds: Seconds) -> str:
        """Write a time limit, rounded up to whole seconds."""

    def parse_time(self, text: str) -> int | None:
        """Read a time limit in seconds; None is no limit.

        Raises:
            FormatError: the scheduler would reject it.
        """

    def directives(self, request: Request) -> tuple[str, ...]:
        """Return *request* as flags; unknown values are left out."""

    def any_layout(self, request: Request) -> tuple[str, ...]:
        """Return *request* as flags for any placement of its tasks; empty if none."""

    def allocation_from_environment(self, env: Mapping[str, str]) -> Allocation | None:
        """Read this node's allocation; None outside a job."""

    def job_from_environment(self, env: Mapping[str, str]) -> Job | None:
        """Read the id of this job; None outside a job."""
