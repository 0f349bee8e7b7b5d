"""``weigh request``: records in, lines for a job script out."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from weigh import config
from weigh.errors import FormatError, UsageError
from weigh.estimate.curve import size_text
from weigh.flow.here import Here
from weigh.flow.records.records import (
    RecordStore,
    find_record,
    open_store,
    runs_of_last,
)
from weigh.flow.request.growth import carry_on, parse_job_steps
from weigh.flow.site.cluster import site_flags
from weigh.model.job import STEP_OUT_OF_MEMORY, SubmittedJob
from weigh.model.record import Record, Request, RunOutcome, SiteFlags
from weigh.render import request_lines
from weigh.request import (
    COMPLETED,
    DEFAULT_HEADROOM,
    from_usages,
    parse_headroom,
    why_no_request,
)
from weigh.schedulers import find_kind, installed_scheduler, kind_or_first
from weigh.store import jobs as jobs_file
from weigh.store.find import LAST, find_all
from weigh.store.past_calls import StoredScan, last_scan, read_exec_runs
from weigh.sweep.quoting import bash_quoted
from weigh.work_done_elsewhere import outside_work

_MOST_NAMED = 3  # runs, as many as fit on a line of 80 columns


class RequestAnswer(msgspec.Struct, frozen=True):
    """The lines to paste, what to know about them, and what is off otherwise."""

    request: Request
    lines: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()  # of the settings


def request_of_records(
    here: Here,
    names: Sequence[str],
    *,
    form: str | None = None,
    headroom: str | None = None,
    steps: str | None = None,
) -> RequestAnswer:
    """Work out the request from the records called *names*, or from the last one.

    *form* is one of ``request_lines.FORMS``, by default that of the scheduler on PATH;
    *headroom* is text such as ``20%``, by default the configured one; *steps* the
    length of the full job, as `parse_job_steps` reads it.

    Raises:
        RecordNotFoundError: no such record; offers the nearest names.
        UsageError: a record holds no measurement, a name fits several, or nobody
            counted the steps.
        FormatError: the headroom, the steps or a configuration file does not parse.
    """
    settings = here.settings
    length = None if steps is None else parse_job_steps(steps)
    store = open_store(here.cwd, here.env)
    records = as_jobs_ended(
        here.at_store(store.root), _records_to_request(names or (LAST,), store)
    )
    share = (
        configured_headroom(settings) if headroom is None else parse_headroom(headroom)
    )
    refuse_useless_records(records)
    # a client's figures show nothing of the work, but the other records do
    records = [one for one in records if outside_work(one) is None]
    scan = scan_of_records(records, names or (LAST,), store)
    request = None
    if scan is not None and length is None:
        request = _request_for_scan_target(here, records, scan)
    if request is None:
        request = from_usages(
            records, headroom=share, apart="" if scan is None else _sizes_apart(scan)
        )
        request = carry_on(request, records, length)
    # a name stands for one run, and `last` for all those of weigh exec, scan or a job
    if len(records) > max(1, len(names)):
        runs = f"the runs are {_ids_of_records(records)}"
        request = msgspec.structs.replace(request, notes=(*request.notes, runs))
    return request_answer_of(here, request, records, form=form)


def _ids_of_records(records: Sequence[Record]) -> str:
    """Name the first records as `weigh records` does, and count the others."""
    named = ", ".join(record.id[:6] for record in records[:_MOST_NAMED])
    more = len(records) - _MOST_NAMED
    return f"{named} and {more} more" if more > 0 else named


def refuse_useless_records(records: Sequence[Record]) -> None:
    """Refuse records of which none shows what the job needs; some may not.

    Raises:
        UsageError: a request can be based on none of *records*; names the first.
    """
    reasons = [why_no_request(record) for record in records]
    if records and all(reasons):
        cure = "" if ":" in (reasons[0] or "") else " (fix it first)"
        raise UsageError(f"no request from {records[0].id[:6]}: {reasons[0]}{cure}")


def request_answer_of(
    here: Here,
    request: Request,
    records: Sequence[Record],
    *,
    form: str | None,
    history: object = None,
) -> RequestAnswer:
    """Write *request*, based on *records*, for the scheduler on PATH or for *form*.

    *history* is what the JSON form contains about its origin, if it is from history.

    Raises:
        FormatError: what the settings want in each request is invalid.
    """
    scheduler = installed_scheduler(here.env)
    form = form or scheduler
    dialect = scheduler if form == "flags" else form
    # flags that the site requires in each request
    request = as_site_wants(request, here.settings.cluster, here.env, dialect)
    request = msgspec.structs.replace(
        request,
        notes=(*request.notes, *_virtual_notes(request, dialect)),
    )
    return RequestAnswer(
        request=request,
        lines=request_lines.request_form_lines(
            request,
            form,
            scheduler=scheduler,
            records=tuple(record.id for record in records),
            history=history,
        ),
        notes=request_lines.folded_note_lines(
            (*request_lines.any_layout_notes(request, dialect), *request.notes),
            indent="# ",
        ),
        warnings=here.settings.warnings,
    )


def as_site_wants(
    request: Request,
    site_settings: Mapping[str, object],
    env: Mapping[str, str],
    scheduler: str | None = None,
) -> Request:
    """Return *request* with what the ``[cluster]`` of the settings wants in each.

    *scheduler* is by default the one on PATH.

    Raises:
        FormatError: a value of *site_settings* is invalid.
    """
    # json and flags are no scheduler: use the one that is installed
    kind = find_kind(scheduler or "") or kind_or_first(installed_scheduler(env))
    flags = site_flags(kind.name, site_settings)
    return msgspec.structs.replace(
        request, site=None if flags == SiteFlags() else flags
    )


def _records_to_request(names: Sequence[str], store: RecordStore) -> list[Record]:
    found: list[Record] = []
    for name in names:
        if name == LAST:
            found += _records_of_last(store)
        elif last_scan(store.root, name) is not None:  # all its sizes, as in a report
            found += find_all(store.root, name)
        else:
            found.append(find_record(store, name))
    return list({record.id: record for record in found}.values())


def _records_of_last(store: RecordStore) -> list[Record]:
    """Return the runs that ``weigh report last`` is of: a request holds all of them."""
    from weigh.flow.report.report import (  # noqa: PLC0415 - start-up time, and a circle
        records_of_last_job_or_exec,
    )

    # most folders have only single runs, for which the report is not read in
    if jobs_file.read_jobs(store.root) or read_exec_runs(store.root):
        found = records_of_last_job_or_exec(store)
        if found is not None:
            return found
    return runs_of_last(store)


def scan_of_records(
    records: Sequence[Record], names: Sequence[str], store: RecordStore
) -> StoredScan | None:
    """Return the scan that the one name of *names* stands for; None if it is none."""
    label = records[0].label if records and len(names) == 1 else None
    if label is None or names[0] not in (LAST, label):
        return None
    return last_scan(store.root, label)


def _request_for_scan_target(
    here: Here, records: Sequence[Record], scan: StoredScan
) -> Request | None:
    """Return the request that a scan printed for its target; None without a target.

    Raises:
        UsageError: the target is too far beyond the sizes for any request.
    """
    from weigh.flow.scan.from_records import answer_of_scan  # noqa: PLC0415 - a circle

    found = answer_of_scan(records, scan, here.settings.gpus)
    if found is None or found.advice.target is None:
        return None
    by = found.advice.estimate.by
    target = f"{by}={size_text(found.advice.target.size)}"
    if found.request is None:
        raise UsageError(
            f"no request for {target} yet: it is too far beyond the measured sizes "
            f"(add a larger one: weigh scan --resume {bash_quoted(f'{by}=SIZE')}, or "
            "another --target)"
        )
    notes = (f"for {target}, as the scan says", *found.request.notes)
    return msgspec.structs.replace(found.request, notes=notes)


def _sizes_apart(scan: StoredScan) -> str:
    """Return what is to be known of runs of different sizes: none repeats another."""
    target = bash_quoted(f"{scan.by}=SIZE")
    return (
        f"the runs are of different sizes, the largest counts; for another: "
        f"weigh scan --from {scan.label} --target {target}"
    )


def as_jobs_ended(here: Here, records: Sequence[Record]) -> list[Record]:
    """Return *records*; those whose job had a step out of memory ended for that.

    The processes of such a step (srun) are none of the command's own: the record saw
    little of their memory, and the command may have exited 0.
    """
    # a run that did not complete has its reason already
    ids = {one.job.id for one in records if one.job and one.state == COMPLETED}
    if not ids:
        return list(records)
    as_job_ended = ends_of_jobs(here, ids)
    return [as_job_ended(record) for record in records]


def ends_of_jobs(
    here: Here, ids: Collection[str] | None = None
) -> Callable[[Record], Record]:
    """Return the function that `as_jobs_ended` applies to each record.

    It queries the scheduler once, when it first meets a completed run of a job: about
    the jobs in *ids*, or else about all that the store knows.
    """
    titles: dict[str, str] = {}
    short: set[tuple[str, int, int]] = set()
    is_known = False

    def find_short() -> None:
        from weigh.flow.follow.view import look  # noqa: PLC0415 - start-up time

        known = jobs_file.read_jobs(here.root)
        # only schedulers that show steps can contradict a record
        wanted = [
            job for job in known if (ids is None or job.id in ids) and _shows_steps(job)
        ]
        titles.update((job.id, kind_or_first(job.scheduler).title) for job in wanted)
        short.update(
            (task.job, task.element, task.seq)
            for view in look(here, wanted, known)
            for task in view.tasks
            if task.state == "OUT_OF_MEMORY" and task.reason == STEP_OUT_OF_MEMORY
        )

    def as_job_ended(record: Record) -> Record:
        nonlocal is_known
        job = record.job
        if job is None or record.state != COMPLETED:
            return record
        # once for all records: each query takes the scheduler's time
        if not is_known:
            is_known = True
            find_short()
        # numbered as the runner does: without a task it is the only one
        if (job.id, job.element or 0, job.task or 1) not in short:
            return record
        evidence = (f"as {titles[job.id]}'s accounting shows",)
        return msgspec.structs.replace(
            record,
            state="OUT_OF_MEMORY",
            outcome=RunOutcome(STEP_OUT_OF_MEMORY, evidence),
        )

    return as_job_ended


def _shows_steps(submitted_job: SubmittedJob) -> bool:
    """Return whether the scheduler shows the steps of a job that lacked memory."""
    kind = find_kind(submitted_job.scheduler)
    return kind is not None and kind.backend.MESSAGES.step_over_memory is not None


def configured_headroom(settings: config.ConfigValues) -> float:
    """Return the headroom that a settings file or variable says, or the usual one.

    Raises:
        FormatError: it does not parse; names the file.
    """
    setting = settings.settings.get("headroom")
    if setting is None:
        return DEFAULT_HEADROOM
    try:
        return parse_headroom(str(setting.value))
    except FormatError as error:
        raise FormatError(f"{setting.origin}: {error}") from error


def _virtual_notes(request: Request, dialect: str) -> Iterator[str]:
    kind = find_kind(dialect)
    name = None if kind is None else kind.traits.address_space
    if name is None:
        return
    if request.virtual_memory is None:
        yield f"virtual size was not measured: {name} is left to you"
    elif request.gpus:
        yield f"{name} counts what CUDA only reserves: ask your site whether to set it"
