"""``weigh report``: requested vs. used, of a run, a job with its tasks, a plan."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import msgspec

from weigh.errors import RecordNotFoundError, UsageError, WeighError
from weigh.flow.follow.elsewhere import store_of_jobs
from weigh.flow.follow.healing import rounds_of
from weigh.flow.follow.named import named_jobs, with_foreign
from weigh.flow.follow.view import View, look, merged
from weigh.flow.here import Here, here_now
from weigh.flow.plan import directory as plan_directory
from weigh.flow.plan.directory import FILE as PLAN
from weigh.flow.records import joined_records as report_records
from weigh.flow.records.records import Store, find_record, open_store, runs_of_last
from weigh.flow.report.accounting import ask, logs_of, tables_in
from weigh.flow.report.exec_runs import joblog_of, runs_of_exec
from weigh.flow.report.runs import runs_of_view, unsent_runs
from weigh.flow.scan.from_records import answer_of_scan, request_note
from weigh.flow.site.schedulers import kind_of, reaching
from weigh.model.job import Submitted
from weigh.model.plan import Plan
from weigh.model.record import Record, Regions
from weigh.model.report import Accounted, Note, Report
from weigh.planning.first_tasks import is_rest
from weigh.render.healing_lines import round_words
from weigh.render.printable import short_command, shortened
from weigh.review.elements import Element, elements_of, single
from weigh.review.figures import with_accounting
from weigh.review.requested import (
    Requested,
    most_requested,
    requested_by_job,
    requested_by_records,
)
from weigh.review.runs import Run, runs_of_records, seconds_of
from weigh.review.summary import Findings, compose
from weigh.schedulers.elements import numbers_of
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.execs import read_exec_runs
from weigh.store.find import LAST, labelled_entries, read_file
from weigh.store.index import Index, read_index, read_record
from weigh.store.scans import last_scan
from weigh.sweep.quoting import quoted


@overload
def report(name: None = None) -> Regions: ...
@overload
def report(name: str) -> Report: ...
def report(name: str | None = None) -> Regions | Report:
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
    from weigh.flow.report.report import build  # noqa: PLC0415 - start-up

    return build(here_now(), name)


_DRAWN = 4  # records whose series a page draws
_RECENT = 3
_TITLE = 40  # columns of a command


class Material(Findings, frozen=True, kw_only=True):
    """All data of a report, with the views of the jobs that weigh submitted."""

    views: tuple[View, ...] = ()


def build(here: Here, name: str = LAST, *, logs: Sequence[str] = ()) -> Report:
    """Report on the run, label, job or plan called *name*, or the latest of all.

    *logs* are further files with the scheduler's GPU table.

    Raises:
        UsageError: nothing was measured or submitted yet, or a name fits several.
        RecordNotFoundError: nothing answers to that name; offers the nearest.
        StoreError: the store cannot be read.
    """
    store = open_store_of(here, name)
    return composed(gather(here, name, store, logs=logs), store)


def open_store_of(here: Here, name: str) -> Store:
    """Return the store with the job *name*, which may be that of another folder."""
    root = store_of_jobs(here, (name,))
    return msgspec.structs.replace(open_store(here.cwd, here.env), root=root)


def composed(material: Material, store: Store) -> Report:
    """Return the report of *material*, with the series that a page draws."""
    return compose(material, _drawn(material.runs, store))


def gather(
    here: Here, name: str, store: Store, *, logs: Sequence[str] = ()
) -> Material:
    """Find the run, label, job or plan *name*, and all its runs."""
    finalise_interrupted(store.root, store.machine)
    found = _found(here, name, store)
    return msgspec.structs.replace(
        found,
        request=None if found.job else _for_target(here, name, found, store),
        tables=(*found.tables, *tables_in(_readable(logs))),
    )


def _found(here: Here, name: str, store: Store) -> Material:
    known = jobs_file.read_jobs(store.root)
    index = read_index(store.root)
    job = _job_called(here.at_store(store.root), name, known, index)
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
    joblog = _joblog_called(name, store, index)
    if joblog is not None:
        return _of_exec(joblog, store)
    if not index.entries and not known and not os.path.isfile(name):
        what = "nothing to report" if name == LAST else f"no run or job {name!r}"
        raise UsageError(
            f"{what}: no run in {store.root}, no job submitted from here "
            "(start with: weigh run -- COMMAND)"
        )
    return _of_records(name, _records(name, store, index, known), here.env)


def _joblog_called(name: str, store: Store, index: Index) -> str | None:
    """Return the joblog of the task file *name*, or of the last ``weigh exec``.

    Raises:
        UsageError: *name* is a task file whose tasks did not run.
    """
    if name != LAST:
        joblog = joblog_of(name)
        if joblog is None and name.endswith(".txt") and os.path.isfile(name):
            raise UsageError(
                f"{name} did not run yet: weigh exec {quoted(name)}, or weigh plan "
                f"{quoted(name)}"
            )
        return joblog
    runs = read_exec_runs(store.root)
    if not runs or not os.path.exists(runs[-1].joblog):
        return None
    last = runs[-1]
    newest = read_record(index.entries[0]) if index.entries else None
    if newest is not None and (newest.job is None or newest.job.id != last.run):
        began = seconds_of(newest.started)
        if began is not None and began > last.started:
            return None
    return last.joblog


def _of_exec(joblog: str, store: Store) -> Material:
    runs = runs_of_exec(joblog, store.root)
    requested = requested_by_records([run.record for run in runs if run.record])
    return Material(
        title=os.path.relpath(joblog).removesuffix(".joblog"),
        requested=requested,
        runs=tuple(runs),
        elements=tuple(single(run, requested) for run in runs),
    )


def _foreign_job(
    here: Here, name: str, known: Sequence[Submitted], store: Store
) -> Submitted | None:
    """Return the job *name* that weigh did not submit; None if there are its records.

    Raises:
        SchedulerError: a scheduler does not answer.
    """
    if not name[:1].isdigit() or report_records.of_jobs(store.root, (name,)):
        return None
    try:
        return named_jobs(here.at_store(store.root), known, name, of_others=True)[-1]
    except UsageError:
        return None  # a record's id may be digits as well


def _for_target(here: Here, name: str, material: Material, store: Store) -> Note | None:
    """Return the request that a scan printed for its target, if *name* is a scan."""
    scan = last_scan(store.root, name)
    if scan is None or scan.target is None:
        return None
    records = [run.record for run in material.runs if run.record is not None]
    found = answer_of_scan(records, scan, here.settings.gpus)
    return None if found is None else request_note(found, material.scheduler)


def _readable(paths: Sequence[str]) -> Sequence[str]:
    """Return *paths*, all of which can be read.

    Raises:
        UsageError: one cannot be read.
    """
    for path in paths:
        if not os.access(path, os.R_OK) or os.path.isdir(path):
            raise UsageError(f"cannot read the log {path}")
    return paths


def _job_called(
    here: Here, name: str, known: Sequence[Submitted], index: Index
) -> Submitted | None:
    if name == LAST:
        return _latest_job(known, index, here.root)
    found = jobs_file.jobs_called(known, name)
    stem = name.removesuffix(".txt")
    if not found and stem != name and joblog_of(name) is None:
        found = jobs_file.jobs_called(known, os.path.basename(stem))  # its task file
    if found:
        return found[-1]
    if os.path.isfile(os.path.join(here.cwd, name, PLAN)):
        raise UsageError(
            f"{name} was not submitted from here: weigh submit {quoted(name)}"
        )
    return None


def _latest_job(
    known: Sequence[Submitted], index: Index, root: str
) -> Submitted | None:
    """Return the last job, unless a later run or ``weigh exec`` was outside of jobs."""
    if not known:
        return None
    if any(one.started > known[-1].submitted for one in read_exec_runs(root)[-1:]):
        return None
    for entry in index.entries[:1]:
        record = read_record(entry)
        started = seconds_of(record.started)
        if started is not None and _is_outside_jobs(record, known):
            return known[-1] if started <= known[-1].submitted else None
    return known[-1]


def _is_outside_jobs(record: Record, known: Sequence[Submitted]) -> bool:
    """Return whether a run was in no job that weigh submitted.

    Runs of jobs on this machine have a job id of their own and no allocation.
    """
    if record.job is None or record.allocation is None:
        return record.job is None
    return record.job.id not in {job.id for job in known}


def _records(
    name: str, store: Store, index: Index, known: Sequence[Submitted]
) -> list[Record]:
    """Find all records of a label, a job that was not submitted by weigh, or one."""
    if os.sep in name or name.endswith(".json"):
        return [read_file(name)]
    if name == LAST:
        return runs_of_last(store)
    labelled = labelled_entries(index, name)
    if labelled:
        return [read_record(entry) for entry in labelled]
    ours = report_records.of_jobs(store.root, (name,)) if name.isalnum() else []
    if ours:
        return ours
    try:
        return [find_record(store, name)]
    except RecordNotFoundError as error:
        jobs = ", ".join(f"{job.id} ({job.name})" for job in known[: -_RECENT - 1 : -1])
        if not jobs:
            raise
        raise RecordNotFoundError(
            f"no such job or record: {name} (the latest: {jobs})"
        ) from error


def _of_records(
    name: str, records: Sequence[Record], env: Mapping[str, str]
) -> Material:
    runs = tuple(runs_of_records(records))
    jobs = {record.job.id for record in records if record.job}
    allocated = [record.allocation for record in records if record.allocation]
    scheduler = allocated[0].scheduler if allocated else None
    parts = {run.row.element or 0 for run in runs}
    asking = sorted(jobs) if len(jobs) == 1 else ()
    accounted = tuple(
        one for one in ask(scheduler, asking, env) if one.element in parts
    )
    requested = with_accounting(requested_by_records(records), accounted)
    elements = (
        elements_of(runs, (), requested)
        if name in jobs
        else [single(run, _requested_by(run, accounted)) for run in runs]
    )
    called = records[0].label or shortened(short_command(records[0].command), _TITLE)
    one = f"{called} {records[0].id[:6]}"
    return Material(
        unit="task" if name in jobs else "run",
        title=one if len(records) == 1 else called if name == LAST else name,
        requested=requested,
        runs=runs,
        elements=tuple(elements),
        job=name if name in jobs else None,
        scheduler=scheduler,
        accounted=accounted,
    )


def _requested_by(run: Run, accounted: Sequence[Accounted]) -> Requested:
    return with_accounting(
        requested_by_records([run.record] if run.record else []), accounted
    )


def _slots(views: Sequence[View]) -> int | None:
    """Return how many tasks an element runs at once; None without a shared queue."""
    plans = [plan for view in views if (plan := plan_of(view.job)) is not None]
    return max((p.together for p in plans if p.queue is not None), default=None)


def _of_jobs(here: Here, views: tuple[View, ...], store: Store) -> Material:
    last = views[-1].job
    kind = kind_of(last.scheduler)
    by_job = _in_chain(views, [runs_of_view(view, store.root) for view in views])
    requested = [requested_by_job(view.job, plan_of(view.job)) for view in views]
    elements = [
        element
        for view, runs, its in zip(views, by_job, requested, strict=True)
        for element in elements_of(runs, view.elements, its)
    ]
    every = [run for runs in by_job for run in runs]
    every += unsent_runs(here.at_store(store.root), views)
    # the first tasks only had to show what the others need
    sized = [
        its for view, its in zip(views, requested, strict=True) if is_rest(view.job)
    ]
    return Material(
        title=f"{last.name} {last.id}",
        unit="task" if any(view.job.own is None for view in views) else "element",
        requested=most_requested(sized or requested),
        runs=tuple(sorted(every, key=lambda run: run.row.task or 0)),
        elements=tuple(elements),
        views=views,
        is_planned=True,
        slots=_slots(views),
        rounds=tuple(round_words(rounds_of(views))) if last.heal else (),
        troubles=tuple(dict.fromkeys(_troubles(views))),
        job=last.id,
        scheduler=kind,
        accounted=_accounted(views, reaching(last.scheduler, here.env)),
        tables=tables_in(logs_of(views)),
    )


def _accounted(views: Sequence[View], env: Mapping[str, str]) -> tuple[Accounted, ...]:
    """Return what accounting has on the elements of jobs, numbered as in the views."""
    kind = kind_of(views[-1].job.scheduler)
    if all(view.job.own is None for view in views):
        return ask(kind, (view.job.id for view in views), env)
    found = []
    for view in views:
        places = {number: place for place, number in enumerate(numbers_of(view.job))}
        found += [
            msgspec.structs.replace(one, element=places[one.element])
            for one in ask(kind, (view.job.id,), env)
            if one.element in places
        ]
    return tuple(found)


def _troubles(views: Sequence[View]) -> Iterator[str]:
    for view in views:
        if view.snapshot.trouble is not None:
            yield view.snapshot.trouble


def _in_chain(
    views: Sequence[View], by_job: Sequence[Sequence[Run]]
) -> list[list[Run]]:
    """Number attempts over all jobs; the last is in the last job with the task."""
    final = {(task.job, task.task) for task in merged(views).values()}
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
    view: View, store: Store, plan: Plan | None
) -> tuple[list[Run], list[Element]]:
    """Return all attempts of a job, and its elements."""
    runs = runs_of_view(view, store.root)
    return runs, elements_of(runs, view.elements, requested_by_job(view.job, plan))


def plan_of(job: Submitted) -> Plan | None:
    """Read the plan of a job; None if it is gone."""
    try:
        return plan_directory.plan_of(job)
    except WeighError:
        return None  # gone or edited: the report does without


def _drawn(runs: Sequence[Run], store: Store) -> tuple[Record, ...]:
    """Read the records with series of the few runs with the most memory."""
    known = [run for run in runs if run.record is not None and run.is_last]
    biggest = sorted(known, key=lambda run: run.row.memory or 0, reverse=True)
    apart = {run.record.id: run.record for run in biggest if run.record is not None}
    light = list(apart.values())[:_DRAWN]
    if all(record.series is not None for record in light):
        return tuple(light)
    whole = report_records.whole(store.root, [record.id for record in light])
    return tuple(whole.get(record.id, record) for record in light)
