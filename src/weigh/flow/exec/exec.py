"""``weigh exec``: run the lines of a task file in parallel, and measure each."""

import os
import re
import resource
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh.errors import StoreError, UsageError, writing
from weigh.flow.here import Here
from weigh.flow.run.channel import with_regions
from weigh.flow.run.progress import asking, queried_time_left, time_until_limit
from weigh.flow.run.run import RunOptions, blank_record
from weigh.lazy_modules import lazy_module
from weigh.model.plan import (
    PLAN_FILE,
    QUEUE_TASKS,
    PlannedElement,
    PlannedQueue,
    TaskKind,
)
from weigh.model.record import Allocation, RecordedJob, RunMeasurement
from weigh.probe.driver import open_probe
from weigh.regular_file import only_regular
from weigh.request import need_without_runner
from weigh.runner.build import (
    FinishedRun,
    TaskFileRun,
    block_signals,
    left_to_run,
)
from weigh.runner.journal import RunJournal, SettledTasks, settle_by
from weigh.runner.owned_file import JoblogHolder
from weigh.runner.run_context import ExecOptions, RunConsole, RunContext
from weigh.runner.slots import (
    NO_RESERVATION,
    SlotLayout,
    TaskPlan,
    TaskReservation,
    lay_out,
    read_cpu_quota,
    read_resources,
)
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.schedulers import SUBMITS, end_from_environment
from weigh.store import identity
from weigh.store.location import locate_store, replace_whole_file
from weigh.store.past_calls import ExecRun, append_call
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.flow import job_scripts
    from weigh.flow.exec import pull
    from weigh.flow.plan import directory
    from weigh.measure import checkpoint_signal
    from weigh.measure.checkpoint_signal import CheckpointSignal
    from weigh.measure.region import channel
    from weigh.progress import reader
else:  # each is imported when it is first used
    pull = lazy_module("weigh.flow.exec.pull")
    directory = lazy_module("weigh.flow.plan.directory")
    job_scripts = lazy_module("weigh.flow.job_scripts")
    checkpoint_signal = lazy_module("weigh.measure.checkpoint_signal")
    channel = lazy_module("weigh.measure.region.channel")
    reader = lazy_module("weigh.progress.reader")

_STDIN = "-"
_FILES_OF_A_TASK = 6  # its output, its regions, its files in /proc
_FILES_OF_WEIGH = 20  # joblog, events, records, and files read briefly
_FILES_OF_GPUS = 40  # what a driver's library opens
_MOST_CHECKED = 50  # tasks that are checked for job scripts
_SUBMITS = "|".join(SUBMITS.values())
# a cheap search first: most task files need neither the module on job scripts nor the
# schedulers, whose suffixes begin with these letters
_SCRIPT = re.compile(
    rf"\b(?:ba|k|z)?sh\b|\.(?:s[a-z]{{2,5}}|c[a-z]{{5}}|job)\b|\b(?:{_SUBMITS})\b"
    r"|^\s*(?:do|done)\b"
)


def execute(
    here: Here, task_file: str, options: ExecOptions, console: RunConsole
) -> FinishedRun:
    """Run the tasks of *task_file* that are left to run.

    Raises:
        UsageError: the file or an option is invalid.
        FormatError: a line is not a command, or the joblog belongs to another file.
        StoreError: the joblog or the output cannot be written.
    """
    began, typed_name = time.monotonic(), task_file
    # an unknown signal is refused here, before a task has started
    checkpoint = _checkpoint_signal(options)
    options = _with_limit(options, here.env)
    queue = None
    if options.pull is not None:
        task_file, options, queue = _from_queue(options.pull, options)
    with ExitStack() as opened:
        source = TaskSource(task_file)
        opened.callback(source.close)
        table = TaskParameters(task_file)
        opened.callback(table.close)
        planned = PlannedTasks(task_file, len(source))
        if planned.digest:
            directory.refuse_changed_tasks(task_file, planned.digest)
        layout, warning = within_open_files(
            choose_layout(options, here.env, opened), len(source)
        )
        if warning is not None:
            console.notify(warning)
        _warn_of_job_scripts(here, source, console)
        shared: pull.QueueOfPlan | None = None
        if queue is not None:
            shared = pull.QueueOfPlan(here, queue, options.gone)
        blank = blank_record(
            [], RunOptions(interval=options.interval, label=options.label), here.env
        )
        journal = _open_journal(task_file, options, console, blank.job)
        opened.callback(journal.close)
        context = RunContext(
            id=identity.new_id(),
            options=options,
            console=console,
            source=source,
            journal=journal,
            cwd=here.cwd,
            env=here.env,
            layout=layout,
            mask=block_signals(opened),
            blank=blank,
            ends_at=end_at(options.time_limit, here.env),
            ask=asking(here.env),
            add_regions=_with_task_regions,
            table=table,
            # tasks of a queue have their needs by kind, numbers of the whole plan
            plan=shared or planned,
            shared=shared,
            checkpoint=checkpoint,
        )
        run = TaskFileRun(context, opened, typed_name)
        if blank.job is None and queue is None and not options.is_trial:
            _remember_run(here, context)
        then = source.then
        if shared is not None and blank.job is None:
            then = shared.then  # where jobs pull, a further job runs it
        return replace(run.run(began), then=then)


def options_for_then(
    finished: FinishedRun, options: ExecOptions
) -> tuple[str, ExecOptions]:
    """Return a task file with the command that follows a run, and how it is run.

    It has all CPUs, and runs again where tasks have run since.

    Raises:
        StoreError: the file cannot be written.
    """
    path = f"{finished.report.joblog}.then"
    with writing(path):
        replace_whole_file(path, (finished.then or b"") + b"\n")
    tally = finished.result.tally
    return path, replace(
        options,
        jobs=1,
        per_gpu=None,
        joblog=None,
        output=None,
        resume=options.resume and tally.done == tally.earlier,
        resume_failed=options.resume,
        is_trial=True,  # ``last`` means the tasks
    )


def _open_journal(
    task_file: str,
    options: ExecOptions,
    console: RunConsole,
    job: RecordedJob | None,
) -> RunJournal:
    """Open the journal of this process, which is a part of *job*."""
    holder = JoblogHolder(
        identity.this_machine(),
        identity.process_identity(os.getpid()),
        None if job is None else job.id,
    )
    return RunJournal(
        _joblog_path(task_file, options),
        holder,
        mask=options.mask,
        resume=options.resume,
        notify=console.notify,
    )


def _checkpoint_signal(options: ExecOptions) -> "CheckpointSignal | None":
    """Parse the checkpoint signal, and check the progress patterns.

    Raises:
        FormatError: one of them is invalid.
    """
    if options.progress_patterns:
        reader.RunProgressReader(options.progress_patterns)
    if options.checkpoint_signal is None:
        return None
    return checkpoint_signal.parse_checkpoint_signal(options.checkpoint_signal)


def _remember_run(here: Here, context: RunContext) -> None:
    """Record the run in the store, for ``last``; elements of jobs are not recorded."""
    joblog_path = os.path.join(here.cwd, context.journal.path)
    # joblogs of a plan are in PLAN/log
    plan = os.path.join(os.path.dirname(os.path.dirname(joblog_path)), PLAN_FILE)
    if os.path.exists(plan):
        return
    exec_run = ExecRun(
        run=context.id,
        task_file=os.path.join(here.cwd, context.source.name),
        joblog=joblog_path,
        started=time.time(),
    )
    with suppress(StoreError):  # the tasks run all the same
        append_call(locate_store(here.cwd, here.env), exec_run)


def _from_queue(folder: str, options: ExecOptions) -> tuple[str, ExecOptions, str]:
    """Return the task file of a queue, the completed options, and its directory."""
    queue = pull.queue_folder(folder)
    return (
        os.path.join(queue, QUEUE_TASKS),
        pull.options_completed_by_plan(options, queue),
        queue,
    )


def tasks_to_run(
    task_file: str, options: ExecOptions
) -> tuple[list[tuple[int, str]], int, str]:
    """Return (number, command) of the tasks that would run, the total, and ``then``.

    Raises:
        UsageError, FormatError: as for :func:`execute`.
    """
    source = TaskSource(task_file)
    path = _joblog_path(task_file, options)
    settled = SettledTasks(bytearray(len(source)))
    if options.resume and os.path.exists(path):
        settled = settle_by(path, source, options.mask)
    order = left_to_run(settled, options)
    texts = [(seq, options.mask.line(os.fsdecode(source.text(seq)))) for seq in order]
    source.close()
    then = options.mask.line(os.fsdecode(source.then or b""))
    return texts, len(source), then


def _warn_of_job_scripts(here: Here, source: TaskSource, console: RunConsole) -> None:
    """Warn about tasks that are job scripts, whose directives are not read here.

    Raises:
        UsageError: the tasks do nothing but submit jobs.
    """
    # a task file may have millions of lines, mostly alike
    first = range(1, min(len(source), _MOST_CHECKED) + 1)
    lines = [os.fsdecode(source.text(seq)) for seq in first]
    if not any(_SCRIPT.search(line) for line in lines):
        return
    folder = os.path.dirname(source.name)
    if not os.path.exists(os.path.join(folder, PLAN_FILE)):  # weigh plan has asked
        job_scripts.refuse_submissions(source.name, lines)
    why = job_scripts.lost_directives(lines, cwd=here.cwd, path=here.env.get("PATH"))
    if why is not None:
        console.notify(why)


def _with_task_regions(path: str, measurement: RunMeasurement) -> RunMeasurement:
    """Add the regions that a task's program wrote to its measurement."""
    # a record has the time of day, the channel a clock of its own
    started = channel.clock() - (time.time() - measurement.started)
    ended = started + measurement.usage.wall_time
    regions = channel.read_channel(path, started=started, ended=ended)
    return with_regions(measurement, regions)


def _with_limit(options: ExecOptions, env: Mapping[str, str]) -> ExecOptions:
    """Fill in the job's time limit if only the scheduler knows it."""
    if options.time_limit is not None or time_until_limit(None, env) is not None:
        return options
    # the job's variables do not show it: one query at the start
    left = queried_time_left(env)
    return options if left is None else replace(options, time_limit=left)


def _joblog_path(task_file: str, options: ExecOptions) -> str:
    if options.joblog is not None:
        return options.joblog
    if task_file == _STDIN:
        raise UsageError("tasks from standard input need --joblog FILE")
    return f"{task_file}.joblog"


def choose_layout(
    options: ExecOptions, env: Mapping[str, str], opened: ExitStack
) -> SlotLayout:
    """Return the slots for the CPUs and GPUs of this job's allocation.

    Raises:
        UsageError: there is no GPU to use.
    """
    allocation = blank_record([], RunOptions(), env).allocation
    ours = read_resources(
        env,
        allocation,
        affinity=frozenset(os.sched_getaffinity(0)),
        quota=read_cpu_quota(),
    )
    gpus = (ours.gpus or ())[: options.gpus]
    if options.per_gpu is not None or options.gpus is not None:
        gpus = _shared_gpus(env, allocation, options.gpus, opened)
        if not gpus:
            raise UsageError(
                "--per-gpu: this job has no GPU (name yours in CUDA_VISIBLE_DEVICES)"
            )
    if options.jobs is not None:
        jobs = options.jobs
    elif options.per_gpu is not None:
        jobs = len(gpus) * options.per_gpu
    else:
        # by default a GPU has one task, and each task at least one CPU
        jobs = min(ours.cpus, len(gpus)) if gpus else ours.cpus
    if options.per_gpu is not None:
        gpus = gpus[:jobs]  # a slot has one GPU
    # one slot has all cores anyway
    cores = ours.cores if options.pin and jobs > 1 else ()
    return lay_out(jobs, cpu_count=ours.cpus, cores=cores, gpu_names=gpus)


def within_open_files(layout: SlotLayout, tasks: int) -> tuple[SlotLayout, str | None]:
    """Limit the slots to the file descriptors; return a warning if there are fewer.

    Raise the soft limit as far as necessary; the tasks inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(len(layout.slots), tasks)
    spare = (
        _open_file_limit() + _FILES_OF_WEIGH + (_FILES_OF_GPUS if layout.gpus else 0)
    )
    needed = spare + wanted * _FILES_OF_A_TASK
    # RLIM_INFINITY is -1 in Python, so it cannot be compared
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return layout, None
    # only root may go above the hard limit
    limit = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        soft = limit
    fit = max(1, (soft - spare) // _FILES_OF_A_TASK)
    if needed <= soft or fit >= wanted:
        return layout, None
    return replace(layout, slots=layout.slots[:fit]), (
        f"{soft} open files are enough for {fit} of {wanted} tasks at once "
        f"(ulimit -n {needed} for all)"
    )


def _open_file_limit() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return _FILES_OF_WEIGH


def _shared_gpus(
    env: Mapping[str, str],
    allocation: Allocation | None,
    count: int | None,
    opened: ExitStack,
) -> tuple[str, ...]:
    """Return the GPUs to use; *opened* releases their claims after the run."""
    from weigh.runner.gpus import GpuClaims  # noqa: PLC0415 - only with GPUs

    claims = GpuClaims()
    opened.callback(claims.release)
    return claims.choose(env, allocation, lambda: open_probe(env), gpu_count=count)


def end_at(limit: Seconds | None, env: Mapping[str, str]) -> Seconds | None:
    """Return the end of the time limit on the monotonic clock; None without one."""
    if limit is not None:
        return time.monotonic() + limit
    end = end_from_environment(env)
    # the end is a time of day; the monotonic clock does not jump when that is set
    return None if end is None else time.monotonic() + end - time.time()


class PlannedTasks(TaskPlan):
    """What the plan in the folder of a task file states of its tasks.

    A task that is not in it has no planned need and its own number; so has each task of
    a file that has another number of tasks than in the plan: it was changed.
    """

    def __init__(self, task_file: str, tasks: int) -> None:
        """Read ``plan.json`` of a task file with so many tasks, if there is one."""
        folder, name = os.path.split(task_file)
        path = os.path.join(folder, PLAN_FILE)
        plan = _PlannedElements()
        with (
            suppress(OSError, UnicodeDecodeError, msgspec.DecodeError),
            open(path, "rb", opener=only_regular) as file,
        ):
            plan = msgspec.json.decode(file.read(), type=_PlannedElements)
        element = next((one for one in plan.elements if one.file == name), None)
        self.digest = "" if element is None else element.digest
        if plan.queue is not None and name == QUEUE_TASKS:
            self.digest = plan.queue.digest
        is_unchanged = element is not None and len(element.tasks) == tasks
        self._numbers = element.tasks if element and is_unchanged else ()
        # none if it was resumed: then its tasks need all that it requests
        self._kinds = element.kinds if element and is_unchanged else ()
        count = len(plan.kinds)
        if len(self._kinds) != tasks or any(not 0 <= k < count for k in self._kinds):
            self._kinds = ()
        self._needs = [
            TaskReservation(
                need_without_runner(kind, plan.headroom), kind.item.gpu_memory
            )
            for kind in plan.kinds
        ]

    def need_of(self, task_number: int) -> TaskReservation:
        """Return a task's planned need."""
        if 0 < task_number <= len(self._kinds):
            return self._needs[self._kinds[task_number - 1]]
        return NO_RESERVATION

    def number_of(self, task_number: int) -> int:
        """Return the number of a task in its plan."""
        if 0 < task_number <= len(self._numbers):
            return self._numbers[task_number - 1]
        return task_number


class _PlannedElements(msgspec.Struct):
    """The part of a plan that is read here."""

    headroom: float = 0.0  # that the needs of the kinds include
    kinds: tuple[TaskKind, ...] = ()
    elements: tuple[PlannedElement, ...] = ()
    queue: PlannedQueue | None = None
