"""The state of each task of a job: from what its history shows, else its element.

A task of a shared queue is as its last owner left it, or waits for one.
"""

import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from weigh.errors import NO_TIME_LEFT, SIGNAL_BASE
from weigh.flow.follow.task_history import (
    JobHistory,
    JoblogHistory,
    RecordedAttempt,
    tail_of,
)
from weigh.model.element_time import GRACE, NOT_STARTED
from weigh.model.job import ACTIVE, STEP_OUT_OF_MEMORY, ElementState, TaskState
from weigh.model.plan import Plan, PlannedQueue
from weigh.model.record import State
from weigh.runner import events
from weigh.runner.shared_queue import QueueOwner
from weigh.schedulers import KINDS
from weigh.schedulers.job_script import AGAIN, ENDED, NEAR
from weigh.schedulers.reachable import Scheduler
from weigh.units import Seconds
from weigh.why_run_ended import failure_line, failure_lines

# lines of weigh on the steps of a task
_OF_STAGES = ('weigh: step "', "weigh: go on with: ")
_TERMINATED = SIGNAL_BASE + 15
# exit codes of weigh exec after a scheduler's warning signal: USR1, USR2, XCPU
# (numbers of Linux, where jobs run: a report may be read elsewhere)
_WARNED = frozenset({SIGNAL_BASE + 10, SIGNAL_BASE + 12, SIGNAL_BASE + 24})
_EXIT = re.compile(f"^{ENDED} ([0-9]{{1,3}})$", re.MULTILINE)
# KILL and TERM: what schedulers, nodes and people end processes with
_ENDERS = frozenset({9, 15})
_SHELL_ENDERS = frozenset({SIGNAL_BASE + 9, SIGNAL_BASE + 15})
_KILL, _SHELL_KILL = 9, SIGNAL_BASE + 9
# of an element: then its end is also why a task in it was killed
_ENDED_FROM_OUTSIDE: frozenset[State] = frozenset(
    {"CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "UNKNOWN"}
)
_NOT_OVER: frozenset[State] = frozenset({"COMPLETED", "PENDING", "RUNNING"})
_STATES: dict[str, State] = {word: word for word in get_args(State)}
_UNCLAIMED = "no element started it"


def read_tasks(
    history: JobHistory,
    plan: Plan,
    scheduler: Scheduler,
    element_states: Sequence[ElementState],
    *,
    others_run: bool = False,
) -> Iterator[TaskState]:
    """Yield the state of each task of a job.

    A task of a queue that nobody has, or whose element ended before it, waits while
    *others_run* or an element of the job goes on.
    """
    submitted_job = history.job
    elements = _JobElements(history, scheduler, element_states)
    if plan.queue is not None:
        yield from _PulledTasks(elements, plan, plan.queue, others_run=others_run).all()
        return
    last = submitted_job.first + submitted_job.elements
    for number, planned in enumerate(plan.elements[submitted_job.first : last]):
        state, run = element_states[number], history.element(number)
        # no task runs any more: what counts is what was copied back
        is_over = len(run.ends) == len(planned.tasks) or not goes_on(state)
        is_staged = submitted_job.staging is not None and is_over
        # a task whose results were not copied back is not done
        ends = run.ends_at_home if is_staged else run.ends
        # where all tasks have ended the log adds nothing
        if len(ends) < len(planned.tasks):
            state = elements.judged(number)
        tasks = ElementTasks(
            submitted_job.id,
            number,
            planned.tasks,
            state,
            run,
            on_the_way=is_staged,
        )
        yield from tasks.tasks(ends)


class _JobElements:
    """The elements of a job: their history, and their states judged by their logs."""

    def __init__(
        self,
        history: JobHistory,
        scheduler: Scheduler,
        element_states: Sequence[ElementState],
    ) -> None:
        self.history, self.states = history, element_states
        self._scheduler = scheduler
        self._judged: dict[int, ElementState] = {}

    def judged(self, number: int) -> ElementState:
        """Return the state of an element, judged by its log if it has ended."""
        if number not in self._judged:
            state = self.states[number]
            if not goes_on(state):
                state = judge_by_log(state, self.history.log(self._scheduler, number))
            self._judged[number] = state
        return self._judged[number]


def judge_by_log(element_state: ElementState, log: str) -> ElementState:
    """Return the state of an element, made more precise by the end of its log.

    weigh exec ends the tasks itself before the time limit, and the scheduler only sees
    that weigh exec exited.
    """
    if element_state.reason:  # where no element began, what its script printed last
        reason = _of_shell(element_state.reason)
        element_state = replace(element_state, reason=reason)
    words = tail_of(log)
    messages = [kind.backend.MESSAGES for kind in KINDS.values()]
    # the scheduler writes this line itself, so it is surer than an exit code
    if element_state.state in {"FAILED", "UNKNOWN"} and any(
        one.over_memory.search(words) for one in messages if one.over_memory
    ):
        return replace(element_state, state="OUT_OF_MEMORY", reason="killed for memory")
    exits = list(_EXIT.finditer(words))  # the scheduler may print something after it
    if element_state.state == "UNKNOWN":
        for one in messages:
            by = list(one.ended.finditer(words)) if one.ended else []
            # an exit line after it would be of a later attempt, which counts
            if by and (not exits or exits[-1].end() < by[-1].start()):
                word = one.states.get(by[-1][1] or "", "CANCELLED")
                return replace(element_state, state=word, reason=None)
    # AGAIN: the job was requeued, so its end is still to come
    if not exits or int(exits[-1][1]) == AGAIN:
        return element_state
    before = words[: exits[-1].start()]
    if (
        element_state.is_final
        and element_state.state != "FAILED"
        and NEAR not in before
    ):
        return element_state
    return _ended_element_state(element_state, int(exits[-1][1]), before)


def _ended_element_state(
    element_state: ElementState, code: int, before: str
) -> ElementState:
    """Return the state of an element by its exit code and the log before it."""
    is_signalled = code == _TERMINATED or code in _WARNED
    state: State = "FAILED"
    if is_signalled and NEAR in before:
        state, reason = "TIMEOUT", "stopped before its time limit"
    elif code == 0:
        state, reason = "COMPLETED", None
    elif is_signalled:
        state, reason = "INTERRUPTED", "stopped by a signal"
    else:
        last = failure_line(before)
        for title in ("weigh: ", "stopped "):
            last = last.removeprefix(title).strip()
        reason = _of_shell(last) or element_state.reason
        if code == NO_TIME_LEFT and NOT_STARTED in last:
            state, reason = "INTERRUPTED", last
    return replace(element_state, state=state, reason=reason, exit_code=code)


def last_lines_of_output(path: str) -> tuple[str, ...]:
    """Return at most three lines of a failed task's output on why it failed.

    The output of a step explains a failure. The lines that weigh adds on steps do not:
    they count only if there is no other line.
    """
    lines = tail_of(path).splitlines()
    others = [line for line in lines if not line.lstrip().startswith(_OF_STAGES)]
    found = failure_lines("\n".join(others)) or failure_lines("\n".join(lines))
    return tuple(filter(None, map(_of_shell, found)))


def _of_shell(line: str) -> str:
    """Shorten what a shell prints on its script: the folder, and the command killed.

    Lists show the beginning of a reason; that was only the path.
    """
    line = re.sub(r"^/\S*/([^/\s:]+: line \d+: )", r"\1", line)
    return re.sub(r"^(\S+: line \d+: ) *\d+ ([A-Z][a-z ]+\w)  .*", r"\1\2", line)


class ElementTasks(msgspec.Struct, frozen=True, dict=True):
    """One element of a job, the numbers of its tasks, its state and its history."""

    job: str
    number: int
    """Of the element in its job, from 0."""
    numbers: tuple[int, ...]
    """In the plan; their places, from 1, are the ``seq`` of joblog and events."""
    state: ElementState
    history: JoblogHistory
    seqs: frozenset[int] | None = None
    """Only these are its tasks, if given: the others of a queue have other elements."""
    on_the_way: bool = False
    """No task runs any more, and the results are being staged out."""

    def tasks(self, ends: Mapping[int, bool]) -> Iterator[TaskState]:
        """Yield the states of its tasks; *ends* maps ended tasks to success."""
        short = frozenset[int]()
        # such a task may have exited with 0
        if self.state.reason == STEP_OUT_OF_MEMORY or self._hides_a_kill(ends):
            short = self._short_of_memory(ends)
        for seq, task in enumerate(self.numbers, start=1):
            if self.seqs is not None and seq not in self.seqs:
                continue
            if seq not in ends:
                yield self._unended(seq)
            elif seq in short:
                output = next(reversed(self.history.outputs(task)), None)
                reason = STEP_OUT_OF_MEMORY
                yield self._task(seq, "OUT_OF_MEMORY", reason=reason, output=output)
            elif ends[seq]:
                yield self._task(seq, "COMPLETED")
            else:
                is_last = len(ends) == self._count_of_own_tasks()
                yield self._failed(seq, is_last=is_last)

    def _unended(self, seq: int) -> TaskState:
        state: State = self.state.state
        # the element runs, the task waits for one of its slots
        if state == "RUNNING" and not self.on_the_way:
            state = "RUNNING" if seq in self._in_flight else "PENDING"
        elif state == "COMPLETED":
            state = "INTERRUPTED"  # its element succeeded without running it
        found = self._task(seq, state, reason=self.state.reason)
        # what goes on needs no explanation: its events are not read
        if goes_on(self.state):
            return found
        return _with_last(found, self.history.attempts.get(seq, []))

    def _failed(self, seq: int, *, is_last: bool) -> TaskState:
        """Return the state of a failed task; *is_last*: its element runs no more."""
        tried = self.history.attempts.get(seq, [])
        last = next((one for one in reversed(tried) if one.ended is not None), None)
        event = None if last is None else last.ended
        if last is None or event is None:
            # the joblog is written before the event
            if goes_on(self.state) and self.history.has_events:
                return self._task(seq, "RUNNING")
            return self._task(seq, "FAILED", output=self._output(seq, 1))
        state: State = _STATES.get(event.state, "FAILED")
        if _is_killed(event) and state not in {"OUT_OF_MEMORY", "STUCK", "DIVERGED"}:
            # who killed it is not known yet
            if is_last and self.state.state == "RUNNING":
                return self._task(seq, "RUNNING")
            # killed with its element, or alone
            is_of_element = self.state.state in _ENDED_FROM_OUTSIDE
            state = self.state.state if is_of_element else "FAILED"
        # together with its element, before weigh exec noticed
        elif state == "FAILED" and 0 <= self._cancelled_at - event.time <= GRACE:
            state = "CANCELLED"
        return self._task(
            seq,
            state,
            reason=event.reason,
            exit_code=event.exit_code,
            signal=event.signal,
            output=self._output(seq, event.attempt),
            attempt=event.attempt,
            peak=event.peak_memory,
            reserved=last.started.memory,
            alone=event.alone or last.started.alone,
            needs=event.needs,
        )

    @cached_property
    def _in_flight(self) -> frozenset[int]:
        return frozenset(self.history.in_flight)

    @cached_property
    def _cancelled_at(self) -> Seconds:
        """Return when a cancelled element ended; infinity if it was not."""
        if self.state.state != "CANCELLED":
            return math.inf
        closed = self.history.recorded.closed_at
        # without the event weigh exec was killed with the rest
        ended = self.state.ended if closed is None else closed
        return math.inf if ended is None else ended

    def _short_of_memory(self, ends: Mapping[int, bool]) -> frozenset[int]:
        """Return the tasks whose step ran out of memory, as their output shows.

        If no output shows it (redirected), return the failed tasks, else all tasks:
        which of them it was is not known. A task whose last attempt succeeded is done.
        """
        shown = {
            seq: [*map(_shows_step_over_memory, self.history.outputs(task))]
            for seq, task in enumerate(self.numbers, start=1)
            if seq in ends
        }
        if any(map(any, shown.values())) or len(ends) < self._count_of_own_tasks():
            return frozenset(seq for seq, tried in shown.items() if tried and tried[-1])
        failed = frozenset(seq for seq, good in ends.items() if not good)
        return failed or frozenset(ends)

    def _count_of_own_tasks(self) -> int:
        """Return how many tasks it has: of a shared queue, those that it claimed."""
        return len(self.numbers if self.seqs is None else self.seqs)

    def _hides_a_kill(self, ends: Mapping[int, bool]) -> bool:
        """Return whether the scheduler saw a kill for memory, and weigh exec none.

        A worker was killed, and the command exited on its own all the same.
        """
        if (
            self.state.state != "OUT_OF_MEMORY"
            or len(ends) < self._count_of_own_tasks()
        ):
            return False
        ended = [one.ended for one in self.history.recorded.attempts if one.ended]
        return not any(
            one.state == "OUT_OF_MEMORY"
            or one.signal == _KILL
            or one.exit_code == _SHELL_KILL
            for one in ended
        )

    def _task(self, seq: int, state: State, **known: Any) -> TaskState:  # noqa: ANN401 - its fields
        return TaskState(
            task=self.numbers[seq - 1],
            job=self.job,
            element=self.number,
            seq=seq,
            state=state,
            **known,
        )

    def _output(self, seq: int, attempt: int) -> str | None:
        path = self.history.output_path(self.numbers[seq - 1], attempt)
        return path if os.path.exists(path) else None


def _with_last(task_state: TaskState, tried: Sequence[RecordedAttempt]) -> TaskState:
    """Return the task with what it lacked: memory when it ran out of it, or time."""
    ended = [one for one in tried if one.ended is not None]
    last = ended[-1].ended if ended else None
    if last is None:
        return task_state
    task_state = replace(task_state, needs=last.needs)
    # its element ended for another reason, such as another task of it that hung; where
    # a later attempt began, it had what it needed, and ended with its element
    if (
        task_state.state in {"TIMEOUT", "INTERRUPTED"}
        and last.lacked_memory
        and tried[-1].ended is last
    ):
        task_state = replace(
            task_state, state="OUT_OF_MEMORY", reason=last.reason, attempt=last.attempt
        )
        task_state = _with_memory_of(task_state, ended[-1])
    short = [one for one in ended if one.ended and one.ended.state == "OUT_OF_MEMORY"]
    if not short or task_state.state in _NOT_OVER:
        return task_state
    return replace(_with_memory_of(task_state, short[-1]), short=True)


def _with_memory_of(task_state: TaskState, attempt: RecordedAttempt) -> TaskState:
    """Return the task with the memory that an attempt had and used."""
    start, end = attempt.started, attempt.ended
    return replace(
        task_state,
        peak=None if end is None else end.peak_memory,
        reserved=start.memory,
        alone=start.alone or (end is not None and end.alone),
    )


def _shows_step_over_memory(path: str) -> bool:
    words = tail_of(path)
    patterns = (kind.backend.MESSAGES.step_over_memory for kind in KINDS.values())
    return any(one.search(words) for one in patterns if one)


def _is_killed(event: events.AttemptEnded) -> bool:
    return event.signal in _ENDERS or event.exit_code in _SHELL_ENDERS


def goes_on(element_state: ElementState) -> bool:
    """Return whether an element waits or runs."""
    return element_state.state in ACTIVE


class _PulledTasks:
    """The tasks of a shared queue: how often each was claimed, and by whom.

    ``others_run``: elements of another job go on that pull from the same queue.
    """

    def __init__(
        self,
        elements: _JobElements,
        plan: Plan,
        queue: PlannedQueue,
        *,
        others_run: bool,
    ) -> None:
        self._elements, self._history, self._queue = elements, elements.history, queue
        self._job = self._history.job
        self._others_run = others_run
        # how often a task was claimed, and by which runs, in the order of their claims
        self._owners = self._history.claims(plan)
        self._tasks: dict[int, dict[int, TaskState]] = {}
        # elements that may still take a free task
        self._going = [n for n, state in enumerate(elements.states) if goes_on(state)]

    def all(self) -> Iterator[TaskState]:
        """Yield the state of each task, with the number of its claims."""
        for seq in range(1, len(self._queue.tasks) + 1):
            claims, owners = self._owners.get(seq, (0, []))
            yield replace(self._state_of(seq, owners), claims=claims)

    def _state_of(self, task_number: int, owners: Sequence[QueueOwner]) -> TaskState:
        if not owners:
            return self._free(task_number)
        over = [owner for owner in owners if task_number in self._ends(owner)]
        # a task may have been claimed again although it had ended: done is done
        done = next((owner for owner in over if self._ends(owner)[task_number]), None)
        if done is not None and done is not owners[-1]:
            done_in = self._history.element_of_owner(done) or 0
            return self._task(task_number, "COMPLETED", done_in)
        last = owners[-1]
        number = self._history.element_of_owner(last)
        if number is None:
            return self._run_by_hand(task_number, last)
        if last not in over:
            if goes_on(self._elements.judged(number)):
                # claimed but not begun: it waits for a slot of its element
                in_flight = self._history.element(number).in_flight
                state: State = "RUNNING" if task_number in in_flight else "PENDING"
                return self._task(task_number, state, number)
            # its element is gone: another one will claim the task again
            if self._going or self._others_run:
                return self._free(task_number)
        return self._with_earlier(self._details(number)[task_number], owners[:-1])

    def _with_earlier(
        self, task_state: TaskState, owners: Sequence[QueueOwner]
    ) -> TaskState:
        """Return the state with the most memory that was too little, by any owner."""
        if task_state.state in _NOT_OVER:
            return task_state
        numbers = map(self._history.element_of_owner, owners)
        before = [self._details(n)[task_state.seq] for n in numbers if n is not None]
        # the next round starts from the largest amount that was too little
        known = [
            one
            for one in (*before, task_state)
            if one.short or one.state == "OUT_OF_MEMORY"
        ]
        if not known or (most := max(known, key=_memory_shortage_order)) is task_state:
            return task_state
        return replace(
            task_state,
            short=True,
            peak=most.peak,
            reserved=most.reserved,
            alone=most.alone,
        )

    def _run_by_hand(self, task_number: int, owner: QueueOwner) -> TaskState:
        """Return the state of a task of a run that is no element of the job."""
        history = self._history.run_of_owner(self._queue, owner)
        good = history.ends.get(task_number)
        if good is not None:
            found = self._task(task_number, "COMPLETED" if good else "FAILED")
        elif owner.run in history.recorded.open_runs:
            found = self._task(task_number, "RUNNING")
        else:
            return self._free(task_number)
        # next to the joblog of that run, and not in the folder of an element
        outputs = history.outputs(found.task)
        return replace(found, output=outputs[-1]) if outputs else found

    def _details(self, number: int) -> dict[int, TaskState]:
        """Return the states of the tasks of an element, judged as in other plans."""
        if number not in self._tasks:
            # `numbers` are those of the whole queue, its tasks what it claimed
            owned = frozenset(
                seq
                for seq, (_, owners) in self._owners.items()
                if number in map(self._history.element_of_owner, owners)
            )
            one = ElementTasks(
                self._job.id,
                number,
                self._queue.tasks,
                self._elements.judged(number),
                self._history.element(number),
                seqs=owned,
            )
            ends = self._ends_of_element(number).items()
            ours = {seq: good for seq, good in ends if seq in owned}
            self._tasks[number] = {task.seq: task for task in one.tasks(ours)}
        return self._tasks[number]

    def _free(self, task_number: int) -> TaskState:
        """Return the state of a task that nobody has: it waits, or was left."""
        if self._going:
            # any of them may take it: spread, so that each shows tasks that wait
            element = self._going[task_number % len(self._going)]
            return self._task(task_number, "PENDING", element)
        if self._others_run:
            return self._task(task_number, "PENDING")
        state, reason = self._why_left
        return replace(self._task(task_number, state), reason=reason)

    @cached_property
    def _why_left(self) -> tuple[State, str | None]:
        """Return the state of all tasks that no element took, and the reason."""
        elements = self._elements.states
        # what the scheduler reports of the elements explains free tasks best
        outside: tuple[State, ...] = ("UNKNOWN", "CANCELLED")
        for state in outside:
            if any(one.state == state for one in elements):
                return state, next((one.reason for one in elements if one.reason), None)
        judged = [self._elements.judged(number) for number in range(len(elements))]
        for one in judged:
            # the element left it on purpose: its time limit was too near
            if one.exit_code == NO_TIME_LEFT and one.state == "INTERRUPTED":
                _, words, figures = (one.reason or "").partition(NOT_STARTED)
                return "INTERRUPTED", words + figures
        # before the first task
        if {one.state for one in elements} == {"FAILED"} and not self._owners:
            return "FAILED", next((one.reason for one in judged if one.reason), None)
        return "INTERRUPTED", _UNCLAIMED

    def _task(self, task_number: int, state: State, element: int = 0) -> TaskState:
        return TaskState(
            task=self._queue.tasks[task_number - 1],
            job=self._job.id,
            element=element,
            seq=task_number,
            state=state,
        )

    def _ends(self, owner: QueueOwner) -> Mapping[int, bool]:
        number = self._history.element_of_owner(owner)
        if number is None:
            return self._history.run_of_owner(self._queue, owner).ends
        return self._ends_of_element(number)

    def _ends_of_element(self, number: int) -> Mapping[int, bool]:
        history = self._history.element(number)
        if self._job.staging is None or goes_on(self._elements.states[number]):
            return history.ends
        return history.ends_at_home  # what was not copied back is not done


def _memory_shortage_order(task_state: TaskState) -> tuple[bool, int, int]:
    """Return how much memory was too little for a task, to compare."""
    return task_state.alone, task_state.reserved or 0, task_state.peak or 0
