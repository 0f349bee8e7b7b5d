"""``weigh run``: measure a command, store its record, work out a request.

After the launch the job has priority: any trouble with the record is a warning, and the
job's exit code is passed on.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from stat import S_ISREG
from typing import TYPE_CHECKING, NamedTuple, Union

import msgspec

from weigh._version import __version__
from weigh.errors import UsageError
from weigh.flow.run.channel import SEVERAL, PhaseChannel
from weigh.flow.run.record_sink import (
    RecordKeeper,
    RecordOutputFile,
    WarningCollector,
    current_folder,
)
from weigh.lazy_modules import lazy_module
from weigh.measure.launcher import JobLauncher
from weigh.model.mask import SecretMask
from weigh.model.record import (
    Allocation,
    BatchTimes,
    CodeProvenance,
    MeasuringCost,
    Record,
    RecordedHost,
    RecordedJob,
    RepeatedRun,
    Request,
    RunMeasurement,
    RunOutcome,
    State,
)
from weigh.probe.host import may_be_login_node, read_commit, read_host
from weigh.store import identity, location
from weigh.units import Seconds, record_time_text
from weigh.why_run_ended import (
    counted_no_kill,
    fixed_heap,
    judge_run_end,
    out_of_memory,
)

if TYPE_CHECKING:
    from weigh import request as weigh_request
    from weigh import schedulers
    from weigh.flow import job_scripts
    from weigh.flow.request import growth
    from weigh.flow.run import login_node, progress, rank_group
    from weigh.flow.run.progress import RunObserver
    from weigh.flow.run.rank_group import RankGroup
    from weigh.measure import command as measure_command
    from weigh.measure import portable, signals
    from weigh.measure import watcher as measure_watcher
    from weigh.measure.watcher import TreeWatcher
    from weigh.runner import node_watch
    from weigh.runner.node_watch import NodeWatch
else:  # each is imported when it is first used
    job_scripts = lazy_module("weigh.flow.job_scripts")
    growth = lazy_module("weigh.flow.request.growth")
    login_node = lazy_module("weigh.flow.run.login_node")
    progress = lazy_module("weigh.flow.run.progress")
    rank_group = lazy_module("weigh.flow.run.rank_group")
    measure_command = lazy_module("weigh.measure.command")
    measure_watcher = lazy_module("weigh.measure.watcher")
    portable = lazy_module("weigh.measure.portable")
    signals = lazy_module("weigh.measure.signals")
    weigh_request = lazy_module("weigh.request")
    node_watch = lazy_module("weigh.runner.node_watch")
    schedulers = lazy_module("weigh.schedulers")


_FIRST_LOOK = 0.1  # seconds; the shortest runs do not load what looks for launchers
_LAST_WORDS = 1 << 14  # bytes of a failed run's output that are searched for a cause


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one measured run; times in seconds.

    ``login_node``: whether this is one; None to find out. With ``progress`` the output
    to a terminal or pipe is read too; ``draws``: a line may be drawn on the terminal.
    An example of ``checkpoint_signal`` is USR1@10m.
    """

    label: str | None = None
    parameters: dict[str, int | float | str] = {}
    interval: float = 0.05  # shortest time between samples
    repeat: int = 1  # counted runs
    warmup: int = 0  # runs before those, not counted
    wait_orphans: bool = True  # False: stop processes that outlive the command
    login_node: bool | None = None
    output: str | None = None  # path; None: no file
    progress: bool = False
    draws: bool = False
    progress_patterns: tuple[str, ...] = ()  # regular expressions
    time_limit: float | None = None  # None: the job's limit
    checkpoint_signal: str | None = None  # None: no signal
    worst_batch: bool = False  # run a loop's longest batch and a few others
    stalled_after: float = 600.0  # no output and no CPU time, or idle GPUs
    mask: SecretMask = SecretMask()


class WatchedCommand(NamedTuple):
    """A run that ended: its record, and warnings for the user.

    ``joined`` is the record of all ranks, where this run is the first of them: weigh
    ends as its own rank did, whatever became of the others. ``losses`` are the warnings
    on what could not be written.
    """

    record: Record
    warnings: list[str]
    joined: Record | None = None
    losses: Sequence[str] = ()


def run_command_measured(
    command: list[str],
    options: RunOptions,
    *,
    launchers: list[JobLauncher],
    notify: Callable[[str], None] | None = None,
) -> WatchedCommand:
    """Measure *command*; return the record, and warnings for the user.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
        StoreError: the file ``output`` cannot be opened.
    """
    warner = WarningCollector()
    # first: nothing is run if the file cannot be opened
    output = RecordOutputFile(options.output)
    keeper = RecordKeeper(os.environ, warner)
    blank = blank_record(command, options, os.environ)
    group = _group(blank, options.interval)
    if group is not None:
        # all ranks write parts of one record
        blank = msgspec.structs.replace(blank, id=group.record_id, part=group.part)
    channel = PhaseChannel(blank.id)
    to_measure = RunToMeasure(
        command=command,
        options=options,
        launchers=launchers,
        blank=blank,
        group=group,
        channel=channel,
        checkpoint=keeper.follow(blank),
        notify=notify or (lambda _line: None),
    )
    # what is in a file of output before the job is not its own
    sizes = _output_sizes()
    # ranks share their file: another one may be about to write
    opened = nullcontext() if group else closing(output)
    with _signals_held(), closing(channel), opened:
        measured = to_measure.measure_all()
        # those of repetitions that did not take place
        for launcher in launchers:
            launcher.discard()
        # the least that is known: what follows may fail, and the exit code must pass
        record, joined = _record_of_ended_run(blank, measured[-1]), None
        try:
            _note_oddities(measured, options, warner)
            words = (
                end_of_new_output(sizes) if record.exit_code or record.signal else ""
            )
            record = finished(record, measured, options, words)
            keeper.keep(record)
            if group is not None and group.is_first:
                joined = group.joined_record(record, os.environ)
            output.write(joined or record, warner)
            _note_login_node(record.host, options, warner)
            _note_directives(record, warner)
            _note_hidden_exit(record, warner)
            _note_worst_batch(record, options, warner)
        except Exception as error:  # noqa: BLE001 - the job's exit code must pass
            warner.lose(f"internal error: {type(error).__name__}: {error}")
    return WatchedCommand(record, warner.lines, joined, warner.losses)


def attach(
    pid: int, options: RunOptions, *, notify: Callable[[str], None] | None = None
) -> WatchedCommand:
    """Measure the running process *pid* until it ends, or a signal ends weigh.

    Its exit code is unknown, so the state is UNKNOWN. *notify* gets a message at the
    start, and one if the process outlives weigh.

    Raises:
        UsageError: the process does not exist, or this is not Linux.
        StoreError: the file ``output`` cannot be opened.
    """
    if sys.platform != "linux":
        raise UsageError("--attach needs Linux: start the job under weigh run instead")
    warner = WarningCollector()
    output = RecordOutputFile(options.output)
    keeper = RecordKeeper(os.environ, warner)
    blank = blank_record(measure_command.command_of_process(pid), options, os.environ)
    watch = measure_watcher.WatchSettings(
        interval=options.interval,
        checkpoint=keeper.follow(blank),
    )
    # a process that does not exist is refused below
    if notify is not None and os.path.exists(f"/proc/{pid}"):
        notify(f"measuring process {pid} until it ends (Ctrl-C stops only weigh)")
    # Ctrl-C ends the watching, and the record is still written
    with _signals_held(), closing(output):
        measured = measure_command.watch_process(pid, watch)
        if measured.end_signal is not None and notify is not None:
            notify(f"process {pid} goes on without weigh")
        how = "goes on" if measured.end_signal is not None else "ended"
        record = msgspec.structs.replace(
            finished(blank, [measured], options),
            state="UNKNOWN",
            outcome=RunOutcome(f"watched from outside; the process {how}"),
        )
        for line in measured.monitor.warnings:
            warner.warn(line)
        keeper.keep(record)
        output.write(record, warner)
    return WatchedCommand(record, warner.lines, losses=warner.losses)


def _signals_held() -> AbstractContextManager[None]:
    """Keep signals from ending weigh before the record is written."""
    if sys.platform != "linux":
        return nullcontext()
    return signals.held()


def _note_oddities(
    measured: list[RunMeasurement], options: RunOptions, warner: WarningCollector
) -> None:
    if len(measured) < options.warmup + options.repeat:
        failed = bool(measured[-1].exit_code)
        why = "the command failed" if failed else "weigh received a signal"
        warner.warn(f"stopped repeating: {why}")
    for one in measured:
        for line in one.monitor.warnings:
            warner.warn(line)


def _note_directives(record: Record, warner: WarningCollector) -> None:
    """Warn if the command is a job script, whose directives have no effect here."""
    program = os.path.basename(record.command[0])
    # by its name only: reading each command's file would take longer
    may_be_script = program.endswith(("sh", "py", "job")) or program[:6] == "python"
    # within a job the directives were in force
    if not may_be_script or any(map(os.environ.get, schedulers.JOB_VARIABLES.values())):
        return
    folder = record.cwd or os.curdir
    why = job_scripts.lost_in(record.command, cwd=folder)
    if why is not None:
        warner.warn(why)


def _note_hidden_exit(record: Record, warner: WarningCollector) -> None:
    """Warn if the exit code 0 of ``bash -c LINE`` is not that of its program."""
    if record.exit_code or "-c" not in record.command[1:]:
        return
    from shlex import join  # noqa: PLC0415 - rarely

    from weigh.schedulers.hidden_exit import hidden_exit  # noqa: PLC0415 - rarely

    hidden = hidden_exit(join(record.command))
    if hidden is not None:
        warner.warn(f"{hidden.effect} ({hidden.cure})")


def _note_worst_batch(
    record: Record, options: RunOptions, warner: WarningCollector
) -> None:
    is_known = record.batches is not None and record.batches.forecast is not None
    if options.worst_batch and not is_known and not record.exit_code:
        warner.warn(
            "--worst-batch: nothing is predicted: no loop over "
            "weigh.batches(loader) ended after its longest batches"
        )


def _note_login_node(
    recorded_host: RecordedHost | None, options: RunOptions, warner: WarningCollector
) -> None:
    given, folder = options.login_node, current_folder()
    if recorded_host is None or folder is None or given is False:
        return
    if given is None:
        commands, in_job = (
            [*schedulers.SUBMITS.values()],
            [*schedulers.JOB_VARIABLES.values()],
        )
        if not may_be_login_node(os.environ, commands, in_job):
            return
    warning = login_node.login_node_warning(
        given=given,
        root=location.locate_store(folder, os.environ),
        host_name=recorded_host.name,
        env=os.environ,
    )
    if warning is not None:
        warner.warn(warning)


def request_from_run(record: Record, headroom: float | None = None) -> Request | None:
    """Return the request that follows from this run; None where none does."""
    if record.usage is None or weigh_request.why_no_request(record) is not None:
        return None
    share = weigh_request.DEFAULT_HEADROOM if headroom is None else headroom
    request = weigh_request.from_usages([record], headroom=share)
    # growth is not imported for runs whose memory was flat
    if not record.usage.growing:
        return request
    return growth.carry_on(request, [record])


class LaterNodes:
    """Measures a run on all nodes, if it turns out to have launchers."""

    def __init__(self, interval: Seconds, notify: Callable[[str], None]) -> None:
        self._interval = interval
        self._notify = notify
        self._nodes: NodeWatch | None = None

    def look(self, run: "TreeWatcher") -> Seconds:
        """Look for launchers; return the seconds until the next call."""
        if self._nodes is None:
            left = _FIRST_LOOK - run.elapsed()
            if left > 0:
                return left
            self._nodes = node_watch.NodeWatch(os.environ, self._interval, self._notify)
        return self._nodes.look(run)

    def joined(self, measurement: RunMeasurement) -> RunMeasurement:
        """Return the measurement so far with its nodes."""
        return measurement if self._nodes is None else self._nodes.joined(measurement)

    def finish(self, measurement: RunMeasurement | None) -> RunMeasurement | None:
        """Return the measurement with its nodes, once they have sent their last."""
        if self._nodes is None or measurement is None:
            return measurement
        return self._nodes.finish(measurement)


# What looks at a run besides its watcher: `look` returns the seconds until its next
# call, `joined` adds to a measurement what was seen so far, `finish` all of it at the
# end, or gets None where the command did not start
RunPart = Union[LaterNodes, "RankGroup", "RunObserver"]


class RunToMeasure(msgspec.Struct, frozen=True, kw_only=True):
    """A command, and all that its measurement on this machine needs."""

    command: list[str]
    options: RunOptions
    launchers: list[JobLauncher]
    blank: Record
    """What is known before the start."""
    group: "RankGroup | None"
    """The ranks that this run is one of."""
    channel: PhaseChannel
    checkpoint: Callable[[RunMeasurement, int | None], None]
    notify: Callable[[str], None]

    def measure_all(self) -> list[RunMeasurement]:
        """Run the command ``repeat`` times, or until it fails or a signal ends it."""
        measured: list[RunMeasurement] = []
        while len(measured) < self.options.warmup + self.options.repeat:
            last = self.channel.take(self._measure_once())
            measured.append(last)
            if last.exit_code != 0 or last.end_signal is not None:
                break
        return measured

    def _parts(self) -> "list[RunPart]":
        """Return what looks at one run: its nodes, then its progress and time limit.

        Elsewhere than on Linux nothing does.
        """
        options = self.options
        if sys.platform != "linux":
            return []
        nodes = self.group or LaterNodes(options.interval, self.notify)
        is_wanted = options.progress or options.time_limit or options.checkpoint_signal
        # within a job its time limit is watched as well
        if not is_wanted and not self.blank.job:
            return [nodes]
        observer = progress.RunObserver(
            options,
            channel=self.channel.path,
            env=os.environ,
            allocation=self.blank.allocation,
            notify=self.notify,
        )
        return [nodes, observer]

    def _measure_once(self) -> RunMeasurement:
        """Run the command once, in the best way to measure on this machine."""
        options, group = self.options, self.group
        env = {**self.channel.environment(), **(group.environment if group else {})}
        if options.worst_batch:
            env["WEIGH_WORST_BATCH"] = "1"
        parts = self._parts()

        def save(measurement: RunMeasurement, leader: int | None) -> None:
            for part in parts:
                measurement = part.joined(measurement)
            self.checkpoint(measurement, leader)

        copier = next((part.tee for part in parts if hasattr(part, "tee")), None)
        watch = measure_watcher.WatchSettings(
            interval=group.interval if group else options.interval,
            wait_orphans=options.wait_orphans,
            checkpoint=save,
            notify=self.notify,
            observers=tuple(part.look for part in parts),
            streams=None if copier is None else copier.streams,
            # the copier is weigh's own process, not the job's
            excluded=(copier.pid,) if copier is not None and copier.pid else (),
        )
        try:
            if sys.platform != "linux":
                environ = {**os.environ, **env}
                return portable.run_portable_command(self.command, environ, watch)
            measured = measure_command.run_command(
                self.command, env, watch, self.launchers
            )
        except BaseException:
            for part in parts:
                self._finish(part, None)
            raise
        for part in parts:
            measured = self._finish(part, measured) or measured
        return measured

    def _finish(
        self, part: RunPart, measured: RunMeasurement | None
    ) -> RunMeasurement | None:
        try:
            return part.finish(measured)
        except Exception as error:  # noqa: BLE001 - the job's end must pass
            what = type(part).__name__
            self.notify(f"measuring failed: {what}: {type(error).__name__}: {error}")
            return measured


def _group(unfinished_record: Record, interval: Seconds) -> "RankGroup | None":
    """Return the group of ranks that weigh itself is started for, if it is."""
    # one look at the environment: most runs have no ranks
    if sys.platform != "linux" or not any(name in os.environ for name in SEVERAL):
        return None
    return rank_group.rank_group(os.environ, unfinished_record.job, interval)


def blank_record(
    command: list[str], options: RunOptions, env: Mapping[str, str]
) -> Record:
    """Return the record with what is known before the start."""
    cwd = current_folder()
    allocation, job = scheduler_facts(env)
    return Record(
        id=identity.new_id(),
        label=options.label,
        # masked before anything is written, also checkpoints
        command=options.mask.words(command),
        cwd=cwd,
        parameters={
            name: options.mask.value(name, value)
            for name, value in options.parameters.items()
        },
        host=read_host(),
        started=record_time_text(time.time()),
        state="RUNNING",
        allocation=allocation,
        job=job,
        provenance=CodeProvenance(
            git_commit=read_commit(cwd) if cwd else None,
            python=sys.version.split()[0],
            weigh=__version__,
        ),
    )


def scheduler_facts(
    env: Mapping[str, str],
) -> tuple[Allocation | None, RecordedJob | None]:
    """Read this node's allocation and the id of the job; None outside a job."""
    return schedulers.facts_from_environment(env)


def _record_of_ended_run(unfinished_record: Record, last: RunMeasurement) -> Record:
    """Return the record with the exit code only."""
    return msgspec.structs.replace(
        unfinished_record, exit_code=last.exit_code, signal=last.signal, state="UNKNOWN"
    )


def finished(
    unfinished_record: Record,
    measured: list[RunMeasurement],
    options: RunOptions,
    words: str = "",
) -> Record:
    """Return the finished record; of several runs, it has the usage of the largest.

    *words* are the end of a failed command's output, if it is readable.
    """
    counted = measured[options.warmup :] or measured[-1:]
    last = measured[-1]
    # of a series that failed, the last run is the one that shows why
    biggest = last if last.exit_code != 0 else max(counted, key=_peak_memory_or_zero)
    state, outcome = _state_and_outcome(last, words, unfinished_record.command)
    loops = biggest.regions.batches if biggest.regions else ()
    loop, usage = _loop_to_record(loops), biggest.usage
    if loop is not None and loop.forecast is not None:
        # memory rose with the length of the batches, in the order that weigh chose
        usage = msgspec.structs.replace(usage, growing=None)
    return msgspec.structs.replace(
        unfinished_record.with_measurement(biggest),
        batches=loop,
        started=record_time_text(measured[0].started),
        ended=record_time_text(last.ended or last.started),
        state=state,
        outcome=outcome,
        exit_code=last.exit_code,
        signal=last.signal,
        usage=usage,
        monitor=_monitor(biggest, measured),
        repeats=_repeated_runs(measured, options) if len(measured) > 1 else (),
    )


def _loop_to_record(loops: Sequence[BatchTimes]) -> BatchTimes | None:
    """Return the longest loop; if some batches ran for all, the longest with all."""
    predicted = [(one.forecast.time, one) for one in loops if one.forecast is not None]
    if predicted:
        return max(predicted, key=lambda pair: pair[0])[1]
    return loops[0] if loops else None


def _state_and_outcome(
    last: RunMeasurement, words: str, command: Sequence[str]
) -> tuple[State, RunOutcome | None]:
    """Return how a run ended; an out-of-memory message in its *words* counts."""
    state, outcome = judge_run_end(last)
    if state != "FAILED":
        return state, outcome
    # the kernel counted no kill: who sent SIGKILL had another reason
    by_kill = not counted_no_kill(last)
    lacked = out_of_memory(words, by_kill=by_kill) if words else None
    if lacked is None:
        return state, outcome
    evidence = [f"its output says {lacked.words!r}"]
    fixed = fixed_heap(lacked.words, " ".join(command))
    if fixed is not None:
        evidence.append(f"raise {fixed}: more memory for the job cannot help")
    return "OUT_OF_MEMORY", RunOutcome("ran out of memory", tuple(evidence))


def _monitor(biggest: RunMeasurement, measured: list[RunMeasurement]) -> MeasuringCost:
    """Return the largest run's monitor, with the warnings of all runs."""
    warnings = [line for one in measured for line in one.monitor.warnings]
    return msgspec.structs.replace(
        biggest.monitor, warnings=tuple(dict.fromkeys(warnings))
    )


def _repeated_runs(
    measured: list[RunMeasurement], options: RunOptions
) -> tuple[RepeatedRun, ...]:
    return tuple(
        RepeatedRun(one.usage, one.exit_code, one.signal, warmup=turn < options.warmup)
        for turn, one in enumerate(measured)
    )


def _peak_memory_or_zero(run_measurement: RunMeasurement) -> int:
    return (
        run_measurement.usage.peak_memory.value
        if run_measurement.usage.peak_memory
        else 0
    )


def _output_sizes() -> dict[int, int]:
    """Return the sizes of standard output and error, if they are files."""
    sizes = {}
    for fd in (1, 2):
        try:
            status = os.fstat(fd)
        except OSError:
            continue
        if S_ISREG(status.st_mode):
            sizes[fd] = status.st_size
    return sizes


def end_of_new_output(sizes: Mapping[int, int]) -> str:
    """Return the end of the output written since the files had these *sizes*."""
    text = b""
    for fd, size in sizes.items():
        try:
            # opened anew, so that the job's own position does not change
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                file.seek(max(size, os.fstat(fd).st_size - _LAST_WORDS))
                text += file.read(_LAST_WORDS) + b"\n"
        except OSError:  # not readable, or not on Linux
            continue
    return text.decode("utf-8", "replace")
