"""The screen of ``weigh top``: one moment as rich's tables.

rich is imported here and nowhere else.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Self, TextIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weigh.model.gpu import GpuState
from weigh.model.record import Record
from weigh.render.gpu_lines import gpu_list
from weigh.render.printable import printable_text, short_command, shortened_text
from weigh.render.progress_lines import time_left_text
from weigh.units import (
    MINUTE,
    Bytes,
    Seconds,
    format_duration,
    format_size,
    size_or_dash,
)

TOP_WIDTH = 80
_USUAL = (80, 24)  # if the terminal reports no size
_BAR = 20  # columns
_ID = 6  # letters of a record's id
# a column: its title, what it shows of a row, and the least width of its window;
# to the left are columns of words
_Columns = tuple[tuple[str, Callable[[Any], str], int], ...]
_WORDS = frozenset({"run", "label", ""})


class TopRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of one run.

    ``record`` is the last that was written. ``age``  is
    how old it is: 0 if the processes were sampled just now. ``memory`` and ``cores``
    are current values, None if only the written record is known.
    """

    record: Record
    elapsed: Seconds  # seconds since its start
    memory: Bytes | None = None  # bytes
    peak: Bytes | None = None  # bytes; None: not measured
    cores: float | None = None  # CPUs
    age: Seconds = 0.0  # seconds
    stopped: bool = False  # its processes are stopped, as by Ctrl-Z
    stale: bool = False  # no update for long, so it may be gone


class MachineView(msgspec.Struct, frozen=True):
    """This machine; ``memory_used`` by all users, without what the kernel can drop.

    ``load`` is the mean number of processes that ran or wanted to, in the last minute;
    ``all_cpus`` are those of the machine.
    """

    name: str
    cpus: int | None = None  # that this process may use
    memory_used: Bytes | None = None  # bytes
    memory_total: Bytes | None = None  # bytes
    load: float | None = None
    all_cpus: int | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of ``weigh top``.

    ``gpu_note`` is the reason why GPUs cannot be read.
    """

    clock: str  # time of day, as shown
    machine: MachineView
    store: str  # path of the store
    runs: tuple[TopRun, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    gpu_note: str | None = None


class TopScreen:
    """The terminal's second screen, opened on entry and closed on exit."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._console = _rich_console(out, is_terminal=True, colour=colour)

    def __enter__(self) -> Self:
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)

    def show(self, top_view: TopView) -> None:
        """Draw *top_view* at the window's current size.

        Raises:
            OSError: the terminal is gone.
        """
        try:
            width, height = os.get_terminal_size(self._out.fileno())
        # the output is no terminal, or it was closed
        except OSError:
            width, height = 0, 0
        width, height = width or _USUAL[0], height or _USUAL[1]
        self._console.size = (width, height)
        parts = Group(*_screen_parts(top_view, width, has_keys=True))
        self._console.update_screen(parts)


def top_page(top_view: TopView, width: int = TOP_WIDTH) -> str:
    """Write *top_view* as plain text."""
    out = io.StringIO()
    console = _rich_console(out, is_terminal=False, colour=False)
    console.width = width
    # rich would take the width of a terminal
    console.print(*_screen_parts(top_view, width, has_keys=False), sep="\n")
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _rich_console(out: TextIO, *, is_terminal: bool, colour: bool) -> Console:
    return Console(
        file=out,
        force_terminal=is_terminal,
        force_interactive=is_terminal,
        no_color=not colour,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _screen_parts(
    top_view: TopView, width: int, *, has_keys: bool
) -> Iterator[RenderableType]:
    title = f"weigh top   {printable_text(top_view.machine.name)}   {top_view.clock}"
    yield _screen_line(f"{title}   q quits" if has_keys else title, width, "bold")
    yield from (_screen_line(line, width) for line in _machine_lines(top_view.machine))
    yield Text("")
    yield _screen_line("runs in progress", width, "bold")
    if top_view.runs:
        yield _rich_table(top_view.runs, _run_columns(top_view.runs), width)
    else:
        yield _screen_line("  none: weigh run -- COMMAND in another window", width)
        yield _screen_line(
            f"  (records are in {printable_text(top_view.store)})", width, "dim"
        )
    if top_view.gpus or top_view.gpu_note:
        yield Text("")
        yield _screen_line("GPUs", width, "bold")
    yield from (_screen_line(line, width) for line in gpu_list(top_view.gpus))
    if top_view.gpu_note:
        yield Padding(
            Text(printable_text(top_view.gpu_note), style="yellow"), (0, 0, 0, 2)
        )


def _screen_line(line_text: str, width: int, style: str = "") -> Text:
    return Text(
        shortened_text(printable_text(line_text), width), style=style, no_wrap=True
    )


def _rich_table(
    table_rows: Sequence[Any], columns: _Columns, width: int
) -> RenderableType:
    """Return a table of *table_rows* with the columns that a window of *width* has."""
    # a narrow window loses columns instead of cutting all of them
    shown = [column for column in columns if width >= column[2]]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title, _, _ in shown:
        side = "left" if title in _WORDS else "right"
        table.add_column(title, justify=side, no_wrap=True, overflow="crop")  # type: ignore[arg-type]
    for row in table_rows:
        table.add_row(*(Text(text_of(row)) for _, text_of, _ in shown))
    return Padding(table, (0, 0, 0, 2))


def _machine_lines(machine: MachineView) -> Iterator[str]:
    """Write the load and the memory in use, by all users, each with a bar."""
    if machine.load is not None and machine.all_cpus:
        bar = _load_bar(machine.load / machine.all_cpus)
        is_part = machine.cpus and machine.cpus != machine.all_cpus
        yours = f", {machine.cpus} for you" if is_part else ""
        yield f"  load    [{bar}] {machine.load:.1f} of {machine.all_cpus} CPUs{yours}"
    if machine.memory_total and machine.memory_used is not None:
        bar = _load_bar(machine.memory_used / machine.memory_total)
        used, size = format_size(machine.memory_used), format_size(machine.memory_total)
        yield f"  memory  [{bar}] {used} of {size} in use by all users"


def _load_bar(share: float) -> str:
    return ("|" * round(min(max(share, 0.0), 1.0) * _BAR)).ljust(_BAR)


def _run_columns(run_views: Sequence[TopRun]) -> _Columns:
    columns: _Columns = (
        ("run", lambda run: run.record.id[:_ID], 0),
        ("label", _run_label, 40),
        ("memory", lambda run: size_or_dash(run.memory, "?"), 0),
        ("peak", lambda run: size_or_dash(run.peak, "?"), 50),
        ("cores", lambda run: "?" if run.cores is None else f"{run.cores:.2f}", 60),
        ("elapsed", lambda run: format_duration(run.elapsed), 60),
    )
    if any(map(_run_note, run_views)):
        columns += (("", lambda run: shortened_text(_run_note(run), 17), 76),)
    return columns


def _run_label(top_run: TopRun) -> str:
    label = printable_text(top_run.record.label or "") or short_command(
        top_run.record.command
    )
    return shortened_text(label, 12)


def _run_note(top_run: TopRun) -> str:
    if top_run.stopped:
        return "stopped"
    host = top_run.record.host
    if top_run.age and host is not None:
        age = (
            f"{top_run.age:.0f} s"
            if top_run.age < MINUTE
            else format_duration(top_run.age)
        )
        return f"{printable_text(host.name)}, {age} ago"
    headway = top_run.record.progress
    if headway is None or top_run.stale:
        return ""
    left = time_left_text(headway, top_run.elapsed)
    # without the interval, for which the column has no room
    return "" if left is None else f"{left.partition(' (')[0]} to go"
