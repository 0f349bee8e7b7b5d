"""``weigh request --from`` accounting: learn from a list of jobs, and keep none."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from weigh import config
from weigh.errors import UsageError
from weigh.estimate.history import ENOUGH, Prediction, Replay
from weigh.estimate.history_pool import MARGIN, MOST_SEEN
from weigh.estimate.sampled import Accounts, Seen
from weigh.flow.fit.request import Answer, answer
from weigh.flow.records.imported import kind_of_name, past_accounting
from weigh.model.record import Request
from weigh.model.report import PastJob
from weigh.render import history_lines
from weigh.render.history_lines import Kind, Learnt, PastKind
from weigh.request import COMPLETED, LEAST_MEMORY, round_memory, round_time
from weigh.schedulers import KINDS, accounting, protocol
from weigh.schedulers.command import lines_of, run
from weigh.units import Bytes, Seconds

DAYS = 30
_OUT_OF_MEMORY, _TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_MOST_KINDS = 20  # of which a list is printed
_DOUBLED = 2


class Words(msgspec.Struct, frozen=True):
    """Which jobs: those of a name, of the last days."""

    name: str | None = None
    days: int = DAYS


class _Jobs:
    """The jobs of one name and number of CPUs, in a few numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory = Accounts()
        self.states: Counter[str] = Counter()
        self.longest: Seconds = 0.0
        self.stopped: Seconds = 0.0  # by the time limit
        self.time_limit = self.gpus = self.cpus = 0
        self.requested: Bytes = 0
        self.most: Bytes = 0

    def add(self, job: PastJob, every: Seconds, *, by_addresses: bool) -> None:
        """Learn from one more job, sampled *every* so many seconds."""
        figures = job.accounted
        wall_time = figures.wall_time or 0.0
        self.states[figures.state] += 1
        size = figures.virtual_memory if by_addresses else figures.max_rss
        if figures.state == COMPLETED:
            looks = int(wall_time / every)
            seen = Seen(size or 0, looks, figures.memory_asked, wall_time)
            self.memory.add(seen)
            self.most = max(self.most, size or 0)
            self.longest = max(self.longest, wall_time)
            self.time_limit = max(self.time_limit, figures.time_limit or 0)
        elif figures.state == _OUT_OF_MEMORY:
            self.memory.add_kill(max(size or 0, figures.memory_asked or 0))
        elif figures.state == _TIMEOUT:
            self.stopped = max(self.stopped, wall_time)
        self.cpus = max(self.cpus, figures.cpus or 1)
        self.gpus = max(self.gpus, figures.gpus or 0)
        self.requested = max(self.requested, figures.memory_asked or 0)

    def time(self) -> Prediction:
        """Return the time to request: elapsed times are exact."""
        value = self.longest * (1 + MARGIN)
        is_cut = self.stopped > self.longest
        if is_cut:
            value = self.stopped * _DOUBLED
        is_proven = not is_cut and 0 < self.time_limit < value
        return Prediction(
            value=float(self.time_limit) if is_proven else value,
            risk="low",
            by=MOST_SEEN,
            level=1.0,
            margin=MARGIN,
            runs=self.states[COMPLETED],
            replay=Replay(),
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


def request_from_accounting(
    accounts: str,
    words: Words,
    *,
    form: str | None = None,
    cwd: str,
    env: Mapping[str, str],
) -> Answer | tuple[PastKind, ...]:
    """Work out the request of the user's jobs of a name from accounting's command.

    If the name fits several kinds of jobs, these are returned instead, those first
    whose better request would free most.

    Raises:
        UsageError: there are no such jobs, or too few of them completed.
        SchedulerError: the command is missing or fails.
    """
    kind = next(one for one in KINDS.values() if one.accounts == accounts)
    source = past_accounting(kind)
    user = env.get("USER") or env.get("LOGNAME") or ""
    lines = lines_of(source.past_argv(user, words.days), env=env)
    every = _interval(kind, env)
    groups = _grouped(source.read_past(lines), words, kind, every)
    if not groups:
        named = "" if words.name is None else f" called {words.name!r}"
        raise UsageError(
            f"{accounts} lists no jobs{named} in {words.days} days (--days)"
        )
    if len(groups) > 1:
        found = sorted((_in_short(one) for one in groups), key=_frees, reverse=True)
        return tuple(found[:_MOST_KINDS])
    settings = config.load(cwd, env)
    (jobs,) = groups
    request, learnt = _request(jobs, kind, every)
    return answer(
        request,
        (),
        form=form or kind.name,
        env=env,
        settings=settings,
        history=None if learnt is None else history_lines.document(learnt),
    )


_name_of = lru_cache(maxsize=1 << 16)(kind_of_name)


def _interval(kind: protocol.Kind, env: Mapping[str, str]) -> Seconds:
    """Query how often this site samples; if it does not answer, the usual."""
    every = accounting.sample_interval(kind.name, run=run, env=env)
    if every is None:
        return past_accounting(kind).SAMPLED_EVERY
    return every or math.inf  # 0: only at the end


def _grouped(
    jobs: Iterable[PastJob | None],
    words: Words,
    kind: protocol.Kind,
    every: Seconds,
) -> list[_Jobs]:
    by_addresses = kind.traits.address_space is not None
    groups: dict[tuple[str, int | None], _Jobs] = {}
    for job in jobs:
        if job is None or not job.accounted.wall_time:
            continue
        name = _name_of(job.name)
        if words.name is not None and not (
            fnmatchcase(job.name, words.name) or name == words.name
        ):
            continue
        key = name, job.accounted.cpus
        if key not in groups:
            groups[key] = _Jobs(name)
        groups[key].add(job, every, by_addresses=by_addresses)
    return list(groups.values())


def _in_short(jobs: _Jobs) -> PastKind:
    return PastKind(
        name=jobs.name,
        jobs=jobs.states.total(),
        cpus=jobs.cpus,
        requested=jobs.requested or None,
        most=jobs.most or None,
        memory=jobs.memory_request(),
        time=round_time(jobs.time().value) if jobs.longest else None,
        out_of_memory=jobs.states[_OUT_OF_MEMORY],
    )


def _frees(kind: PastKind) -> float:
    return kind.jobs * max(0, (kind.requested or 0) - (kind.memory or math.inf))


def _request(
    jobs: _Jobs, kind: protocol.Kind, every: Seconds
) -> tuple[Request, Learnt | None]:
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
        if state not in {COMPLETED, _OUT_OF_MEMORY, _TIMEOUT}
    }
    if said is not None and said.runs >= ENOUGH:
        described = Kind(
            keys=("label",),
            label=jobs.name,
            command=(jobs.name,),
            completed=completed,
            left_out=left_out,
        )
        learnt = Learnt(kind=described, memory=said, time=time)
        notes = history_lines.notes(learnt)
    else:
        seen = 0 if said is None else said.runs
        basis = f"from {completed} completed jobs, {seen} of them sampled"
        notes = (f"{basis}: the memory is what was requested, and was enough",)
    limit = round_time(time.value)
    request = Request(
        cpus=jobs.cpus,
        memory=memory,
        virtual_memory=memory if kind.traits.address_space is not None else None,
        time_limit=min(limit, jobs.time_limit) if time.is_proven else limit,
        headroom=0.0 if said is None else said.margin,
        runs=completed,
        gpus=jobs.gpus,
        notes=(*notes, *_sampling(every)),
    )
    return request, learnt


def _sampling(every: Seconds) -> tuple[str, ...]:
    if math.isinf(every):
        return ("memory is not sampled here: measure a job with weigh run",)
    return (f"sampled every {every:g} s: peaks in between are missed",)
