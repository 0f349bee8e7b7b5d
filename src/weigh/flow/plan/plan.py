"""``weigh plan``: read a task file; write which tasks run together and the request.

This module reads records, asks the scheduler for free GPUs, and with ``--probe`` runs
1, 2, 3... tasks together and measures their throughput; what the tasks need and how
they are packed is worked out in ``weigh.planning``.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import truediv
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh.errors import StoreError, UsageError, writing
from weigh.flow.here import Here, here_of
from weigh.flow.job_scripts import (
    hidden_exit_note,
    refuse_job_script,
    refuse_job_scripts,
)
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import FOLDER
from weigh.flow.records.records import open_store
from weigh.flow.request.request import configured_headroom, ends_of_jobs
from weigh.flow.run.run_measured import InterruptedRun, error_in
from weigh.flow.site.schedulers import available_schedulers
from weigh.flow.submit.job_request import (
    beyond_this_machine,
    elements_this_machine_holds,
)
from weigh.joblog import output_name
from weigh.lazy_modules import lazy_module
from weigh.model.job import JobRequest
from weigh.model.plan import KindForecast, Plan, TogetherRun
from weigh.model.record import Record
from weigh.planning.bin_packing import most_work
from weigh.planning.make_plan import (
    LONGEST_PLAN_NAME,
    line_run_on_nodes,
    plan_for_target,
    refuse_what_names_no_plan,
    tasks_too_big_message,
)
from weigh.planning.needs import TaskNeeds, needs_of_tasks
from weigh.planning.options import (
    ALL,
    ANY_KIND,
    PlanOptions,
    plan_targets,
    stated_usage,
)
from weigh.planning.record_match import RecordLibrary, failed_runs, record_candidates
from weigh.probe.host import read_host
from weigh.regular_file import only_regular
from weigh.runner.slots import gpu_settings, gpus_named
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.schedulers.this_machine import NAME as LOCAL
from weigh.store.find import find_entry, labelled_entries, not_found, read_file
from weigh.store.identity import new_id
from weigh.store.index import (
    IndexEntry,
    RecordHead,
    StoreIndex,
    head_of,
    read_index,
    read_record,
)
from weigh.store.jobs import read_jobs
from weigh.sweep.quoting import bash_quoted, shell_line
from weigh.sweep.task_file import INTERPRETERS
from weigh.units import Seconds, count_with_noun, format_duration
from weigh.work_done_elsewhere import outside_work_of

if TYPE_CHECKING:
    from weigh.flow.exec import exec as flow_exec
    from weigh.flow.plan import gpu_kinds
    from weigh.flow.submit.job_request import SubmitOptions
    from weigh.runner import run_context
else:  # each is imported when it is first used: submit needs no runner
    flow_exec = lazy_module("weigh.flow.exec.exec")
    gpu_kinds = lazy_module("weigh.flow.plan.gpu_kinds")
    run_context = lazy_module("weigh.runner.run_context")


def no_library() -> RecordLibrary:
    """Return a library without records."""
    return RecordLibrary((), dict[str, Record]().__getitem__)


def library(
    here: Here,
    names: str,
    *,
    is_needed: bool = True,
    is_of_use: Callable[[RecordHead], bool] | None = None,
) -> RecordLibrary:
    """Return the library of the records with these names, or of all records.

    A run whose job had a step out of memory counts as out of memory. Unless it
    *is_needed*, as without stated memory and time, it may be empty. Of what is there
    only the records that are *is_of_use* count.

    Raises:
        RecordNotFoundError: no record has a name; suggests the nearest name.
        UsageError: the named runs failed at once.
        StoreError: the records cannot be read.
    """
    index = read_index(here.root)
    entries = {entry.head.id: entry for entry in index.entries}
    files: dict[str, Record] = {}
    if names == ALL:
        heads = [entry.head for entry in index.entries]
    else:
        heads = []
        # names of records, files, or labels that stand for several
        for name in filter(None, (part.strip() for part in names.split(","))):
            if os.sep in name or name.endswith(".json"):
                record = read_file(name)
                files[record.id] = record
                heads.append(head_of(record))
            else:
                heads += [
                    entry.head for entry in _records_labelled(index, name, here.root)
                ]

    as_job_ended = ends_of_jobs(here)

    def read(name: str) -> Record:
        record = files[name] if name in files else read_record(entries[name])
        return as_job_ended(record)

    # a client's usage shows nothing of its tasks' needs
    own = [head for head in heads if _work_was_outside(head) is None]
    own = own if is_of_use is None else list(filter(is_of_use, own))
    known = record_candidates(own)
    if names != ALL and heads and not known and is_needed:
        why = _work_was_outside(heads[0]) or "each failed at once"
        raise UsageError(
            f"{names}: no run to plan with, {why} (state --memory and --time)"
        )
    failed = failed_runs(heads)
    return RecordLibrary(known, read, named=names != ALL, failed=failed)


def _work_was_outside(record_head: RecordHead) -> str | None:
    """Return who did the work of a run in its place, as far as a list shows that."""
    usage = record_head.usage
    if usage is None:
        return None
    peak = None if usage.peak_memory is None else usage.peak_memory.value
    return outside_work_of(record_head.command, usage.wall_time, usage.cpu_time, peak)


def _records_labelled(index: StoreIndex, name: str, root: str) -> list[IndexEntry]:
    """Return all records with the label *name*, or the record with that id."""
    labelled = labelled_entries(index, name)
    entry = None if labelled else find_entry(index, name)
    if entry is None and not labelled:
        raise not_found(root, name, index)
    return [entry] if entry else labelled


class PlanAnswer(msgspec.Struct, frozen=True):
    """One plan per GPU; ``directory`` is where the first was written, if it was.

    ``replaces_submitted``: jobs of an earlier plan in that directory were submitted.
    Of the kinds of GPU of a cluster, the best first, ``forecasts`` has one for each
    plan; ``to_measure`` is what to type for those whose time is not known, and
    ``submit_words`` are the options by which the job gets the best kind.
    """

    plans: tuple[Plan, ...]
    directory: str | None = None
    replaces_submitted: bool = False
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    forecasts: tuple[KindForecast, ...] = ()
    to_measure: tuple[str, ...] = ()
    submit_words: tuple[str, ...] = ()


def plan_task_file(here: Here, options: PlanOptions) -> PlanAnswer:
    """Plan the tasks of a file for one GPU, or compare several GPUs.

    With at most one GPU the plan is written to ``plan/NAME``. ``here.notify``
    receives the progress of a probe.

    Raises:
        UsageError: there is no task; a task's needs are not known; a task fits into no
            element; the plan exists; or a task runs a job script, whose directives
            would have no effect.
        FormatError: a size, time, share or the task file does not parse.
        StoreError: the records cannot be read, or the plan cannot be written.
    """
    _refuse_plan_contradictions(options)
    settings = here.settings
    headroom = configured_headroom(settings)
    source = TaskSource(options.task_file)
    try:
        lines = (_line_of_task(source, seq) for seq in range(1, len(source) + 1))
        refuse_job_scripts(source.name, lines, cwd=here.cwd, path=here.env.get("PATH"))
        probe = None
        if options.probe:
            probe = _TaskProbe(here, source, options)
            memory = read_host().memory
            # this machine's size, where the node's is not given
            options = replace(
                options,
                node_cpus=options.node_cpus or read_host().cpus or 1,
                node_memory=options.node_memory or (memory and f"{memory}B"),
            )
        if options.gpus == ANY_KIND:
            compared = gpu_kinds.compare_gpu_kinds(
                here, options, partial(_needs_of_tasks, here, source, options)
            )
            return _answer_of_kinds(here, source, options, compared)
        needs = _needs_of_tasks(here, source, options)
        wanted = plan_targets(options.gpus, needs, settings.gpus)
        plans = [plan_for_target(options, needs, target, headroom) for target in wanted]
        if len(plans) > 1:
            # plans for several GPUs differ, and have notes in common
            notes = dict.fromkeys(note for one in plans for note in one.notes)
            return PlanAnswer(
                tuple(plans), None, False, tuple(notes), settings.warnings
            )
        made = plans[0]
        if probe is not None and made.elements:
            found = probe.together(made, needs)
            best = most_work(found)
            # planned again with the number of tasks that had the highest throughput
            options = replace(options, per_gpu=best.count)
            made = plan_for_target(
                options, needs, wanted[0], headroom, slow_down=best.slow_down
            )
            made = replace(made, probe=found)
        return _written_answer(here, source, options, made)
    finally:
        source.close()


def _written_answer(
    here: Here, source: TaskSource, options: PlanOptions, made: Plan
) -> PlanAnswer:
    """Write the plan to its directory, unless it is only to be shown.

    Raises:
        UsageError: tasks are too big, or the plan exists.
        StoreError: it cannot be written.
    """
    if source.then is not None:
        made = replace(made, then=os.fsdecode(source.then))
    hidden = hidden_exit_note(_line_of_task(source, n + 1) for n in range(len(source)))
    if hidden is not None:
        made = replace(made, notes=(*made.notes, hidden))
    if made.left_out:
        raise UsageError(
            tasks_too_big_message(made, states_cpus=options.cpus is not None)
        )
    directory = os.path.join(plan_directory.FOLDER, made.name)
    if not options.dry_run:
        folder = os.path.join(here.cwd, directory)
        # before writing, and once more if another plan was written meanwhile
        check = partial(
            plan_directory.check_free,
            folder,
            options.task_file,
            replace=options.replace,
        )
        check()
        # lines that start ranks are started once
        nodes = 1 if made.request.ntasks else made.request.nodes
        if made.queue is not None:
            # running jobs go on with the queue that they know
            queue = replace(made.queue, folder=f"queue_{new_id()}")
            made = replace(made, queue=queue)

        def text_of(task: int) -> bytes:
            return line_run_on_nodes(source.text(task), nodes, sys.executable)

        made = plan_directory.write(folder, made, text_of, check)
    replaces = plan_directory.was_submitted(os.path.join(here.cwd, directory))
    notes = (*made.notes, *_notes_on_this_machine(here, made))
    return PlanAnswer((made,), directory, replaces, notes, here.settings.warnings)


def _notes_on_this_machine(here: Here, made: Plan) -> Iterator[str]:
    """Yield how long all tasks take where this machine runs few elements at a time."""
    if made.queue is None or available_schedulers(here.env) != [LOCAL]:
        return
    ask = made.request
    request = JobRequest(cpus=ask.cpus, memory=ask.memory, gpus=ask.gpus)
    # without all that they need the tasks take another time, if they run at all
    if ask.nodes > 1 or any(beyond_this_machine(request)):
        return
    fitting = elements_this_machine_holds(request)
    whole = gpu_kinds.makespan_of_plan(made, fitting)
    if fitting < len(made.elements) and whole is not None:
        elements = count_with_noun(fitting, "element")
        yield (
            f"on this machine all tasks take about {format_duration(whole)}: it runs "
            f"{elements} at a time"
        )


def _answer_of_kinds(
    here: Here,
    source: TaskSource,
    options: PlanOptions,
    compared: "gpu_kinds.ComparedKinds",
) -> PlanAnswer:
    """Write the plan of the best kind of GPU, if its time was measured."""
    best = compared.kinds[0]
    answer = PlanAnswer((best.plan,), warnings=here.settings.warnings)
    if best.forecast.makespan is not None:
        answer = _written_answer(here, source, options, best.plan)
    others = (one.plan for one in compared.kinds[1:])
    return replace(
        answer,
        plans=(*answer.plans, *others),
        notes=tuple(dict.fromkeys((*answer.notes, *compared.notes))),
        forecasts=tuple(one.forecast for one in compared.kinds),
        to_measure=tuple(
            gpu_kinds.lines_to_measure(options, compared, source.line_number_of_task)
        ),
        submit_words=best.words,
    )


def _refuse_plan_contradictions(options: PlanOptions) -> None:
    """Raise UsageError where options contradict each other."""
    kinds = [word.strip().lower() for word in (options.gpus or "").split(",")]
    if ANY_KIND in kinds and options.gpus != ANY_KIND:
        raise UsageError(
            f"--gpu {options.gpus}: auto stands alone: write --gpu {ANY_KIND}, or "
            "names only"
        )
    alone = "--nodes" if (options.nodes or 1) > 1 else None
    alone = "--gpus" if options.gpus_per_task else alone
    if alone and (options.per_gpu or 1) > 1:
        raise UsageError(f"--per-gpu shares a GPU, but {alone} uses whole GPUs")
    if alone and options.probe:
        raise UsageError(f"--probe runs tasks together, but {alone} runs each alone")


def _needs_of_tasks(
    here: Here,
    source: TaskSource,
    options: PlanOptions,
    is_of_use: Callable[[RecordHead], bool] | None = None,
) -> TaskNeeds:
    stated, headroom = stated_usage(options), configured_headroom(here.settings)
    # records are not read where all figures were stated
    is_complete = None not in (stated.memory, stated.cpus, stated.time)
    is_complete = is_complete and not (options.gpus and not stated.gpu_memory)
    known = no_library()
    if options.records != ALL or not is_complete:
        known = library(
            here.at_store(open_store(here.cwd, here.env).root),
            options.records,
            is_needed=None in {stated.memory, stated.time} and is_of_use is None,
            is_of_use=is_of_use,
        )
    lines = (_line_of_task(source, seq) for seq in range(1, len(source) + 1))
    with closing(TaskParameters(source.name)) as table:
        return needs_of_tasks(lines, stated, headroom, known, table.of)


def _line_of_task(source: TaskSource, task: int) -> str:
    return source.text(task).decode("utf-8", "surrogateescape")


_SHOWN_RARELY: Seconds = 3600.0  # between drawings of a progress that nobody sees
_WORSE = 2  # numbers of tasks in a row without a gain that end the probe


class _TaskProbe:
    """Runs tasks alone and side by side, on this machine or one GPU of it."""

    def __init__(self, here: Here, source: TaskSource, options: PlanOptions) -> None:
        """Run the first task alone; its record is kept, and the plan uses it.

        Raises:
            UsageError: several GPUs are named; or the task failed, with its last line.
            Interrupted: this process received a signal to stop and passed it on.
        """
        if options.gpus and ("," in options.gpus or options.gpus == ANY_KIND):
            raise UsageError("--probe measures on this machine's GPU: name one --gpu")
        uses_gpu = options.gpus is not None or options.gpu_memory is not None
        # "0": without a setting of visible GPUs the first one is taken
        gpu = (gpus_named(here.env) or ("0",))[0] if uses_gpu else None
        self._env = {**here.env, **gpu_settings(gpu, here.env)}
        self._here, self._source = here, source
        self._first = self._side_by_side((1,), ())
        # what a task takes alone is what the others are compared with
        here.notify(f"1 alone: {format_duration(self._first.wall_time)}")

    def together(self, made: Plan, needs: TaskNeeds) -> tuple[TogetherRun, ...]:
        """Run more and more tasks of the fullest element while the throughput grows.

        Each is compared with a task of its kind that ran alone. It ends early if tasks
        fail together; no record is kept.
        """
        tasks = max((element.tasks for element in made.elements), key=len)
        if made.queue is not None:
            # a queue has no elements of its own: as many tasks as run at a time
            tasks = made.queue.tasks[: made.queue.slots]
        first = self._first
        alone = {needs.places[0]: first.wall_time}
        for task in tasks if len(tasks) > 1 else ():
            # a task of another kind takes another time alone: measure one of each kind
            kind = needs.places[task - 1]
            if kind not in alone:
                alone[kind] = self._side_by_side((task,), ()).wall_time
                took = format_duration(alone[kind])
                self._here.notify(f"task {task} alone: {took}")
        times = [alone.get(needs.places[task - 1], first.wall_time) for task in tasks]
        found, best, worse = [first], 1.0, 0
        for count in range(2, len(tasks) + 1):
            # tasks that fail together show the limit
            try:
                run = self._side_by_side(tasks[:count], times[:count])
            except UsageError as error:
                self._here.notify(f"{count} together: {error}")
                break
            gain = f"{run.speed_up:.2f} times the throughput of one"
            self._here.notify(f"{count} together: {gain}")
            found.append(run)
            worse = 0 if run.speed_up > best else worse + 1
            best = max(best, run.speed_up)
            if worse == _WORSE:
                break
        return tuple(found)

    def _side_by_side(
        self, tasks: Sequence[int], alone: Sequence[Seconds]
    ) -> TogetherRun:
        """Run tasks at a time; *alone* is what each takes alone, if that is known."""
        records = dict[int, Record]()

        def is_kept(record: Record) -> bool:
            if record.job is not None:
                records[record.job.task or 0] = record
            # of several, a record would not show what the task uses alone
            return len(tasks) == 1

        with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
            task_file = os.path.join(folder, "tasks.txt")
            with open(task_file, "wb") as file:
                file.writelines(self._source.text(task) + b"\n" for task in tasks)
            exec_options = run_context.ExecOptions(
                jobs=len(tasks),
                joblog=os.path.join(folder, "joblog"),
                output=folder,
                memory=read_host().memory,
                is_trial=True,
                # what the tasks do together is the question, and the kernel's to answer
                guard=False,
                pin=False,
            )
            console = run_context.RunConsole(
                lambda _: None, lambda _: _SHOWN_RARELY, is_kept
            )
            there = here_of(self._here.cwd, self._env)
            finished = flow_exec.execute(there, task_file, exec_options, console)
            if finished.result.signal is not None:
                raise InterruptedRun(finished.result.signal)
            if finished.result.trouble is not None:
                raise StoreError(finished.result.trouble)
            for task, record in sorted(records.items()):
                if record.state != "COMPLETED":
                    line = error_in(os.path.join(folder, output_name(task, 1)))
                    raise UsageError(
                        f"a task ended as {record.state}: "
                        f"{line or 'it printed nothing'}"
                    )
        return _together_run([records[task] for task in sorted(records)], alone)


def _together_run(records: Sequence[Record], alone: Sequence[Seconds]) -> TogetherRun:
    usages = [record.usage for record in records if record.usage]
    times = [usage.wall_time for usage in usages]
    peaks = [usage.peak_memory.value for usage in usages if usage.peak_memory]
    gpus = [gpu for usage in usages for gpu in usage.gpus]
    # the slowest counts: where tasks wait for one another the first ones are fast
    slow_down = max(map(truediv, times, alone or times))
    return TogetherRun(
        count=len(records),
        wall_time=max(times),
        # how often the work of one task is done in the time that it takes alone
        slow_down=slow_down,
        speed_up=len(records) / slow_down,
        memory=sum(peaks) if peaks else None,
        # all tasks of a probe use the same GPU
        gpu_memory=max((g.job_peak or 0 for g in gpus), default=0) or None,
    )


# a job of `python train.py` is called train, not python
_ENDINGS = (".py", ".sh", ".R", ".jl", ".pl")


def plan_command(here: Here, options: "SubmitOptions") -> tuple[str, Plan, bool]:
    """Plan a command from records of similar commands.

    Return the directory, the plan, and whether this call has made the directory.

    A plan of the same command is replaced, unless it was submitted.

    Raises:
        UsageError: the name is taken, the command runs a job script, or is a file.
        StoreError: the plan cannot be written.
    """
    command = options.command
    submitted = {job.folder for job in read_jobs(here.root)}
    _refuse_a_file(command[0], here.cwd, here.env.get("PATH"))
    top = os.path.join(here.cwd, FOLDER)
    line = shell_line(command).encode("utf-8", "surrogateescape") + b"\n"
    # the line as the plan's writer stores it, to recognise an earlier plan
    written = line_run_on_nodes(line[:-1], options.nodes or 1, sys.executable) + b"\n"
    refuse_job_script(command, cwd=here.cwd, path=here.env.get("PATH"))
    with writing(top):
        folder, is_new = _command_plan_folder(top, options, written, submitted)
    try:
        # weigh plan reads a task file, and only its owner may
        with (
            writing("a temporary file"),
            tempfile.NamedTemporaryFile(prefix="weigh-", suffix=".txt") as file,
        ):
            file.write(line)
            file.flush()
            plan_options = PlanOptions(
                task_file=file.name,
                name=os.path.basename(folder),
                dry_run=options.dry_run,
                replace=True,  # it is new, or of this very command
                nodes=options.nodes,
            )
            return folder, plan_task_file(here, plan_options).plans[0], is_new
    finally:
        # where planning failed the reserved directory is still empty
        if is_new:
            plan_directory.release(folder)


def _refuse_a_file(word: str, cwd: str, path: str | None) -> None:
    """Refuse a file that a shell would not find or run as a program.

    Raises:
        UsageError: it is one.
    """
    file = os.path.join(cwd, word)
    is_path = os.path.dirname(word) != ""
    # one that does not exist may come from an earlier job
    if not os.path.isfile(file) or shutil.which(file if is_path else word, path=path):
        return
    program = INTERPRETERS.get(os.path.splitext(word)[1].lower())
    meant = f"{program} {bash_quoted(word)}" if program else f"./{bash_quoted(word)}"
    if is_path:
        way_out = meant if program else f"chmod +x {bash_quoted(word)}"
        raise UsageError(f"cannot execute {word}: it is not executable ({way_out})")
    raise UsageError(f"command not found: {word} (did you mean {meant}?)")


def _stem(command: Sequence[str]) -> str:
    """Return a name for a command: that of its script, else of its program."""
    for word in command:
        if word.endswith(_ENDINGS):
            command = (word,)
            break
    stem = os.path.splitext(os.path.basename(command[0]))[0]
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem).strip(".")
    # half of what a plan's may have: a number may follow
    return kept.encode()[: LONGEST_PLAN_NAME // 2].decode(errors="ignore") or "job"


def _command_plan_folder(
    top: str, options: "SubmitOptions", line: bytes, submitted: Collection[str]
) -> tuple[str, bool]:
    """Return the plan's directory, and whether this call created it.

    Several processes may submit commands at the same moment: each gets its own.

    Raises:
        UsageError: the typed name is taken, or names no folder.
    """
    if options.name is not None:
        refuse_what_names_no_plan(options.name)
    stem, number = options.name or _stem(options.command), 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        folder = os.path.join(top, name)
        if _is_plan_of_command(folder, line, submitted):
            return folder, False
        # a dry run reserves nothing
        if options.dry_run and not os.path.lexists(folder):
            return folder, False
        if not options.dry_run and plan_directory.reserve(folder):
            return folder, True
        if options.name is not None:
            raise UsageError(_why_taken(folder, name, submitted))
        number += 1


def _why_taken(folder: str, name: str, submitted: Collection[str]) -> str:
    if folder in submitted:
        way_out = f"weigh resume {name} runs what did not finish"
        return (
            f"{FOLDER}/{name} was submitted before: choose another --name ({way_out})"
        )
    if not os.path.lexists(os.path.join(folder, plan_directory.FILE)):
        return f"{folder} exists already (choose another --name)"
    return (
        f"{FOLDER}/{name} is the plan of another command: "
        f"choose another --name (or delete {FOLDER}/{name})"
    )


def _is_plan_of_command(folder: str, line: bytes, submitted: Collection[str]) -> bool:
    """Return whether a plan is of this very command and was never submitted."""
    if folder in submitted:
        return False
    try:
        with open(
            os.path.join(folder, "tasks_0.txt"), "rb", opener=only_regular
        ) as file:
            return file.read() == line
    except OSError:
        return False
