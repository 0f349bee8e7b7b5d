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
    lines_of_file,
)
from weigh.model.element_time import NOT_STARTED
from weigh.model.job import ElementState, SubmittedJob, TaskState
from weigh.model.plan import Plan, PlannedQueue
from weigh.model.record import State
from weigh.planning.queue_order import units_of
from weigh.runner import events
from weigh.runner.shared_queue import QueueClaims, QueueOwner, ended_tasks
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.job_script import HOME

_WHY = "no element started it"
_Owners = dict[
    int, tuple[int, list[QueueOwner]]
]  # how often a task was claimed, by whom


def read_pulled(
    submitted_job: SubmittedJob,
    plan: Plan,
    scheduler: Scheduler,
    state_of: StateOf,
    *,
    others_run: bool,
) -> Iterator[TaskState]:
    """Yield the state of each task of *submitted_job*, whose plan has a queue.

    A task is as its last owner left it, unless it is done. One that nobody has, or
    whose element ended before it, waits while *others_run* or an element of the job
    goes on.
    """
    queue = plan.queue
    if queue is None:
        return
    owners = _owners_of(os.path.join(submitted_job.folder, queue.folder), plan, queue)
    reader = _PulledTasksReader(submitted_job, queue, owners, scheduler, state_of)
    reader.others_run = others_run
    for seq in range(1, len(queue.tasks) + 1):
        claims, by = owners.get(seq, (0, []))
        yield msgspec.structs.replace(reader.state(seq, by), claims=claims)


def _owners_of(folder: str, plan: Plan, queue: PlannedQueue) -> _Owners:
    """Return the runs that claimed each task, in the order of their claims."""
    claims = QueueClaims(folder)
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


class _PulledTasksReader:
    """Reads the joblogs of a job's elements, each once.

    ``others_run``: elements of another job go on that pull from the same queue.
    """

    def __init__(
        self,
        submitted_job: SubmittedJob,
        queue: PlannedQueue,
        owners: _Owners,
        scheduler: Scheduler,
        state_of: StateOf,
    ) -> None:
        self.others_run = False
        self._owners = owners
        self._job = submitted_job
        self._queue = queue
        self._folder = os.path.join(submitted_job.folder, queue.folder)
        # by joblog; True: succeeded
        self._ends: dict[str, dict[int, bool]] = {}
        self._events: dict[str, events.PastRuns] = {}
        self._judged: dict[int, ElementState] = {}
        self._tasks: dict[int, dict[int, TaskState]] = {}
        self._scheduler = scheduler
        self._state_of = state_of
        # elements that may still take a free task
        self._going = [n for n in range(submitted_job.elements) if goes_on(state_of(n))]

    def state(self, task_number: int, owners: Sequence[QueueOwner]) -> TaskState:
        """Return the state of a task with these owners."""
        if not owners:
            return self._free(task_number)
        over = [owner for owner in owners if task_number in self._of(owner)]
        # a task may have been claimed again although it had ended: done is done
        done = next((owner for owner in over if self._of(owner)[task_number]), None)
        if done is not None and done is not owners[-1]:
            return self._task(task_number, "COMPLETED", self._number(done) or 0)
        last = owners[-1]
        number = self._number(last)
        if number is None:
            return self._by_hand(task_number, last)
        if last not in over:
            if goes_on(self._judge(number)):
                # claimed but not begun: it waits for a slot of its element
                is_running = task_number in self._past(last).in_flight
                return self._task(
                    task_number, "RUNNING" if is_running else "PENDING", number
                )
            # its element is gone: another one will claim the task again
            if self._going or self.others_run:
                return self._free(task_number)
        return self._with_earlier(self._details(number)[task_number], owners[:-1])

    def _with_earlier(
        self, task_state: TaskState, owners: Sequence[QueueOwner]
    ) -> TaskState:
        """Return the state with the most memory that was too little, by any owner."""
        if task_state.state in {"COMPLETED", "PENDING", "RUNNING"}:
            return task_state
        numbers = [self._number(owner) for owner in owners]
        before = [self._details(n)[task_state.seq] for n in numbers if n is not None]
        # the next round starts from the largest amount that was too little
        known = [one for one in (*before, task_state) if one.short or _ran_out(one)]
        if not known or (most := max(known, key=_memory_shortage_order)) is task_state:
            return task_state
        return msgspec.structs.replace(
            task_state,
            short=True,
            peak=most.peak,
            reserved=most.reserved,
            alone=most.alone,
        )

    def _by_hand(self, task_number: int, owner: QueueOwner) -> TaskState:
        """Return the state of a task of a run that is no element of the job."""
        good = self._of(owner).get(task_number)
        if good is not None:
            return self._task(task_number, "COMPLETED" if good else "FAILED")
        if owner.run in self._past(owner).open_runs:
            return self._task(task_number, "RUNNING")
        return self._free(task_number)

    def _details(self, number: int) -> dict[int, TaskState]:
        """Return the states of the tasks of an element, judged as in other plans."""
        if number not in self._tasks:
            path = self._joblog(number)
            # ``numbers`` are those of the whole queue, the element's tasks what it
            # claimed
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

    def _free(self, task_number: int) -> TaskState:
        """Return the state of a task that nobody has: it waits, or was left."""
        if self._going:
            # any of them may take it: spread, so that each shows tasks that wait
            return self._task(
                task_number, "PENDING", self._going[task_number % len(self._going)]
            )
        if self.others_run:
            return self._task(task_number, "PENDING")
        states = {self._state_of(n).state for n in range(self._job.elements)}
        # what the scheduler reports of the elements explains free tasks best
        for state in ("UNKNOWN", "CANCELLED"):
            if state in states:
                reasons = [self._state_of(n).reason for n in range(self._job.elements)]
                return msgspec.structs.replace(
                    self._task(task_number, state),
                    reason=next(filter(None, reasons), None),
                )
        judged = [self._judge(n) for n in range(self._job.elements)]
        for one in judged:
            # the element left it on purpose: its time limit was too near
            if one.exit_code == NO_TIME_LEFT and one.state == "INTERRUPTED":
                task = self._task(task_number, "INTERRUPTED")
                _, words, figures = (one.reason or "").partition(NOT_STARTED)
                return msgspec.structs.replace(task, reason=words + figures)
        if states == {"FAILED"} and not self._owners:  # before the first task
            reasons = [one.reason for one in judged]
            return msgspec.structs.replace(
                self._task(task_number, "FAILED"),
                reason=next(filter(None, reasons), None),
            )
        return msgspec.structs.replace(
            self._task(task_number, "INTERRUPTED"), reason=_WHY
        )

    def _task(self, task_number: int, state: State, element: int = 0) -> TaskState:
        return TaskState(
            task=self._queue.tasks[task_number - 1],
            job=self._job.id,
            element=element,
            seq=task_number,
            state=state,
        )

    def _number(self, owner: QueueOwner) -> int | None:
        """Return the element of this job that a run is; None for a run by hand."""
        if owner.element is None:
            return None
        number = owner.element - self._job.first
        return number if 0 <= number < self._job.elements else None

    def _joblog(self, number: int) -> str:
        name = f"tasks_{self._job.first + number}.joblog"
        return os.path.join(self._job.folder, LOGS, name)

    def _of(self, owner: QueueOwner) -> dict[int, bool]:
        number = self._number(owner)
        if number is None:
            return self._ended(os.path.join(self._folder, owner.joblog))
        return self._ended(self._joblog(number), number)

    def _ended(self, joblog_path: str, number: int | None = None) -> dict[int, bool]:
        is_staged = self._job.staging is not None and number is not None
        if is_staged and not goes_on(self._state_of(number or 0)):
            joblog_path += HOME  # what was not copied back is not done
        if joblog_path not in self._ends:
            try:
                self._ends[joblog_path] = ended_tasks(joblog_path)
            except OSError:
                self._ends[joblog_path] = {}
        return self._ends[joblog_path]

    def _past(self, owner: QueueOwner) -> events.PastRuns:
        path = os.path.join(self._folder, owner.joblog) + events.SUFFIX
        if path not in self._events:
            self._events[path] = events.read_past_events(
                lines_of_file(path), lambda _: False
            )
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


def _ran_out(task_state: TaskState) -> bool:
    return task_state.state == "OUT_OF_MEMORY"


def _memory_shortage_order(task_state: TaskState) -> tuple[bool, int, int]:
    """Return how much memory was too little for a task, to compare."""
    return task_state.alone, task_state.reserved or 0, task_state.peak or 0
