"""``weigh exec``: run the lines of a task file in parallel, and measure each."""

import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from weigh import __version__
from weigh.errors import StoreError, UsageError
from weigh.flow.exec.options import (
    PlannedTasks,
    choose_layout,
    end_at,
    within_open_files,
)
from weigh.flow.here import Here
from weigh.flow.run.channel import with_regions
from weigh.flow.run.progress import asking, queried_time_left, time_until_limit
from weigh.flow.run.run import RunOptions, blank_record
from weigh.lazy_modules import lazy_module
from weigh.model.plan import PLAN_FILE, QUEUE_TASKS
from weigh.model.record import RunMeasurement
from weigh.project_folders import temporary_folders
from weigh.runner.build import (
    FinishedRun,
    TaskFileRun,
    block_signals,
    left_to_run,
)
from weigh.runner.journal import RunJournal, SettledTasks, settle_by
from weigh.runner.owned_file import JoblogHolder
from weigh.runner.run_context import ExecOptions, RunConsole, RunContext
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.schedulers import SUBMITS
from weigh.store import identity
from weigh.store.location import locate_store
from weigh.store.past_calls import ExecRun, append_call

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
    began = time.monotonic()
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
        shared = None
        if queue is not None:
            shared = pull.pulled_queue(here, queue, options.gone)
        blank = blank_record(
            [], RunOptions(interval=options.interval, label=options.label), here.env
        )
        holder = JoblogHolder(
            identity.this_machine(),
            identity.process_identity(os.getpid()),
            None if blank.job is None else blank.job.id,
        )
        journal = RunJournal(
            _joblog_path(task_file, options),
            holder,
            mask=options.mask,
            resume=options.resume,
            notify=console.notify,
        )
        opened.callback(journal.close)
        context = RunContext(
            id=identity.new_id(),
            options=options,
            console=console,
            source=source,
            journal=journal,
            cwd=here.cwd,
            env=here.env,
            version=__version__,
            holder=holder,
            layout=layout,
            mask=block_signals(opened),
            blank=blank,
            temporary=temporary_folders(here.env),
            ends_at=end_at(options.time_limit, here.env),
            ask=asking(here.env),
            add_regions=_with_task_regions,
            parameters=table.of,
            # tasks of a queue have their needs by kind, numbers of the whole plan
            plan_of=(shared or planned).need_of,
            number_of=(shared or planned).number_of,
            shared=shared,
            checkpoint=checkpoint,
        )
        run = TaskFileRun(context, opened)
        if blank.job is None and queue is None and not options.is_trial:
            _remember_run(here, context)
        return run.run(began)


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
) -> tuple[list[tuple[int, str]], int]:
    """Return (number, command) of the tasks that would run, and the total number.

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
    return texts, len(source)


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
