"""The only place that runs a scheduler's commands."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import FormatError, SchedulerError, UsageError
from weigh.model.complexes import Complexes
from weigh.model.job import (
    REST,
    STUCK,
    Elements,
    ElementState,
    JobScript,
    States,
    Submitted,
    Understood,
)
from weigh.scheduler import poll
from weigh.scheduler.backend import Argv, Backend
from weigh.scheduler.command import Ran, Runner
from weigh.scheduler.poll import Poll
from weigh.scheduler.scheduler import Snapshot
from weigh.units import DAY, Seconds

_TO_SUBMIT: Seconds = 120.0
_TO_ASK: Seconds = 30.0
_TOLD = 128 + 15
_OLD: Seconds = 30 * DAY  # what a scheduler says of older jobs is of no use


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """How a scheduler is reached: what runs its commands, for whom, how often.

    ``root`` is the store, where its answers are kept; ``interval`` is seconds.
    """

    run: Runner
    env: Mapping[str, str]
    root: str
    user: str
    clock: Callable[[], Seconds]
    interval: Seconds = poll.INTERVAL


class Client:
    """One scheduler reached by its commands."""

    def __init__(self, backend: Backend, way: Reach) -> None:
        self.name = backend.NAME
        self._backend = backend
        self._way = way

    def render(self, script: JobScript) -> str:
        """Write the job script."""
        return self._backend.render(script)

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Name the log of an element."""
        return self._backend.log_name(job, element, is_array=is_array)

    def submit(self, script: str, *, cwd: str) -> str:
        """Submit the script; a second try is the user's, for it might be there twice.

        Raises:
            SchedulerError: it was refused, or nobody knows.
        """
        argv = self._backend.submit_argv(script)
        try:
            ran = self._run(argv, timeout=_TO_SUBMIT, cwd=cwd)
        except SchedulerError as error:
            missing = "not on this machine" in str(error)
            way_out = self._backend.LOGIN_HINT if missing else self._look_first()
            raise SchedulerError(f"{error} ({way_out})") from error
        if ran.code != 0:
            raise SchedulerError(f"{argv[0]} refused the job: {ran.complaint()}")
        job = self._backend.parse_submitted(ran.out)
        if job is None:
            raise SchedulerError(
                f"{argv[0]} gave no job id but {ran.out[:80]!r} ({self._look_first()})"
            )
        poll.forget(self._way.root, self.name)
        return job

    def foresee(self, script: str, *, cwd: str) -> Seconds | None:
        """Say when the script would start, None where it is not foreseen.

        Raises:
            UsageError: it would wait for ever.
        """
        argv = self._backend.verify_argv(script)
        try:
            ran = self._run(argv, timeout=min(_TO_ASK, _TO_SUBMIT), cwd=cwd)
        except SchedulerError:
            return None  # the submission itself will say what is wrong
        said = ran.out + ran.err
        doubt = self._backend.parse_doubt(said)
        if doubt is not None:
            raise UsageError(
                f"the job would never run: {doubt} (--no-checks submits it anyway)"
            )
        return self._backend.parse_start(said)

    def understood(self, job: str) -> Understood | None:
        """Say what it took a job to ask for."""
        return self._backend.parse_understood(
            self._told(self._backend.understood_argv(job))
        )

    def states(self, jobs: Sequence[Submitted], *, fresh: bool = False) -> Snapshot:
        """Say how jobs stand: from what was said a moment ago, or asked anew."""
        last = poll.load(self._way.root, self.name)
        jobs = [job for job in jobs if self._is_of_use(job, last)]
        is_open = [job for job in jobs if not _is_over(job, last.states)]
        if is_open and (fresh or last.is_due(self._way.clock(), self._way.interval)):
            last = self._ask(last, jobs, is_open)
            poll.save(self._way.root, self.name, last)
        return Snapshot(last.states, last.asked, last.trouble)

    def _is_of_use(self, job: Submitted, last: Poll) -> bool:
        """Leave out what is old, unless it was there when the scheduler was asked."""
        if self._way.clock() - job.submitted < _OLD:
            return True
        known = last.states.get(job.id, {}).values()
        return any(not state.is_final for state in known)

    def gpu_types(self) -> tuple[str, ...]:
        """Give the words it has for GPUs; none where it does not tell."""
        argv = self._backend.gpu_types_argv()
        return () if argv is None else self._backend.parse_gpu_types(self._told(argv))

    def cpus_beside_gpus(self, complexes: Complexes | None = None) -> str | None:
        """Name what to ask CPUs by beside GPUs; None where slots do no harm."""
        argv = self._backend.slots_argv()
        if argv is None:
            return None
        return self._backend.parse_slots(self._told(argv), complexes)

    def array_limit(self, elements: int) -> int | None:
        """Say how many elements an array may have; None where nobody knows."""
        argv = self._backend.array_limit_argv(elements)
        if argv is None:
            return None
        return self._backend.parse_array_limit(self._told(argv))

    def why(self, job: Submitted) -> str | None:
        """Say why a job is in error."""
        argv = self._backend.why_argv(job.id)
        return None if argv is None else self._backend.parse_why(self._told(argv))

    def cancel(self, job: Submitted, elements: Sequence[int] | None) -> None:
        """End a job, or these elements of it.

        Raises:
            SchedulerError: it did not answer, or refused.
        """
        argv = self._backend.cancel_argv(job, elements)
        ran = self._run(argv, timeout=_TO_ASK)
        told = tuple(range(job.elements) if elements is None else elements)
        poll.forget(self._way.root, self.name, cancelled=(job.id, told))
        if ran.code != 0:
            raise SchedulerError(f"{argv[0]}: {ran.complaint()}")

    def _ask(
        self, last: Poll, jobs: Sequence[Submitted], is_open: Sequence[Submitted]
    ) -> Poll:
        """Ask about all jobs, and accounting about what is no longer there."""
        now = self._way.clock()
        argv = self._backend.queue_argv(self._way.user)
        try:
            ran = self._run(argv, timeout=_TO_ASK)
            if ran.code != 0:
                raise SchedulerError(f"{argv[0]}: {ran.complaint()}")  # noqa: TRY301 - one way out
            listed = self._backend.parse_queue(ran.out)
        except (SchedulerError, FormatError) as error:
            return msgspec.structs.replace(
                last, tried=now, failures=last.failures + 1, trouble=str(error)
            )
        known = {job.id: last.states.get(job.id, {}) for job in jobs}
        gone = [job.id for job in is_open if _is_gone(job, known[job.id], listed)]
        ended = self._ended(gone)
        states = {
            job.id: _merged(
                job,
                known[job.id],
                listed.get(job.id, {}),
                ended.get(job.id, {}),
                last.cancelled.get(job.id, ()),
            )
            for job in jobs
        }
        told = {job.id: last.cancelled.get(job.id, ()) for job in jobs}
        cancelled = {job: elements for job, elements in told.items() if elements}
        return Poll(asked=now, tried=now, states=states, cancelled=cancelled)

    def _ended(self, jobs: Sequence[str]) -> States:
        """Ask accounting; where there is none, or it is late, nothing is known."""
        states: States = {}
        for argv in self._backend.ended_argvs(jobs):
            try:
                ran = self._run(argv, timeout=_TO_ASK)
            except SchedulerError:
                return states
            for job, elements in self._backend.parse_ended(ran.out).items():
                states.setdefault(job, {}).update(elements)
        return states

    def _told(self, argv: Argv) -> str:
        """Give what a command prints that is good to know, and nothing more."""
        try:
            return self._run(argv, timeout=_TO_ASK).out
        except SchedulerError:
            return ""

    def _run(self, argv: Argv, *, timeout: Seconds, cwd: str | None = None) -> Ran:
        return self._way.run(argv, cwd=cwd, env=self._way.env, timeout=timeout)

    def _look_first(self) -> str:
        listing = self._backend.queue_argv(self._way.user)[0]
        return f"look whether the job is there before you try again: {listing}"


def _is_over(job: Submitted, states: States) -> bool:
    elements = states.get(job.id, {})
    return sum(map(_has_ended, elements.values())) >= job.elements


def _has_ended(state: ElementState) -> bool:
    """Say whether nothing will change: an error state may be cleared, or deleted."""
    return state.is_final and state.reason != STUCK


def _is_gone(job: Submitted, known: Elements, listed: States) -> bool:
    """Say whether the queue no longer lists an element that has not ended yet."""
    there = listed.get(job.id, {})
    return any(
        number not in there and not (number in known and _has_ended(known[number]))
        for number in range(job.elements)
    )


def _merged(
    job: Submitted,
    known: Elements,
    listed: Elements,
    ended: Elements,
    cancelled: Sequence[int],
) -> Elements:
    """Put together what was known, what accounting says, and what is in the queue.

    An element that is neither in the queue nor in accounting has ended nobody knows
    how: it is absent, which is not failed. One that we told to end was cancelled.
    """
    over = {number: state for number, state in known.items() if _has_ended(state)}
    past = {number: state for number, state in ended.items() if state.is_final}
    for number in cancelled:
        if number not in over:
            past[number] = _cancelled(past.get(number))
    rest = listed.get(REST) or ended.get(REST)
    others = {} if rest is None else dict.fromkeys(range(job.elements), rest)
    merged = others | over | past | listed
    return {n: state for n, state in merged.items() if 0 <= n < job.elements}


def _cancelled(state: ElementState | None) -> ElementState:
    """Take an end by a signal for the one we sent."""
    if state is None:
        return ElementState(state="CANCELLED")
    if state.state == "FAILED" and (state.signal or state.exit_code == _TOLD):
        return msgspec.structs.replace(state, state="CANCELLED", reason=None)
    return state
