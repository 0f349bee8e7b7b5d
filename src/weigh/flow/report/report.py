"""``weigh report``: requested vs. used, of a run, a job with its tasks, a plan."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from glob import escape, iglob
from itertools import product
from typing import overload

import msgspec

from weigh.errors import RecordNotFoundError, UsageError, WeighError
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.resume import ResumeRound
from weigh.flow.follow.task_history import history_of, tail_of
from weigh.flow.follow.view import JobView, latest_task_states, look
from weigh.flow.here import Here, here_now
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import FILE as PLAN
from weigh.flow.records import record_lookup
from weigh.flow.records.records import (
    RecordStore,
    find_record,
    open_store,
    runs_of_last,
)
from weigh.flow.report.runs import (
    joblog_of,
    runs_of_exec,
    runs_of_view,
    unsent_runs,
)
from weigh.flow.request.request import scan_of_records
from weigh.flow.scan.from_records import answer_of_scan, request_note
from weigh.model.job import JobRequest, SubmittedJob
from weigh.model.plan import Plan
from weigh.model.record import ProgramRegions, Record, State
from weigh.model.report import AccountedElement, GpuTable, JobReport, ReportNote
from weigh.planning.resume_policy import ResumeOptions
from weigh.render.printable import short_command, shortened_text
from weigh.review.advice import RAN_SHORT
from weigh.review.elements import ReviewedElement, elements_of_runs, single_run_element
from weigh.review.figures import request_with_accounting
from weigh.review.runs import (
    ElementRequest,
    ReviewedRun,
    epoch_seconds,
    most_requested,
    requested_by_job,
    requested_by_records,
    runs_of_records,
)
from weigh.review.summary import ReportFindings, compose_report
from weigh.schedulers import KINDS, accounting, find_kind, installed_scheduler
from weigh.schedulers.accounting import read_tables
from weigh.schedulers.command import run_scheduler_command
from weigh.schedulers.reachable import element_numbers_of
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.find import LAST, labelled_entries, read_file
from weigh.store.index import StoreIndex, read_index, read_record
from weigh.store.past_calls import read_exec_runs
from weigh.sweep.quoting import bash_quoted


@overload
def report(name: None = None) -> ProgramRegions: ...
@overload
def report(name: str) -> JobReport: ...
def report(name: str | None = None) -> ProgramRegions | JobReport:
    """Report on the run, label, job or plan called *name*: requested vs. used.

    Without a name, print what this program measured of itself so far, and return it.

    Raises:
        UsageError: nothing was measured or submitted yet, or a name fits several.
        RecordNotFoundError: nothing answers to that name; offers the nearest.
        StoreError: the store cannot be read.
    """
    if name is None:
        from weigh.flow.run.regions import report as of_regions  # noqa: PLC0415 - start-up

        return of_regions()
    from weigh.flow.report.report import build_job_report  # noqa: PLC0415 - start-up

    return build_job_report(here_now(), name)


_DRAWN = 4  # records whose series a page draws
_RECENT = 3  # jobs that are offered
_TITLE = 40  # columns of a command


class ReportMaterial(ReportFindings, frozen=True, kw_only=True):
    """All data of a report, with the views of the jobs that weigh submitted."""

    views: tuple[JobView, ...] = ()


def build_job_report(here: Here, name: str = LAST) -> JobReport:
    """Report on the run, label, job or plan called *name*, or the latest of all.

    Raises:
        UsageError: nothing was measured or submitted yet, or a name fits several.
        RecordNotFoundError: nothing answers to that name; offers the nearest.
        StoreError: the store cannot be read.
    """
    store = open_store(here.cwd, here.env)
    return report_of_material(gather_report_material(here, name, store), store)


def report_of_material(material: ReportMaterial, store: RecordStore) -> JobReport:
    """Return the report of what was gathered, with the series that a page draws."""
    return compose_report(material, _records_to_draw(material.runs, store))


def gather_report_material(here: Here, name: str, store: RecordStore) -> ReportMaterial:
    """Find the run, label, job or plan *name*, and all its runs."""
    # runs whose weigh is gone get their record first
    finalise_interrupted(store.root, store.machine)
    found = _report_material(here, name, store)
    if find_kind(found.requested.scheduler) is None:  # measured outside of a job
        of_site = installed_scheduler(here.env)
        requested = msgspec.structs.replace(found.requested, scheduler=of_site)
        found = msgspec.structs.replace(found, requested=requested)
    request = None if found.job else _for_target(here, name, found, store)
    return msgspec.structs.replace(found, request=request)


def _report_material(here: Here, name: str, store: RecordStore) -> ReportMaterial:
    known = jobs_file.read_jobs(store.root)
    index = read_index(store.root)
    last = _latest_of_all(known, index, store.root) if name == LAST else None
    # in this order: a job, one that weigh did not submit, an exec, a record
    job = last if isinstance(last, SubmittedJob) else None
    if name != LAST:
        job = _job_called(here, name, known)
    if job is not None:
        chain = jobs_file.chain_of(known, job)
        return _of_jobs(
            here, tuple(look(here.at_store(store.root), chain, known)), store
        )
    foreign = _foreign_job(here, name, known, store)
    if foreign is not None:
        every = with_foreign(known, [foreign])
        views = look(here.at_store(store.root), [foreign], every)
        return _of_jobs(here, tuple(views), store)
    joblog = last if isinstance(last, str) else None
    if name != LAST:
        joblog = _joblog_called(name)
    if joblog is not None:
        return _of_exec(joblog, store)
    if not index.entries and not known and not os.path.isfile(name):
        jobs_file.refuse_unsent(name)
        what = "nothing to report" if name == LAST else f"no run or job {name!r}"
        raise UsageError(
            f"{what}: no run in {store.root}, no job submitted from here "
            "(start with: weigh run -- COMMAND)"
        )
    return _of_records(name, _records_to_report(name, store, index, known), here.env)


def _joblog_called(name: str) -> str | None:
    """Return the joblog of the task file *name*.

    Raises:
        UsageError: *name* is a task file whose tasks did not run.
    """
    joblog = joblog_of(name)
    if joblog is None and name.endswith(".txt") and os.path.isfile(name):
        raise UsageError(
            f"{name} did not run yet: weigh exec {bash_quoted(name)}, or weigh "
            "plan "
            f"{bash_quoted(name)}"
        )
    return joblog


def _of_exec(joblog_path: str, store: RecordStore) -> ReportMaterial:
    runs = runs_of_exec(joblog_path, store.root)
    requested = requested_by_records([run.record for run in runs if run.record])
    name = os.path.relpath(joblog_path).removesuffix(".joblog")
    return ReportMaterial(
        title=name,
        packing_command=_packing_command(name),
        requested=requested,
        runs=tuple(runs),
        elements=tuple(single_run_element(run, requested) for run in runs),
    )


def _packing_command(task_file: str) -> str:
    """Return the command that plans the tasks of *task_file*, if it is still there."""
    if not os.path.isfile(task_file):  # that of a submitted command is temporary
        return "weigh plan TASKS"
    return f"weigh plan {bash_quoted(os.path.relpath(task_file))} --replace"


def _foreign_job(
    here: Here, name: str, known_jobs: Sequence[SubmittedJob], store: RecordStore
) -> SubmittedJob | None:
    """Return the job *name* that weigh did not submit; None if there are its records.

    Raises:
        SchedulerError: a scheduler does not answer.
    """
    # a job's id starts with a digit; a label rarely does
    if not name[:1].isdigit() or record_lookup.records_of_jobs(store.root, (name,)):
        return None
    # the scheduler is queried only now, as it takes a moment
    try:
        return named_jobs(here.at_store(store.root), known_jobs, name, of_others=True)[
            -1
        ]
    except UsageError:
        return None  # a record's id may be digits as well


def _for_target(
    here: Here, name: str, material: ReportMaterial, store: RecordStore
) -> ReportNote | None:
    """Return the request that a scan printed for its target, if *name* is a scan."""
    records = [run.record for run in material.runs if run.record is not None]
    scan = scan_of_records(records, (name,), store)
    if scan is None or scan.target is None:
        return None
    found = answer_of_scan(records, scan, here.settings.gpus)
    return None if found is None else request_note(found, material.requested.scheduler)


def _job_called(
    here: Here, name: str, known_jobs: Sequence[SubmittedJob]
) -> SubmittedJob | None:
    found = jobs_file.jobs_called(known_jobs, name)
    # a task file is called as its plan, unless weigh exec ran it
    stem = name.removesuffix(".txt")
    if not found and stem != name and joblog_of(name) is None:
        found = jobs_file.jobs_called(
            known_jobs, os.path.basename(stem)
        )  # its task file
    if found:
        return found[-1]
    # a plan's bare name may be the label of runs, too
    if os.path.isfile(os.path.join(here.cwd, name, PLAN)):
        jobs_file.refuse_unsent(name)
    return None


def _latest_of_all(
    known_jobs: Sequence[SubmittedJob], index: StoreIndex, root: str
) -> SubmittedJob | str | None:
    """Return the last job, the joblog of the last ``weigh exec``, or None.

    None is a run outside of both that is newer, or nothing at all.
    """
    latest: list[tuple[float, SubmittedJob | str | None]] = [(0.0, None)]
    latest += [(job.submitted, job) for job in known_jobs[-1:]]
    execs = read_exec_runs(root)[-1:]
    latest += [(run.started, run.joblog) for run in execs if os.path.exists(run.joblog)]
    for entry in index.entries[:1]:
        record = read_record(entry)
        is_of_exec = record.job is not None and record.job.id in {
            run.run for run in execs
        }
        if _is_outside_jobs(record, known_jobs) and not is_of_exec:
            latest.append((epoch_seconds(record.started) or 0.0, None))
    return max(latest, key=lambda pair: pair[0])[1]


def records_of_last_job_or_exec(store: RecordStore) -> list[Record] | None:
    """Return the records of the last job, of all its rounds, elements and tasks.

    Or those of the last ``weigh exec``; None if ``last`` is neither for a report.

    Raises:
        UsageError: none of its tasks was measured yet.
        StoreError: the store cannot be read.
    """
    finalise_interrupted(store.root, store.machine)
    known = jobs_file.read_jobs(store.root)
    last = _latest_of_all(known, read_index(store.root), store.root)
    if last is None:
        return None
    if isinstance(last, str):
        name = os.path.relpath(last).removesuffix(".joblog")
        runs = runs_of_exec(last, store.root)
        ids = [run.record.id for run in runs if run.record is not None]
    else:
        name = f"job {last.id}"
        ids = [
            record.id
            for job in jobs_file.chain_of(known, last)
            for record in history_of(job).records(store.root).values()
        ]
    if not ids:
        raise UsageError(
            f"no task of {name} was measured yet: wait for one (weigh report last "
            "shows them), or name a record"
        )
    # with the series, by which a single run is carried on to the full job
    return list(record_lookup.whole_records_by_ids(store.root, ids).values())


def _is_outside_jobs(record: Record, known_jobs: Sequence[SubmittedJob]) -> bool:
    """Return whether a run was in no job that weigh submitted.

    Runs of jobs on this machine have a job id of their own and no allocation.
    """
    if record.job is None or record.allocation is None:
        return record.job is None
    return record.job.id not in {job.id for job in known_jobs}


def _records_to_report(
    name: str, store: RecordStore, index: StoreIndex, known_jobs: Sequence[SubmittedJob]
) -> list[Record]:
    """Find all records of a label, a job that was not submitted by weigh, or one."""
    if os.sep in name or name.endswith(".json"):
        return [read_file(name)]
    if name == LAST:
        return runs_of_last(store)
    labelled = labelled_entries(index, name)
    if labelled:
        return [read_record(entry) for entry in labelled]
    # only then can it be the id of a job, which has no path in it
    ours = record_lookup.records_of_jobs(store.root, (name,)) if name.isalnum() else []
    if ours:
        return ours
    try:
        return [find_record(store, name)]
    except RecordNotFoundError as error:
        jobs_file.refuse_unsent(name)
        jobs = ", ".join(
            f"{job.id} ({job.name})" for job in known_jobs[: -_RECENT - 1 : -1]
        )
        if not jobs:
            raise
        raise RecordNotFoundError(
            f"no such job or record: {name} (the latest: {jobs})"
        ) from error


def _of_records(
    name: str, records: Sequence[Record], env: Mapping[str, str]
) -> ReportMaterial:
    runs = tuple(runs_of_records(records))
    jobs = {record.job.id for record in records if record.job}
    allocated = [record.allocation for record in records if record.allocation]
    scheduler = allocated[0].scheduler if allocated else None
    parts = {run.row.element or 0 for run in runs}
    # accounting is queried for one job only: each query takes the scheduler's time
    asking = sorted(jobs) if len(jobs) == 1 else ()
    accounted = tuple(
        one for one in ask_accounting(scheduler, asking, env) if one.element in parts
    )
    requested = request_with_accounting(requested_by_records(records), accounted)
    elements = (
        elements_of_runs(runs, (), requested)
        if name in jobs
        else [single_run_element(run, _requested_by(run, accounted)) for run in runs]
    )
    called = records[0].label or shortened_text(
        short_command(records[0].command), _TITLE
    )
    one = f"{called} {records[0].id[:6]}"
    return ReportMaterial(
        unit="task" if name in jobs else "run",
        title=one if len(records) == 1 else called if name == LAST else name,
        requested=requested,
        runs=runs,
        elements=tuple(elements),
        job=name if name in jobs else None,
        scheduler=scheduler,
        accounted=accounted,
        tables=tables_in(_usual_log_paths(records[0], asking)),
    )


def _usual_log_paths(record: Record, jobs: Iterable[str]) -> Iterator[str]:
    """Yield the logs of jobs that are where their scheduler writes them."""
    folder = escape(record.cwd or os.curdir)
    for job in map(escape, jobs):
        for kind, index in product(KINDS.values(), (None, "*")):
            name = kind.user_scripts.default_log("*", job, index)
            yield from sorted(iglob(os.path.join(folder, name)))


def _requested_by(
    reviewed_run: ReviewedRun, accounted: Sequence[AccountedElement]
) -> ElementRequest:
    return request_with_accounting(
        requested_by_records([reviewed_run.record] if reviewed_run.record else []),
        accounted,
    )


def _of_jobs(
    here: Here, views: tuple[JobView, ...], store: RecordStore
) -> ReportMaterial:
    last = views[-1].job
    by_job = _in_chain(views, [runs_of_view(view, store.root) for view in views])
    plans = [plan_if_still_there(view.job) for view in views]
    requested = [
        requested_by_job(view.job, plan)
        for view, plan in zip(views, plans, strict=True)
    ]
    elements = [
        element
        for view, runs, its in zip(views, by_job, requested, strict=True)
        for element in elements_of_runs(runs, view.elements, its)
    ]
    every = [run for runs in by_job for run in runs]
    # tasks that were not sent are a part of the plan
    every += unsent_runs(views)
    return ReportMaterial(
        title=f"{last.name} {last.id}",
        unit="element" if all(view.job.is_script for view in views) else "task",
        requested=most_requested(requested),
        runs=tuple(sorted(every, key=lambda run: run.row.task or 0)),
        elements=tuple(elements),
        views=views,
        next_requests=requests_of_next_round(here.at_store(store.root), views),
        packing_command=_packing_command(
            os.path.join(last.cwd, plans[-1].task_file) if plans[-1] else ""
        ),
        is_planned=True,
        troubles=tuple(dict.fromkeys(_troubles_of_views(views))),
        job=last.id,
        scheduler=last.scheduler,
        accounted=_accounting_of_views(views, here.env),
        tables=tables_in(logs_of(views)),
    )


def requests_of_next_round(
    here: Here, views: Sequence[JobView]
) -> dict[State, JobRequest]:
    """Return what ``weigh resume`` requests next for tasks that ran short, by state.

    The report advises it, so that both are one answer. It is empty where nothing ran
    short, or the answer cannot be known, as without the plan.
    """
    found: dict[State, JobRequest] = {}
    last = latest_task_states(views).values()
    if not any(task.state in RAN_SHORT for task in last):
        return found
    resumption = ResumeRound(here, views[-1].job.token, ResumeOptions())
    with suppress(WeighError):
        resumption.look(views)
    for group in resumption.groups:
        for state in {task.state for task in group.tasks} & RAN_SHORT:
            known = found.setdefault(state, group.again.request)
            for amount in ("memory", "virtual_memory", "time_limit"):
                more = getattr(group.again.request, amount)
                if more and more > (getattr(known, amount) or 0):
                    known = msgspec.structs.replace(known, **{amount: more})
            found[state] = known
    return found


def _accounting_of_views(
    views: Sequence[JobView], env: Mapping[str, str]
) -> tuple[AccountedElement, ...]:
    """Return what accounting has on the elements of jobs, numbered as in the views."""
    kind = views[-1].job.scheduler
    if not any(view.job.is_script for view in views):
        return ask_accounting(kind, (view.job.id for view in views), env)
    found = []
    for view in views:
        # accounting numbers elements of an own script as the scheduler does: place them
        places = {
            number: place for place, number in enumerate(element_numbers_of(view.job))
        }
        found += [
            msgspec.structs.replace(one, element=places[one.element])
            for one in ask_accounting(kind, (view.job.id,), env)
            if one.element in places
        ]
    return tuple(found)


def _troubles_of_views(views: Sequence[JobView]) -> Iterator[str]:
    for view in views:
        if view.snapshot.trouble is not None:
            yield view.snapshot.trouble


def _in_chain(
    views: Sequence[JobView], by_job: Sequence[Sequence[ReviewedRun]]
) -> list[list[ReviewedRun]]:
    """Number attempts over all jobs; the last is in the last job with the task."""
    final = {(task.job, task.task) for task in latest_task_states(views).values()}
    # without attempts a run only stands for a task that did not start in that job
    tried = Counter(run.row.task for runs in by_job for run in runs if run.row.attempts)
    return [
        [
            msgspec.structs.replace(
                run,
                row=msgspec.structs.replace(
                    run.row, job=view.job.id, attempts=tried[run.row.task]
                ),
                is_last=run.is_last and (view.job.id, run.row.task) in final,
            )
            for run in runs
        ]
        for view, runs in zip(views, by_job, strict=True)
    ]


def of_job(
    job_view: JobView, store: RecordStore, plan: Plan | None
) -> tuple[list[ReviewedRun], list[ReviewedElement]]:
    """Return all attempts of a job, and its elements."""
    runs = runs_of_view(job_view, store.root)
    return runs, elements_of_runs(
        runs, job_view.elements, requested_by_job(job_view.job, plan)
    )


def plan_if_still_there(submitted_job: SubmittedJob) -> Plan | None:
    """Read the plan of a job; None if it is gone."""
    try:
        return plan_directory.plan_in_folder_of(submitted_job)
    except WeighError:
        return None  # gone or edited: the report does without


def _records_to_draw(
    runs: Sequence[ReviewedRun], store: RecordStore
) -> tuple[Record, ...]:
    """Read the records with series of the few runs with the most memory."""
    known = [run for run in runs if run.record is not None and run.is_last]
    biggest = sorted(known, key=lambda run: run.row.memory or 0, reverse=True)
    apart = {run.record.id: run.record for run in biggest if run.record is not None}
    light = list(apart.values())[:_DRAWN]
    # records of a file have their series; those of the store were read without
    if all(record.series is not None for record in light):
        return tuple(light)
    whole = record_lookup.whole_records_by_ids(
        store.root, [record.id for record in light]
    )
    return tuple(whole.get(record.id, record) for record in light)


_MOST_LOGS = 500  # logs that are read; an array may have thousands


def ask_accounting(
    scheduler: str | None, jobs: Iterable[str], env: Mapping[str, str]
) -> tuple[AccountedElement, ...]:
    """Query accounting for jobs, one after the other; nothing without a scheduler."""
    if scheduler is None:
        return ()
    known = tuple(
        one
        for job in jobs
        for one in accounting.accounting_of_job(
            scheduler, job, run=run_scheduler_command, env=env
        )
    )
    if not known:
        return ()
    # the interval is a setting of the site: queried once, for all elements
    sampled = accounting.sample_interval(scheduler, run=run_scheduler_command, env=env)
    return tuple(msgspec.structs.replace(one, sampled=sampled) for one in known)


def logs_of(views: Sequence[JobView]) -> Iterator[str]:
    """Yield the paths of the logs of the elements of jobs."""
    for view in views:
        job = view.job
        if job.is_script:
            yield from (path for found in view.logs for path in found)
            continue
        for number in range(job.elements):
            yield view.history.log(view.scheduler, number)


def tables_in(paths: Iterable[str]) -> tuple[GpuTable, ...]:
    """Read the GPU tables at the ends of the first few hundred logs."""
    # lazily: the paths beyond the limit are not even built
    some = (path for _, path in zip(range(_MOST_LOGS), paths, strict=False))
    return tuple(table for path in some for table in read_tables(tail_of(path)))
