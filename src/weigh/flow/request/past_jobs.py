"""``weigh request --from`` accounting: learn from a list of jobs, and keep none."""

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from weigh.errors import UsageError
from weigh.estimate.history import ENOUGH
from weigh.flow.here import Here
from weigh.flow.records.imported import kind_of_name, past_accounting
from weigh.flow.request.request import RequestAnswer, request_answer_of
from weigh.flow.site.schedulers import current_user
from weigh.model.record import Request
from weigh.model.report import PastJob
from weigh.render import history_lines
from weigh.render.history_lines import HistoryKind, PastKind, RequestFromHistory
from weigh.request import COMPLETED, round_time
from weigh.review.past_jobs import OUT_OF_MEMORY, TIMEOUT, JobsOfKind
from weigh.schedulers import KINDS, accounting
from weigh.schedulers.command import lines_of_command, run_scheduler_command
from weigh.schedulers.kind import SchedulerKind
from weigh.units import DAY, Seconds

DAYS = 30  # days
_MOST_NAMES = 4  # names of jobs that are offered
_MOST_KINDS = 20  # of which a list is printed


class PastJobsOptions(msgspec.Struct, frozen=True):
    """Which jobs: those of a name, of the last days."""

    name: str | None = None
    days: int = DAYS


def request_from_accounting(
    here: Here,
    accounts: str,
    past_jobs_options: PastJobsOptions,
    *,
    form: str | None = None,
) -> RequestAnswer | tuple[PastKind, ...]:
    """Work out the request of the user's jobs of a name from accounting's command.

    If the name fits several kinds of jobs, these are returned instead, those first
    whose better request would free most.

    Raises:
        UsageError: there are no such jobs, or too few of them completed.
        SchedulerError: the command is missing or fails.
    """
    kind = next(one for one in KINDS.values() if one.accounts == accounts)
    source = past_accounting(kind)
    user = here.env.get("USER") or current_user()  # cron and containers set none
    argv = source.past_argv(user, past_jobs_options.days * DAY)
    lines = lines_of_command(argv, env=here.env)
    every = _accounting_interval(kind, here.env)
    # filled while the list is read, to be offered where no job has the name
    others: set[str] = set()
    groups = _grouped(source.read_past(lines), past_jobs_options, kind, every, others)
    if not groups:
        named = (
            ""
            if past_jobs_options.name is None
            else f" called {past_jobs_options.name!r}"
        )
        more = "".join(f", {name!r}" for name in sorted(others)[:_MOST_NAMES])
        there = f"; there are {more[2:]}" if others else ""
        raise UsageError(
            f"{accounts} lists no jobs{named} in {past_jobs_options.days} days "
            f"(--days){there}"
        )
    if len(groups) > 1:
        found = sorted((_in_short(one) for one in groups), key=_frees, reverse=True)
        return tuple(found[:_MOST_KINDS])
    (jobs,) = groups
    request, learnt = _request_from_past_jobs(jobs, kind, every)
    # no record is the basis: nothing was measured by weigh
    return request_answer_of(
        here,
        request,
        (),
        form=form or kind.name,
        history=None if learnt is None else history_lines.prediction_document(learnt),
    )


# millions of jobs have few names
_name_of = lru_cache(maxsize=1 << 16)(kind_of_name)


def _accounting_interval(kind: SchedulerKind, env: Mapping[str, str]) -> Seconds:
    """Query how often this site samples; if it does not answer, the usual."""
    every = accounting.sample_interval(kind.name, run=run_scheduler_command, env=env)
    if every is None:
        return past_accounting(kind).SAMPLED_EVERY
    return every or math.inf  # 0: only at the end


def _grouped(
    jobs: Iterable[PastJob | None],
    past_jobs_options: PastJobsOptions,
    kind: SchedulerKind,
    interval: Seconds,
    others: set[str],
) -> list[JobsOfKind]:
    """Return the jobs by their kind; add the names of those not meant to *others*."""
    # Grid Engine's memory is address space, which is no figure of use
    by_addresses = kind.traits.address_space is not None
    groups: dict[tuple[str, int | None, int | None], JobsOfKind] = {}
    for job in jobs:
        # a job that never ran
        if job is None or not job.accounted.wall_time:
            continue
        name = _name_of(job.name)
        if past_jobs_options.name is not None and not (
            fnmatchcase(job.name, past_jobs_options.name)
            # the name as listed in the table of kinds, without its numbers
            or name == past_jobs_options.name
        ):
            # bounded: a user may have run a thousand kinds of jobs
            if len(others) < _MOST_KINDS:
                others.add(name)
            continue
        key = name, job.accounted.cpus, job.accounted.nodes
        if key not in groups:
            groups[key] = JobsOfKind(name)
        groups[key].add(job, interval, by_addresses=by_addresses)
    return list(groups.values())


def _in_short(jobs: JobsOfKind) -> PastKind:
    return PastKind(
        name=jobs.name,
        jobs=jobs.states.total(),
        cpus=jobs.cpus,
        requested=jobs.requested or None,
        most=jobs.most or None,
        memory=jobs.memory_request(),
        time=round_time(jobs.time().value) if jobs.longest else None,
        out_of_memory=jobs.states[OUT_OF_MEMORY],
    )


def _frees(kind: PastKind) -> float:
    # what a better request of all these jobs would leave to others
    return kind.jobs * max(0, (kind.requested or 0) - (kind.memory or math.inf))


def _request_from_past_jobs(
    jobs: JobsOfKind, kind: SchedulerKind, interval: Seconds
) -> tuple[Request, RequestFromHistory | None]:
    completed = jobs.states[COMPLETED]
    memory, said = jobs.memory_request(), jobs.memory.predict()
    if not completed or memory is None:
        states = ", ".join(f"{n} {state}" for state, n in jobs.states.most_common())
        raise UsageError(f"too little is known of {jobs.name}: {states}")
    time = jobs.time()
    learnt = None
    notes: tuple[str, ...]
    left_out = {
        state: number
        for state, number in jobs.states.items()
        if state not in {COMPLETED, OUT_OF_MEMORY, TIMEOUT}
    }
    # enough of them were sampled, so their peaks are known
    if said is not None and said.runs >= ENOUGH:
        described = HistoryKind(
            label=jobs.name,
            command=(jobs.name,),
            completed=completed,
            left_out=left_out,
        )
        learnt = RequestFromHistory(kind=described, memory=said, time=time)
        notes = history_lines.prediction_notes(learnt)
    else:
        seen = 0 if said is None else said.runs
        basis = f"from {completed} completed jobs, {seen} of them sampled"
        notes = (f"{basis}: the memory is what was requested, and was enough",)
    limit = round_time(time.value)
    request = Request(
        # accounting counts the whole job; the request is per node
        cpus=math.ceil(jobs.cpus / jobs.nodes),
        memory=memory,
        virtual_memory=memory if kind.traits.address_space is not None else None,
        time_limit=min(limit, jobs.time_limit) if time.is_proven else limit,
        headroom=0.0 if said is None else said.margin,
        runs=completed,
        gpus=math.ceil(jobs.gpus / jobs.nodes),
        nodes=jobs.nodes if jobs.nodes > 1 else None,
        ntasks=jobs.nodes if jobs.nodes > 1 else None,
        ntasks_per_node=1 if jobs.nodes > 1 else None,
        notes=(*notes, *_sampling(interval)),
    )
    return request, learnt


def _sampling(interval: Seconds) -> tuple[str, ...]:
    if math.isinf(interval):
        return ("memory is not sampled here: measure a job with weigh run",)
    return (f"sampled every {interval:g} s: peaks in between are missed",)
