"""The most expensive lines of a program, from the JSON that Scalene writes."""

import os
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from weigh.errors import FormatError
from weigh.render.printable import printable, shortened
from weigh.store.lines import UNREADABLE
from weigh.units import MIB, Bytes, Seconds, format_duration, format_size

WIDTH = 80
_SHOWN = 8  # lines by time, and as many by memory
_ENOUGH = 1.0  # per cent of the time, or MiB at the peak: less is noise
# larger than any machine: not a number of bytes
_Mebibytes = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]


class _ScaleneLine(msgspec.Struct):
    lineno: int
    line: str = ""
    n_cpu_percent_python: float = 0.0
    n_cpu_percent_c: float = 0.0
    n_sys_percent: float = 0.0
    n_gpu_percent: float = 0.0
    n_peak_mb: _Mebibytes = 0.0
    n_copy_mb_s: _Mebibytes = 0.0


class _ScaleneFile(msgspec.Struct):
    lines: list[_ScaleneLine] = []


class _ScaleneProfile(msgspec.Struct):
    files: dict[str, _ScaleneFile] = {}
    elapsed_time_sec: float | None = None
    max_footprint_mb: _Mebibytes | None = None


class Line(msgspec.Struct, frozen=True):
    """One line of source. Shares are per cent of the program's time.

    ``python`` is time in the interpreter, ``native`` in compiled code, ``system`` in
    the kernel or waiting for it; ``memory`` is the most that the line had allocated,
    ``copied`` the bytes that it copied per second.
    """

    file: str
    number: int
    source: str
    python: float
    native: float
    system: float
    gpu: float
    memory: Bytes
    copied: Bytes = 0

    @property
    def time(self) -> float:
        """Return the line's share of the run time, in per cent."""
        return self.python + self.native + self.system


class Profile(msgspec.Struct, frozen=True):
    """What a profiler measured; no lines if the program ended too soon."""

    lines: tuple[Line, ...]
    wall_time: Seconds | None = None
    peak_memory: Bytes | None = None


def read_profile(text: bytes, *, path: str) -> Profile:
    """Read Scalene's JSON; *path* names it in errors.

    Raises:
        FormatError: it is not such a profile.
    """
    try:
        seen = msgspec.json.decode(text, type=_ScaleneProfile)
    except UNREADABLE as error:
        raise FormatError(f"{path} is not a profile of Scalene's: {error}") from error
    lines = (_line(name, one) for name, f in seen.files.items() for one in f.lines)
    peak = seen.max_footprint_mb
    return Profile(
        lines=tuple(line for line in lines if line.time > 0 or line.memory > 0),
        wall_time=seen.elapsed_time_sec,
        peak_memory=None if peak is None else round(peak * MIB),
    )


def top_lines(profile: Profile) -> tuple[Line, ...]:
    """Choose the most expensive lines: by time first, then by memory."""
    timed = [line for line in profile.lines if line.time >= _ENOUGH]
    timed = sorted(timed, key=lambda line: -line.time)[:_SHOWN]
    held = [line for line in profile.lines if line.memory >= _ENOUGH * MIB]
    held = sorted(held, key=lambda line: -line.memory)[:_SHOWN]
    return tuple(timed + [line for line in held if line not in timed])


def render_profile(profile: Profile, *, cwd: str) -> str:
    """Write the top lines as a table of at most 80 columns; paths as from *cwd*."""
    lines = top_lines(profile)
    if not lines:
        return "  too short: Scalene takes a sample every 0.01 s\n"
    table = [_headings(lines), *_rows(lines, cwd)]
    return "".join(f"{row.rstrip()}\n" for row in table)


def render_totals(profile: Profile) -> str:
    """Write run time and peak memory; nothing if unknown."""
    words = []
    if profile.wall_time is not None:
        words.append(format_duration(profile.wall_time))
    if profile.peak_memory:
        size = format_size(profile.peak_memory)
        words.append(f"{size} allocated, not the peak memory")
    return ", ".join(words)


def _line(file: str, line: _ScaleneLine) -> Line:
    return Line(
        file=file,
        number=line.lineno,
        source=line.line.strip(),
        python=line.n_cpu_percent_python,
        native=line.n_cpu_percent_c,
        system=line.n_sys_percent,
        gpu=line.n_gpu_percent,
        memory=round(line.n_peak_mb * MIB),
        copied=round(line.n_copy_mb_s * MIB),
    )


def _headings(lines: Sequence[Line]) -> str:
    gpu = f"{'gpu':>6}" if _on_gpu(lines) else ""
    copies = f"{'copied/s':>11}" if _has_copies(lines) else ""
    return (
        f"  {'python':>6}{'native':>8}{'system':>8}{gpu}{copies}{'allocated':>11}  line"
    )


def _rows(lines: Sequence[Line], cwd: str) -> Iterator[str]:
    for line in lines:
        shares = f"{_share(line.python):>6}{_share(line.native):>8}"
        shares += f"{_share(line.system):>8}"
        shares += f"{_share(line.gpu):>6}" if _on_gpu(lines) else ""
        if _has_copies(lines):
            is_much = line.copied >= _ENOUGH * MIB
            shares += f"{format_size(line.copied) if is_much else '-':>11}"
        memory = format_size(line.memory) if line.memory else "-"
        row = f"  {shares}{memory:>11}  {_place(line, cwd)}  {printable(line.source)}"
        yield shortened(row, WIDTH)


def _on_gpu(lines: Sequence[Line]) -> bool:
    return any(line.gpu >= _ENOUGH for line in lines)


def _has_copies(lines: Sequence[Line]) -> bool:
    return any(line.copied >= _ENOUGH * MIB for line in lines)


def _share(share: float) -> str:
    return f"{share:.0f} %" if share >= _ENOUGH / 2 else "-"


def _place(line: Line, cwd: str) -> str:
    """Write file and line, the file relative to *cwd* if below it."""
    below = line.file.startswith(os.path.join(cwd, ""))
    name = os.path.relpath(line.file, cwd) if below else os.path.basename(line.file)
    return f"{printable(name)}:{line.number}"
