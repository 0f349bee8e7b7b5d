"""The screen of ``weigh top``: one moment as lines."""

from collections.abc import Iterator

import msgspec

from weigh.model.gpu import GpuState
from weigh.model.record import Record
from weigh.render.columns import TableColumn, table_lines
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

_ID = 6  # letters of a record's id


class TopRun(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of one run.

    ``record`` is the last that was written, ``age`` how old it is: 0 if the processes
    were sampled just now. ``memory`` and ``cores`` are current values, None if only
    the written record is known.
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


def top_screen_lines(top_view: TopView, width: int) -> list[str]:
    """Write *top_view* as lines of at most *width* columns."""
    lines = [printable_text(line) for line in _screen_lines(top_view, width)]
    return [shortened_text(line, width) for line in lines]


def _screen_lines(top_view: TopView, width: int) -> Iterator[str]:
    yield f"weigh top   {top_view.machine.name}   {top_view.clock}"
    yield from _machine_lines(top_view.machine)
    # tasks of jobs and of weigh exec leave nothing here that is read while they run
    others = "(tasks: weigh status, weigh report last)"
    yield from ("", f"runs in progress, of weigh run {others}")
    if top_view.runs:
        yield from table_lines(top_view.runs, _RUN_COLUMNS, width)
    else:
        yield "  none: weigh run -- COMMAND in another window"
        yield f"  (records are in {top_view.store})"
    if top_view.gpus or top_view.gpu_note:
        yield from ("", "GPUs", *gpu_list(top_view.gpus))
    if top_view.gpu_note:
        yield f"  {top_view.gpu_note}"


def _machine_lines(machine: MachineView) -> Iterator[str]:
    """Write the load and the memory in use, by all users."""
    if machine.load is not None and machine.all_cpus:
        is_part = machine.cpus and machine.cpus != machine.all_cpus
        yours = f", {machine.cpus} for you" if is_part else ""
        yield f"  load    {machine.load:.1f} of {machine.all_cpus} CPUs{yours}"
    if machine.memory_total and machine.memory_used is not None:
        used, size = format_size(machine.memory_used), format_size(machine.memory_total)
        yield f"  memory  {used} of {size} in use by all users"


def _run_label(top_run: TopRun) -> str:
    label = printable_text(top_run.record.label or "")
    return label or short_command(top_run.record.command)


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


_RUN_COLUMNS = (
    TableColumn("run", lambda run: run.record.id[:_ID], right=False),
    TableColumn("label", _run_label, right=False, flexible=True),
    TableColumn("memory", lambda run: size_or_dash(run.memory, "?")),
    # a narrow window loses columns, the last ones first
    TableColumn("peak", lambda run: size_or_dash(run.peak, "?"), drop=1),
    TableColumn(
        "cores", lambda run: "?" if run.cores is None else f"{run.cores:.2f}", drop=2
    ),
    TableColumn("elapsed", lambda run: format_duration(run.elapsed), drop=3),
    TableColumn("", _run_note, right=False, drop=4, optional=True),
)
