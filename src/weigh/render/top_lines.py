"""One moment of ``weigh top``: the data to show, and its lines for a window."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, TypeAlias

import msgspec

from weigh.joined import imbalance
from weigh.model.record import Node, Record, Request
from weigh.render.columns import Column, columns_of, shortened, table
from weigh.render.printable import (
    local_time,
    named_words,
    printable,
    short_command,
)
from weigh.render.progress_lines import how_far, time_left
from weigh.render.record_show import sparkline
from weigh.render.report_lines import bar
from weigh.render.request_lines import common_lines, folded
from weigh.render.run_lines import nodes_words, ranks_words
from weigh.render.words import memory_words, short_name
from weigh.units import MINUTE, Bytes, Seconds, format_duration, format_size


class ProcessView(msgspec.Struct, frozen=True):
    """One process: ``resident`` is RSS, ``cores`` the CPU use since the last sample."""

    pid: int
    command: str
    resident: Bytes
    cores: float | None = None


class GpuHolder(msgspec.Struct, frozen=True):
    """One of the user's processes that holds memory on a GPU."""

    pid: int
    name: str
    memory: Bytes | None = None


class GpuView(msgspec.Struct, frozen=True):
    """One GPU of the user; values that the driver does not report are None.

    ``holders`` are the user's processes on it; ``others`` counts those of other users,
    None if the driver hides processes. Utilisation is in per cent.
    """

    index: int
    name: str
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    utilization: float | None = None
    holders: tuple[GpuHolder, ...] = ()
    others: int | None = None
    lost: bool = False


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """The latest state of one run.

    ``record`` is the last that was written, with what was measured since. ``age`` is
    how old it is: 0 if the processes were sampled just now. ``memory`` and ``cores``
    are current values, None if only the written record is known. ``t`` and
    ``memories`` are its memory over time.
    """

    record: Record
    elapsed: Seconds
    memory: Bytes | None = None
    peak: Bytes | None = None
    cores: float | None = None
    processes: int | None = None
    t: tuple[Seconds, ...] = ()
    memories: tuple[Bytes, ...] = ()
    age: Seconds = 0.0
    stopped: bool = False
    stale: bool = False


class MachineView(msgspec.Struct, frozen=True):
    """This machine; ``memory_used`` by all users, without what the kernel can drop.

    ``load`` is the mean number of processes that ran or wanted to, in the last minute;
    ``all_cpus`` are those of the machine.
    """

    name: str
    cpus: int | None = None
    memory_used: Bytes | None = None
    memory_total: Bytes | None = None
    load: float | None = None
    all_cpus: int | None = None


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of ``weigh top``.

    With ``followed`` it shows this run and its processes; without, all processes of
    the user. ``processes`` are the largest first, None if they cannot be listed; they
    are shown by their CPU use if ``by_cpu``;
    ``gpu_note`` is the reason why GPUs cannot be read.
    """

    clock: str
    machine: MachineView
    store: str
    runs: tuple[RunView, ...] = ()
    followed: RunView | None = None
    request: Request | None = None
    gpus: tuple[GpuView, ...] = ()
    gpu_note: str | None = None
    processes: tuple[ProcessView, ...] | None = None
    by_cpu: bool = False


WIDTH = 80
_MOST_NODES = 8
_MOST_PROCESSES = 10  # if the height is not limited
_LEAST_PROCESSES = 3
_TALL = 16  # lines of a window that has room for empty lines
_ID = 6
_MARGIN = 12
_RSS = "RSS: counts shared pages in every process"

Style: TypeAlias = Literal["", "bold", "dim", "yellow"]


class Line(msgspec.Struct, frozen=True):
    """One line of the screen and its style."""

    text: str
    style: Style = ""


def top_lines(
    view: TopView, width: int = WIDTH, height: int | None = None, *, keys: bool = False
) -> list[Line]:
    """Write *view* for a window; without *height* its length is not limited.

    *keys*: the user can press keys, so the line of keys is shown.
    """
    lines = [_title(view, width, keys=keys)]
    if view.followed is None:
        lines += _overview(view, width, height)
    else:
        lines += _run(view.followed, view, width)
    lines += _gpus(view.gpus, view.gpu_note, width)
    if height is None or height >= _TALL:
        lines += [
            Line(""),
            *_processes(view, width, height and height - len(lines) - 1),
        ]
    else:
        lines = [line for line in lines if line.text]
        lines += _processes(view, width, height - len(lines))
    lines = [Line(shortened(line.text, width), line.style) for line in lines]
    return lines if height is None else lines[:height]


def render_text(view: TopView, width: int = WIDTH) -> str:
    """Write *view* as plain text."""
    return "\n".join(line.text.rstrip() for line in top_lines(view, width))


def _title(view: TopView, width: int, *, keys: bool) -> Line:
    left = f"weigh top   {printable(view.machine.name)}   {view.clock}"
    right = "m by memory, c by CPU, q quits"
    gap = width - columns_of(left) - len(right)
    if keys and gap > 1:
        left += " " * gap + right
    return Line(left, "bold")


def _overview(view: TopView, width: int, height: int | None) -> Iterator[Line]:
    yield from _machine(view.machine)
    yield Line("")
    yield Line("runs in progress", "bold")
    if not view.runs:
        yield Line("  none; start one in another window: weigh run -- COMMAND")
        yield Line(f"  (records are kept in {printable(view.store)})", "dim")
        return
    most = len(view.runs) if height is None else max(1, height // 3)
    yield from _runs(view.runs[:most], width)
    left_out = len(view.runs) - most
    if left_out > 0:
        yield Line(f"  {left_out} more: weigh records --state running", "dim")


def _machine(machine: MachineView) -> Iterator[Line]:
    """Write the load and the memory in use, by all users, each with a bar."""
    if machine.load is not None and machine.all_cpus:
        drawn = bar(machine.load / machine.all_cpus, is_ascii=True)
        of = f"of {machine.all_cpus} CPUs"
        mine = machine.cpus
        yours = f", {mine} for you" if mine and mine != machine.all_cpus else ""
        yield Line(f"  load    [{drawn}] {machine.load:.1f} {of}{yours}")
    elif machine.cpus is not None:
        yield Line(f"  {machine.cpus} CPUs for you")
    if machine.memory_total and machine.memory_used is not None:
        drawn = bar(machine.memory_used / machine.memory_total, is_ascii=True)
        used, size = format_size(machine.memory_used), format_size(machine.memory_total)
        yield Line(f"  memory  [{drawn}] {used} of {size} in use by all users")
    elif machine.memory_total is not None:
        yield Line(f"  {format_size(machine.memory_total)} of memory")


def _runs(runs: Sequence[RunView], width: int) -> Iterator[Line]:
    columns = [
        Column("run", tuple(one.record.id[:_ID] for one in runs), right=False),
        Column("label", tuple(map(_label, runs)), right=False, drop=1, flexible=True),
        Column("memory", tuple(_size(one.memory) for one in runs)),
        Column("peak", tuple(_size(one.peak) for one in runs), drop=2),
        Column("cores", tuple(_cores(one.cores) for one in runs), drop=5),
        Column("procs", tuple(_number(one.processes) for one in runs), drop=6),
        Column("elapsed", tuple(_time(one.elapsed) for one in runs), drop=3),
    ]
    ends = tuple(map(_left_in_brief, runs))
    if any(ends):
        columns.append(Column("to go", ends, drop=4))
    if any(map(_aside, runs)):
        asides = tuple(map(_aside, runs))
        columns.append(Column("", asides, right=False, drop=4))
    yield from _table(columns, width)


def _label(run: RunView) -> str:
    return printable(run.record.label or "") or short_command(run.record.command)


def _left_in_brief(run: RunView) -> str:
    left = _left(run)
    return "" if left is None else left.partition(" (")[0]


def _aside(run: RunView) -> str:
    """Write the age and origin of values that are not current."""
    if run.stopped:
        return "stopped"
    if not run.age:
        return ""
    host = printable(run.record.host.name) if run.record.host else "elsewhere"
    age = f"{run.age:.0f} s" if run.age < MINUTE else format_duration(run.age)
    return f"{host}, silent for {age}" if run.stale else f"{host}, {age} ago"


def _run(run: RunView, view: TopView, width: int) -> Iterator[Line]:
    record = run.record
    name = f"run {record.id}"
    label = printable(record.label or "")
    yield Line(f"{label}   {name}" if label else name, "bold")
    yield _row("command", short_command(record.command))
    yield _row("state", _state(run), "yellow" if run.stopped or run.stale else "")
    yield from _memory(run, width)
    yield _row("cpu", _cpu(run))
    yield from _nodes(record)
    if words := ranks_words(record.ranks):
        yield _row("ranks", words)
        yield from (_row("", printable(line)) for line in imbalance(record.ranks))
    yield from _progress(run)
    yield from _request_rows(view.request, width)


def _nodes(record: Record) -> Iterator[Line]:
    """Write the nodes: their memory in all, then of each at its last sample."""
    if words := nodes_words(record):
        yield _row("nodes", words)
    shown = record.nodes if len(record.nodes) > 1 else ()
    for node in shown[:_MOST_NODES]:
        words = _on_node(node)
        if words:
            yield _row("", f"{printable(node.name)}  {words}")
    if len(shown) > _MOST_NODES:
        yield _row("", f"and {len(shown) - _MOST_NODES} more", "dim")


def _on_node(node: Node) -> str:
    words = []
    if node.series is not None and node.series.memory:
        words.append(f"{format_size(node.series.memory[-1])} now")
        busy = [cpus for cpus in node.series.cpu if cpus is not None]
        words += [f"{busy[-1]:.1f} cores"] if busy else []
    if node.ranks:
        words.append(f"{node.ranks} rank{'s' if node.ranks > 1 else ''}")
    return ", ".join(words)


def _state(run: RunView) -> str:
    record = run.record
    took = format_duration(run.elapsed)
    if record.state != "RUNNING":
        code = f", exit code {record.exit_code}" if record.exit_code else ""
        signal = "" if record.signal is None else f", signal {record.signal}"
        state = f"{record.state} in {took}{code}{signal}"
        return f"{state}; details: weigh records show {record.id[:_ID]}"
    since = local_time(record.started)[1]
    state = "stopped, " if run.stopped else ""
    aside = "" if run.stopped else _aside(run)
    return f"{state}{took} since {since}" + (f"   ({aside})" if aside else "")


def _memory(run: RunView, width: int) -> Iterator[Line]:
    words = [] if run.memory is None else [f"{format_size(run.memory)} now"]
    usage = run.record.usage
    if run.peak is not None:
        peak = usage.peak_memory if usage else None
        when = f" at {format_duration(peak.time)}" if peak and peak.time else ""
        words.append(f"peak {format_size(run.peak)}{when}")
    if usage and usage.growing:
        words.append("rising")
    yield _row("memory", ", ".join(words) or "not measured")
    room = min(width, WIDTH) - _MARGIN - 2
    plot = sparkline(by_time(run.t, run.memories, room), room) if room > 0 else ""
    if plot:
        yield _row("", f"|{plot}|")
        span, top = format_duration(run.t[-1]), format_size(max(run.memories))
        yield _row("", f"0 to {span}, up to {top}", "dim")


def _cpu(run: RunView) -> str:
    usage = run.record.usage
    words = [] if run.cores is None else [f"{_cores(run.cores)} cores now"]
    if usage and usage.cpu_time is not None:
        words.append(f"{format_duration(usage.cpu_time)} in total")
    if usage and usage.cpus_used is not None:
        words.append(f"{usage.cpus_used:.2f} cores on average")
    if run.processes is not None:
        words.append(_processes_in_words(run.processes))
    return ", ".join(words) or "not measured"


def _progress(run: RunView) -> Iterator[Line]:
    headway = run.record.progress
    if headway is None:
        return
    yield _row("progress", printable(how_far(headway)))
    left = _left(run)
    if left is not None:
        yield _row("ends", f"in {left}")


def _left(run: RunView) -> str | None:
    """Return the remaining time in words; None if unknown."""
    headway = run.record.progress
    if headway is None or run.stale or run.record.state != "RUNNING":
        return None
    return time_left(headway, run.elapsed)


def _request_rows(request: Request | None, width: int) -> Iterator[Line]:
    if request is None:
        return
    name = "request"
    for lines in common_lines(request, width - _MARGIN):
        for line in lines:
            yield _row(name, line)
            name = ""
    margin = f"+ {round(request.headroom * 100, 1):g} %"
    yield _row("", f"for the usage so far {margin}; a lower bound while it runs", "dim")


def _gpus(gpus: Sequence[GpuView], note: str | None, width: int) -> Iterator[Line]:
    if gpus or note:
        yield Line("")
        yield Line("GPUs", "bold")
    if gpus:
        yield from _gpu_table(gpus, width)
    if note:  # the first to go in a low window
        lines = folded(printable(note), width - 2)
        yield from (Line(f"  {line}", "yellow") for line in lines)


def _gpu_table(gpus: Sequence[GpuView], width: int) -> Iterator[Line]:
    yield from _table(
        [
            Column("", tuple(str(one.index) for one in gpus)),
            Column("GPU", tuple(map(_model, gpus)), right=False),
            Column("memory", tuple(map(_gpu_memory, gpus))),
            Column("busy", tuple(_percent(one.utilization) for one in gpus), drop=1),
            Column(
                "on it",
                tuple(map(_on_it, gpus)),
                right=False,
                drop=2,
                flexible=True,
            ),
        ],
        width,
    )


def _model(gpu: GpuView) -> str:
    return printable(short_name(gpu.name))


def _gpu_memory(gpu: GpuView) -> str:
    return memory_words(gpu.memory_used, gpu.memory_total)


def _on_it(gpu: GpuView) -> str:
    if gpu.lost:
        return "lost: the GPU does not answer"
    words = [
        f"{printable(one.name)} {one.pid}"
        + ("" if one.memory is None else f" {format_size(one.memory)}")
        for one in gpu.holders
    ]
    if gpu.others:
        words.append(f"{gpu.others} other{'s' if gpu.others > 1 else ''}")
    return ", ".join(words) or ("unknown" if gpu.others is None else "nobody")


def _processes(view: TopView, width: int, rest: int | None) -> Iterator[Line]:
    processes = view.processes
    if processes is None:
        return
    whose = "my processes" if view.followed is None else "its processes"
    total = format_size(sum(one.resident for one in processes))
    order = "busiest first" if view.by_cpu else "largest first"
    yield Line(f"{whose}, {order}   ({_RSS})", "bold")
    if view.by_cpu:
        processes = tuple(sorted(processes, key=lambda one: -(one.cores or 0)))
    # below: this heading, the column titles, the count of the rest
    room = _MOST_PROCESSES if rest is None else max(_LEAST_PROCESSES, rest - 3)
    shown = processes[:room]
    yield from _table(_process_columns(shown), width)
    left_out = processes[len(shown) :]
    if left_out:
        size = format_size(sum(one.resident for one in left_out))
        yield Line(f"  {len(left_out)} more with {size}; in total {total}", "dim")


def _process_columns(processes: Sequence[ProcessView]) -> list[Column]:
    return [
        Column("pid", tuple(str(one.pid) for one in processes)),
        Column("RSS", tuple(format_size(one.resident) for one in processes)),
        Column("cpu", tuple(map(_process_cpu, processes)), drop=1),
        Column(
            "command",
            tuple(named_words(printable(one.command)) for one in processes),
            right=False,
            drop=2,
            flexible=True,
        ),
    ]


def _process_cpu(process: ProcessView) -> str:
    return _percent(None if process.cores is None else process.cores * 100)


def _table(columns: Sequence[Column], width: int) -> Iterator[Line]:
    titles, *rows = table(columns, width)
    yield Line(titles, "dim")
    yield from map(Line, rows)


def by_time(
    t: Sequence[Seconds], memories: Sequence[Bytes], width: int
) -> list[Bytes | None]:
    """Return the most memory in each of *width* equal stretches of time.

    A stretch without a sample has what the one before it ended with.
    """
    if not t or t[-1] <= 0 or width < 1:
        return list(memories[:1])
    plot: list[Bytes | None] = []
    at = 0
    for n in range(1, width + 1):
        end = bisect_right(t, t[-1] * n / width, at) if n < width else len(t)
        within = islice(memories, at, end)
        plot.append(max(within, default=memories[at - 1] if at else None))
        at = end
    return plot


def _row(name: str, text: str, style: Style = "") -> Line:
    return Line(f"  {name:<{_MARGIN - 4}}  {text}".rstrip(), style)


def _processes_in_words(number: int) -> str:
    return "1 process" if number == 1 else f"{number} processes"


def _size(size: Bytes | None) -> str:
    return "?" if size is None else format_size(size)


def _cores(cores: float | None) -> str:
    return "?" if cores is None else f"{cores:.2f}"


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _time(seconds: Seconds) -> str:
    return format_duration(seconds)


def _percent(share: float | None) -> str:
    return "?" if share is None else f"{share:.0f} %"
