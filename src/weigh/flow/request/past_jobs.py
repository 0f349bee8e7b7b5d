"""``weigh request --from`` accounting: learn from a list of jobs, and keep none."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from weigh.errors import UsageError
from weigh.estimate.history import (
    ENOUGH,
    MOST_SEEN,
    HistoryPrediction,
    HistoryReplay,
    SampledHistory,
    SampledMemory,
)
from weigh.flow.here import Here
from weigh.flow.request.request import RequestAnswer, request_answer_of
from weigh.flow.site.schedulers import current_user
from weigh.model.record import Request
from weigh.model.report import PastJob
from weigh.render import history_lines
from weigh.render.history_lines import HistoryKind, PastKind, RequestFromHistory
from weigh.request import COMPLETED, LEAST_MEMORY, round_memory, round_time
from weigh.schedulers import KINDS, accounting
from weigh.schedulers.command import lines_of_command, run_scheduler_command
from weigh.schedulers.kind import PastAccounting, SchedulerKind
from weigh.units import DAY, Bytes, Seconds, count_with_noun

DAYS = 30  # days
_MOST_NAMES = 4  # names of jobs that are offered
_MOST_KINDS = 20  # of which a list is printed
# numbers of tasks and dates: align_12, run-2026
_NUMBERS = re.compile(r"[_.-]*\d+")
_DAYS_FORM = re.compile(r"([1-9]\d{0,5})d")


class JobsOfKind:
    """Jobs of one kind, in a few numbers: enough to work out their request."""

    def __init__(self, kind_name: str) -> None:
        self.name = kind_name
        self.memory = SampledHistory()
        self.states: Counter[str] = Counter()
        self.longest: Seconds = 0.0
        self.stopped: Seconds = 0.0  # by the time limit
        self.time_limit = self.gpus = self.cpus = 0
        self.nodes = 1
        self.requested: Bytes = 0
        self.most: Bytes = 0

    def add(self, past_job: PastJob, interval: Seconds, *, by_addresses: bool) -> None:
        """Learn from one more job, sampled *interval* so many seconds."""
        figures = past_job.accounted
        wall_time = figures.wall_time or 0.0
        self.states[figures.state] += 1
        size = figures.virtual_memory if by_addresses else figures.max_rss
        if figures.state == COMPLETED:
            # samples that fit into the job: few of them miss a short peak
            looks = int(wall_time / interval)
            self.memory.add(
                SampledMemory(size or 0, looks, figures.memory_asked, wall_time)
            )
            self.most = max(self.most, size or 0)
            self.longest = max(self.longest, wall_time)
            self.time_limit = max(self.time_limit, figures.time_limit or 0)
        elif figures.state == OUT_OF_MEMORY:
            # its last sample or its limit, whichever is more, was too small
            self.memory.add_kill(max(size or 0, figures.memory_asked or 0))
        elif figures.state == TIMEOUT:
            self.stopped = max(self.stopped, wall_time)
        self.cpus = max(self.cpus, figures.cpus or 1)
        self.nodes = max(self.nodes, figures.nodes or 1)
        self.requested = max(self.requested, figures.memory_asked or 0)
        self.gpus = max(self.gpus, figures.gpus or 0)

    def time(self) -> HistoryPrediction:
        """Return the time to request: elapsed times are exact."""
        value = self.longest * (1 + _TIME_MARGIN)
        # jobs that were stopped earlier than others completed are outliers or had a
        # shorter limit
        is_cut = self.stopped > self.longest
        if is_cut:
            value = self.stopped * _DOUBLED
        # all completed within a limit below the value: more than it was never needed
        is_proven = not is_cut and 0 < self.time_limit < value
        return HistoryPrediction(
            value=float(self.time_limit) if is_proven else value,
            risk="low",
            by=MOST_SEEN,
            margin=_TIME_MARGIN,
            runs=self.states[COMPLETED],
            replay=HistoryReplay(),
            after_kill=value if is_cut else None,
            is_proven=is_proven,
        )

    def memory_request(self) -> Bytes | None:
        """Return the memory to request in bytes, rounded; None if nothing is known."""
        said = self.memory.predict()
        proven = self.memory.proven
        if said is None or said.runs < ENOUGH:
            return None if proven is None else round(proven)
        rounded = max(LEAST_MEMORY, round_memory(said.value))
        return rounded if proven is None else min(rounded, round(proven))


class PastJobsChoice(msgspec.Struct, frozen=True):
    """Which jobs: those that *accounts* lists, of a name, of the last days."""

    accounts: str
    name: str | None = None
    days: int = DAYS


def _past_jobs_choice(source: str) -> PastJobsChoice:
    """Read ``sacct``, ``sacct:NAME``, ``sacct:7d`` or ``sacct:NAME,7d``."""
    accounts, _, chosen = source.partition(":")
    name, comma, last = chosen.rpartition(",")
    days = _DAYS_FORM.fullmatch(last)
    if days is None:
        name = f"{name}{comma}{last}"
    return PastJobsChoice(accounts, name or None, int(days[1]) if days else DAYS)


def request_from_accounting(
    here: Here, source: str, *, form: str | None = None
) -> RequestAnswer | tuple[PastKind, ...]:
    """Work out the request of the user's jobs of a name from accounting's command.

    *source* is the command, with the name and the days to look back on:
    ``sacct:align,7d``. If the name fits several kinds of jobs, these are returned
    instead, those first whose better request would free most.

    Raises:
        UsageError: there are no such jobs, or too few of them completed.
        SchedulerError: the command is missing or fails.
    """
    choice = _past_jobs_choice(source)
    kind = next(one for one in KINDS.values() if one.accounts == choice.accounts)
    past = _past_accounting(kind)
    user = here.env.get("USER") or current_user()  # cron and containers set none
    argv = past.past_argv(user, choice.days * DAY)
    lines = lines_of_command(argv, env=here.env)
    every = accounting.sample_interval(
        kind.name, run=run_scheduler_command, env=here.env
    )
    if every is None:  # it does not answer
        every = past.SAMPLED_EVERY
    every = every or math.inf  # 0: only at the end
    # filled while the list is read, to be offered where no job has the name
    others: set[str] = set()
    groups = _grouped(past.read_past(lines), choice.name, kind, every, others)
    if not groups:
        named = "" if choice.name is None else f" called {choice.name!r}"
        more = "".join(f", {name!r}" for name in sorted(others)[:_MOST_NAMES])
        there = f"; there are {more[2:]}" if others else ""
        raise UsageError(
            f"{choice.accounts} lists no jobs{named} in {choice.days} days{there}"
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
@lru_cache(maxsize=1 << 16)
def kind_of_name(name: str) -> str:
    """Return the name that repeated jobs have in common: align_12 and align_7."""
    return _NUMBERS.sub("", " ".join(name.split()))


def _past_accounting(kind: SchedulerKind) -> PastAccounting:
    accounts = kind.accounting
    if isinstance(accounts, PastAccounting):
        return accounts
    raise UsageError(f"{kind.accounts} is read for single jobs only")


def _grouped(
    jobs: Iterable[PastJob],
    wanted_name: str | None,
    kind: SchedulerKind,
    interval: Seconds,
    others: set[str],
) -> list[JobsOfKind]:
    """Return the jobs by their kind; add the names of those not meant to *others*."""
    # Grid Engine's memory is address space, which is no figure of use
    by_addresses = kind.traits.address_space is not None
    groups: dict[tuple[str, int | None, int | None], JobsOfKind] = {}
    for job in jobs:
        # a job that never ran; one of 0 s did, because clocks count whole seconds
        if job.accounted.wall_time is None:
            continue
        name = kind_of_name(job.name)
        # the pattern, or the name as listed in the table of kinds without its numbers
        if wanted_name is not None and not (
            fnmatchcase(job.name, wanted_name) or name == wanted_name
        ):
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
    if memory is None:
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
        jobs_seen = count_with_noun(completed, "completed job")
        basis = f"from {jobs_seen}, {seen} of them sampled"
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


OUT_OF_MEMORY, TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_DOUBLED = 2
# less than for memory: elapsed times are not sampled
_TIME_MARGIN = 0.1
