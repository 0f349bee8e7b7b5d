"""Read the output of ``/usr/bin/time -v``.

One file may contain several runs (``-a -o``), and the output of the command around
them. The largest resident size is that of the largest process, never of the tree.
"""

from collections.abc import Iterator

import msgspec

from weigh.errors import FormatError
from weigh.units import KIB, Bytes, Seconds

_COMMAND = 'Command being timed: "'
_USER = "User time (seconds): "
_SYSTEM = "System time (seconds): "
_ELAPSED = "Elapsed (wall clock) time (h:mm:ss or m:ss): "
_RESIDENT = "Maximum resident set size (kbytes): "
_INPUTS = "File system inputs: "
_OUTPUTS = "File system outputs: "
_EXIT = "Exit status: "
_SIGNAL = "Command terminated by signal "
_FIGURES = (_USER, _SYSTEM, _ELAPSED, _RESIDENT, _INPUTS, _OUTPUTS, _EXIT)
_BLOCK: Bytes = 512  # getrusage(2) counts storage traffic in these
_LONGEST_FIGURE = 18


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One run under GNU time."""

    command: str
    user_time: Seconds
    system_time: Seconds
    wall_time: Seconds
    max_process_memory: Bytes
    read_bytes: Bytes
    write_bytes: Bytes
    exit_code: int
    signal: int | None


class Block(msgspec.Struct, frozen=True):
    """The lines of one run, from line ``number``: a timing, or the problem with it."""

    number: int
    text: str
    timing: Timing | None
    problem: str | None = None


def is_gnu_time(text: str) -> bool:
    """Return whether *text* contains the verbose output of GNU time."""
    return "\t" + _COMMAND in text and _RESIDENT in text


def read_gnu_time(text: str) -> Iterator[Block]:
    """Yield every run in *text*; incomplete ones with their problem."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    starts = [n for n, line in enumerate(lines) if line.startswith("\t" + _COMMAND)]
    stops = [*starts[1:], len(lines)]
    for start, stop in zip(starts, stops, strict=False):
        signal = _signal(lines[start - 1]) if start else None
        yield _block(start + 1, lines[start:stop], signal)


def _block(number: int, lines: list[str], signal: int | None) -> Block:
    figures: dict[str, str] = {}
    taken = []
    for line in lines:
        taken.append(line)
        for name in _FIGURES:
            if line.startswith("\t" + name):
                figures.setdefault(name, line.removeprefix("\t" + name))
        if _EXIT in figures:
            break  # the rest is the output of something else
    text = "\n".join(taken)
    try:
        return Block(number, text, _timing(_command(lines), figures, signal))
    except FormatError as error:
        return Block(number, text, None, str(error))


def _timing(command: str, figures: dict[str, str], signal: int | None) -> Timing:
    for name in _FIGURES:
        if name not in figures:
            raise FormatError(f"cut short: no line {name.strip(' :')!r}")
    return Timing(
        command=command,
        user_time=_number(figures[_USER]),
        system_time=_number(figures[_SYSTEM]),
        wall_time=_clock(figures[_ELAPSED]),
        max_process_memory=round(_number(figures[_RESIDENT])) * KIB,
        read_bytes=round(_number(figures[_INPUTS])) * _BLOCK,
        write_bytes=round(_number(figures[_OUTPUTS])) * _BLOCK,
        exit_code=round(_number(figures[_EXIT])),
        signal=signal,
    )


def _command(lines: list[str]) -> str:
    """Return the command, which is printed raw and may contain newlines."""
    taken = []
    for line in lines:
        if line.startswith("\t" + _USER):
            break
        taken.append(line)
    text = "\n".join(taken).removeprefix("\t" + _COMMAND)
    return text.removesuffix('"')


def _signal(line: str) -> int | None:
    digits = line.removeprefix(_SIGNAL)
    is_number = digits != line and digits.isdecimal() and len(digits) < _LONGEST_FIGURE
    return int(digits) if is_number else None


def _clock(text: str) -> Seconds:
    seconds = 0.0
    for field in text.split(":"):
        seconds = 60 * seconds + _number(field)
    return seconds


def _number(text: str) -> float:
    digits = text.strip()
    plain = digits.replace(".", "", 1)
    if not plain.isdecimal() or not plain.isascii() or len(digits) > _LONGEST_FIGURE:
        raise FormatError(f"not a figure: {text[:20]!r}")
    return float(digits)
