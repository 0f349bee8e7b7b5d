"""The state of each task of a shared queue: by who claimed it, else by what is left."""

import os
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import NO_TIME_LEFT, StoreError
from weigh.flow.follow.tasks import (
    LOGS,
    ElementTasks,
    StateOf,
    goes_on,
    judge_by_log,
    lines_of,
)
from weigh.model.element_time import NOT_STARTED
from weigh.model.job import ElementState, Submitted, TaskState
from weigh.model.plan import Plan, Queue
from weigh.model.record import State
from weigh.planning.queue_order import units_of
from weigh.runner import events
from weigh.runner.shared_queue import Claims, Owner, ended_tasks
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.job_script import HOME

_WHY = "no element started it"
_Owners = dict[int, tuple[int, list[Owner]]]  # how often a task was claimed, by whom


def read_pulled(
    job: Submitted,
    plan: Plan,
    scheduler: Scheduler,
    state_of: StateOf,
    *,
    others_run: bool,
) -> Iterator[TaskState]:
    """Yield the state of each task of *job*, whose plan has a queue.

    A task is as its last owner left it, unless it is done. One that nobody has, or
    whose element ended before it, waits while *others_run* or an element of the job
    goes on.
    """
    queue = plan.queue
    if queue is None:
        return
    owners = _owners_of(os.path.join(job.folder, queue.folder), plan, queue)
    reader = _Reader(job, queue, owners, scheduler, state_of)
    reader.others_run = others_run
    for seq in range(1, len(queue.tasks) + 1):
        claims, by = owners.get(seq, (0, []))
        yield msgspec.structs.replace(reader.state(seq, by), claims=claims)


def _owners_of(folder: str, plan: Plan, queue: Queue) -> _Owners:
    """Return the runs that claimed each task, in the order of their claims."""
    claims = Claims(folder)
    try:
        claims.look()
    except StoreError:  # it was removed: what the job did is not known
        return {}
    units = units_of(queue, plan.kinds, max(1, len(plan.elements)))
    return {
        seq: (len(owners), [one for one in owners if one is not None and one.joblog])
        for unit, owners in claims.claimants()
        if unit < len(units)
        for seq in units[unit].tasks
    }


class _Reader:
    """Reads the joblogs of a job's elements, each once.

    ``others_run``: elements of another job go on that pull from the same queue.
    """

    def __init__(
        self,
        job: Submitted,
        queue: Queue,
        owners: _Owners,
        scheduler: Scheduler,
        state_of: StateOf,
    ) -> None:
        self.others_run = False
        self._owners = owners
        self._job = job
        self._queue = queue
        self._folder = os.path.join(job.folder, queue.folder)
        self._ends: dict[str, dict[int, bool]] = {}
        self._events: dict[str, events.Past] = {}
        self._judged: dict[int, ElementState] = {}
        self._tasks: dict[int, dict[int, TaskState]] = {}
        self._scheduler = scheduler
        self._state_of = state_of
        self._going = [n for n in range(job.elements) if goes_on(state_of(n))]

    def state(self, seq: int, owners: Sequence[Owner]) -> TaskState:
        """Return the state of a task with these owners."""
        if not owners:
            return self._free(seq)
        over = [owner for owner in owners if seq in self._of(owner)]
        done = next((owner for owner in over if self._of(owner)[seq]), None)
        if done is not None and done is not owners[-1]:
            return self._task(seq, "COMPLETED", self._number(done) or 0)
        last = owners[-1]
        number = self._number(last)
        if number is None:
            return self._by_hand(seq, last)
        if last not in over:
            if goes_on(self._judge(number)):
                is_running = seq in self._past(last).in_flight
                return self._task(seq, "RUNNING" if is_running else "PENDING", number)
            if self._going or self.others_run:
                return self._free(seq)
        return self._with_earlier(self._details(number)[seq], owners[:-1])

    def _with_earlier(self, task: TaskState, owners: Sequence[Owner]) -> TaskState:
        """Return the state with the most memory that was too little, by any owner."""
        if task.state in {"COMPLETED", "PENDING", "RUNNING"}:
            return task
        numbers = [self._number(owner) for owner in owners]
        before = [self._details(n)[task.seq] for n in numbers if n is not None]
        known = [one for one in (*before, task) if one.short or _ran_out(one)]
        if not known or (most := max(known, key=_held)) is task:
            return task
        return msgspec.structs.replace(
            task,
            short=True,
            peak=most.peak,
            reserved=most.reserved,
            alone=most.alone,
        )

    def _by_hand(self, seq: int, owner: Owner) -> TaskState:
        """Return the state of a task of a run that is no element of the job."""
        good = self._of(owner).get(seq)
        if good is not None:
            return self._task(seq, "COMPLETED" if good else "FAILED")
        if owner.run in self._past(owner).open_runs:
            return self._task(seq, "RUNNING")
        return self._free(seq)

    def _details(self, number: int) -> dict[int, TaskState]:
        """Return the states of the tasks of an element, judged as in other plans."""
        if number not in self._tasks:
            path = self._joblog(number)
            owned = frozenset(
                seq
                for seq, (_, owners) in self._owners.items()
                if any(self._number(owner) == number for owner in owners)
            )
            one = ElementTasks(
                self._job.id,
                number,
                self._queue.tasks,
                self._judge(number),
                path,
                seqs=owned,
            )
            ends = self._ended(path, number)
            ours = {seq: good for seq, good in ends.items() if seq in owned}
            self._tasks[number] = {task.seq: task for task in one.tasks(ours)}
        return self._tasks[number]

    def _free(self, seq: int) -> TaskState:
        """Return the state of a task that nobody has: it waits, or was left."""
        if self._going:
            return self._task(seq, "PENDING", self._going[seq % len(self._going)])
        if self.others_run:
            return self._task(seq, "PENDING")
        states = {self._state_of(n).state for n in range(self._job.elements)}
        for state in ("UNKNOWN", "CANCELLED"):
            if state in states:
                reasons = [self._state_of(n).reason for n in range(self._job.elements)]
                return msgspec.structs.replace(
                    self._task(seq, state), reason=next(filter(None, reasons), None)
                )
        judged = [self._judge(n) for n in range(self._job.elements)]
        for one in judged:
            if one.exit_code == NO_TIME_LEFT and one.state == "INTERRUPTED":
                task = self._task(seq, "INTERRUPTED")
                _, words, figures = (one.reason or "").partition(NOT_STARTED)
                return msgspec.structs.replace(task, reason=words + figures)
        if states == {"FAILED"} and not self._owners:  # before the first task
            reasons = [one.reason for one in judged]
            return msgspec.structs.replace(
                self._task(seq, "FAILED"), reason=next(filter(None, reasons), None)
            )
        return msgspec.structs.replace(self._task(seq, "INTERRUPTED"), reason=_WHY)

    def _task(self, seq: int, state: State, element: int = 0) -> TaskState:
        return TaskState(
            task=self._queue.tasks[seq - 1],
            job=self._job.id,
            element=element,
            seq=seq,
            state=state,
        )

    def _number(self, owner: Owner) -> int | None:
        """Return the element of this job that a run is; None for a run by hand."""
        if owner.element is None:
            return None
        number = owner.element - self._job.first
        return number if 0 <= number < self._job.elements else None

    def _joblog(self, number: int) -> str:
        name = f"tasks_{self._job.first + number}.joblog"
        return os.path.join(self._job.folder, LOGS, name)

    def _of(self, owner: Owner) -> dict[int, bool]:
        number = self._number(owner)
        if number is None:
            return self._ended(os.path.join(self._folder, owner.joblog))
        return self._ended(self._joblog(number), number)

    def _ended(self, joblog: str, number: int | None = None) -> dict[int, bool]:
        is_staged = self._job.staging is not None and number is not None
        if is_staged and not goes_on(self._state_of(number or 0)):
            joblog += HOME  # what was not copied back is not done
        if joblog not in self._ends:
            try:
                self._ends[joblog] = ended_tasks(joblog)
            except OSError:
                self._ends[joblog] = {}
        return self._ends[joblog]

    def _past(self, owner: Owner) -> events.Past:
        path = os.path.join(self._folder, owner.joblog) + events.SUFFIX
        if path not in self._events:
            self._events[path] = events.read_past(lines_of(path), lambda _: False)
        return self._events[path]

    def _judge(self, number: int) -> ElementState:
        """Return the state of an element, judged by its log if it has ended."""
        if number not in self._judged:
            state, job = self._state_of(number), self._job
            if not goes_on(state):
                log = self._scheduler.log_name(
                    job.id, number, is_array=job.elements > 1
                )
                state = judge_by_log(state, os.path.join(job.folder, LOGS, log))
            self._judged[number] = state
        return self._judged[number]


def _ran_out(task: TaskState) -> bool:
    return task.state == "OUT_OF_MEMORY"


def _held(task: TaskState) -> tuple[bool, int, int]:
    """Return how much memory was too little for a task, to compare."""
    return task.alone, task.reserved or 0, task.peak or 0
