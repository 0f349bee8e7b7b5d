"""The state of each task of a job: from its joblog, else from its element."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import get_args

import msgspec

from weigh.errors import NO_TIME_LEFT, SIGNAL_BASE
from weigh.joblog import output_folder, output_name, read_task_ends
from weigh.model.element_time import GRACE, NOT_STARTED
from weigh.model.job import (
    STEP_OUT_OF_MEMORY,
    ElementState,
    SubmittedJob,
    TaskState,
)
from weigh.model.plan import Plan
from weigh.model.record import State
from weigh.outcome import failure_line
from weigh.regular_file import only_regular
from weigh.runner import events
from weigh.schedulers import KINDS
from weigh.schedulers.backend import Scheduler
from weigh.schedulers.job_script import AGAIN, ENDED, HOME, NEAR
from weigh.store.lines import UNREADABLE, read_tail
from weigh.units import Seconds

LOGS = "log"
# bytes of a log or an output: what explains an end is at its end
_TAIL = 1 << 16
# lines of weigh on the steps of a task
_OF_STAGES = ('weigh: step "', "weigh: go on with: ")
_TERMINATED = SIGNAL_BASE + 15
# exit codes of weigh exec after a scheduler's warning signal: USR1, USR2, XCPU
# (numbers of Linux, where jobs run: a report may be read elsewhere)
_WARNED = frozenset({SIGNAL_BASE + 10, SIGNAL_BASE + 12, SIGNAL_BASE + 24})
_EXIT = re.compile(f"^{ENDED} ([0-9]{{1,3}})$", re.MULTILINE)
# lines of weigh exec's summary, which do not show why the script ended
_SUMMARY = re.compile(r"weigh  |  (?!stopped )[a-z]+ +\S|   +")
# of an attempt: 12.out is the first, 12.2.out the second
_OUTPUT = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?\.out")
# how lines of events begin: only these are decoded, of maybe many
_ENDED_LINE = b'{"event":"ended"'
_STARTED_LINE = b'{"event":"started"'
# in an event: weigh exec saw a kill, or counted one
_MARKS_OF_A_KILL = (b'"state":"OUT_OF_MEMORY"', b'"signal":9,', b'"exit_code":137,')
# KILL and TERM: what schedulers, nodes and people end processes with
_ENDERS = frozenset({9, 15})
_SHELL_ENDERS = frozenset({SIGNAL_BASE + 9, SIGNAL_BASE + 15})
# of an element: then its end is also why a task in it was killed
_ENDED_FROM_OUTSIDE: frozenset[State] = frozenset(
    {"CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "UNKNOWN"}
)
_STATES: dict[str, State] = {word: word for word in get_args(State)}
StateOf = Callable[[int], ElementState]


def read_tasks(
    submitted_job: SubmittedJob, plan: Plan, scheduler: Scheduler, state_of: StateOf
) -> Iterator[TaskState]:
    """Yield the state of each task of *submitted_job*, element by element."""
    logs = os.path.join(submitted_job.folder, LOGS)
    # one listing instead of one look per element: thousands on a network disk
    there = _file_names_in(logs)
    ours = plan.elements[
        submitted_job.first : submitted_job.first + submitted_job.elements
    ]
    for number, element in enumerate(ours):
        name = element.file.removesuffix(".txt")
        joblog = os.path.join(logs, f"{name}.joblog")
        state = state_of(number)
        ends = _ends_in_joblog(joblog) if f"{name}.joblog" in there else {}
        # no task runs any more: what counts is what was copied back
        over = len(ends) == len(element.tasks) or not goes_on(state)
        if submitted_job.staging is not None and over:
            # a task whose results were not copied back is not done
            ends = (
                _ends_in_joblog(joblog + HOME)
                if f"{name}.joblog{HOME}" in there
                else {}
            )
        # where all tasks have ended the log adds nothing
        if len(ends) < len(element.tasks) and not goes_on(state):
            log = scheduler.log_name(
                submitted_job.id, number, is_array=submitted_job.elements > 1
            )
            state = judge_by_log(state, os.path.join(logs, log))
        on_the_way = submitted_job.staging is not None and over
        one = ElementTasks(
            submitted_job.id,
            number,
            element.tasks,
            state,
            joblog,
            on_the_way=on_the_way,
        )
        yield from one.tasks(ends)


def judge_by_log(element_state: ElementState, log: str) -> ElementState:
    """Return the state of an element, made more precise by the end of its log.

    weigh exec ends the tasks itself before the time limit, and the scheduler only sees
    that weigh exec exited.
    """
    words = tail_of(log)
    messages = [kind.reasons.MESSAGES for kind in KINDS.values()]
    # the scheduler writes this line itself, so it is surer than an exit code
    if element_state.state in {"FAILED", "UNKNOWN"} and any(
        one.over_memory.search(words) for one in messages if one.over_memory
    ):
        return msgspec.structs.replace(
            element_state, state="OUT_OF_MEMORY", reason="killed for memory"
        )
    exits = list(_EXIT.finditer(words))  # the scheduler may print something after it
    if element_state.state == "UNKNOWN":
        for one in messages:
            by = list(one.ended.finditer(words)) if one.ended else []
            # an exit line after it would be of a later attempt, which counts
            if by and (not exits or exits[-1].end() < by[-1].start()):
                word = one.states.get(by[-1][1] or "", "CANCELLED")
                return msgspec.structs.replace(element_state, state=word, reason=None)
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
    if is_signalled and NEAR in before:
        return _as(element_state, "TIMEOUT", "stopped before its time limit", code)
    if code == 0:
        return _as(element_state, "COMPLETED", None, code)
    if is_signalled:
        return _as(element_state, "INTERRUPTED", "stopped by a signal", code)
    lines = [line for line in before.splitlines() if line.strip()]
    lines = [line for line in lines if not _SUMMARY.match(line)]
    last = failure_line("\n".join(lines))
    for title in ("weigh: ", "stopped "):
        last = last.removeprefix(title).strip()
    if code == NO_TIME_LEFT and NOT_STARTED in last:
        return _as(element_state, "INTERRUPTED", last, code)
    return _as(element_state, "FAILED", _of_shell(last) or element_state.reason, code)


def tail_of(path: str) -> str:
    """Return the end of a file; an empty text if it does not exist."""
    return read_tail(path, _TAIL).decode("utf-8", "replace")


def latest_output_of_task(submitted_job: SubmittedJob, task_state: TaskState) -> str:
    """Return the path of the output of a task's latest attempt."""
    number = submitted_job.first + task_state.element
    joblog = os.path.join(submitted_job.folder, LOGS, f"tasks_{number}.joblog")
    folder = output_folder(joblog)
    # attempts have files of their own, numbered without a gap
    attempt, latest = 2, os.path.join(folder, output_name(task_state.task, 1))
    while os.path.exists(
        path := os.path.join(folder, output_name(task_state.task, attempt))
    ):
        attempt, latest = attempt + 1, path
    return latest


def last_line_of_output(path: str) -> str | None:
    """Return the line of a failed task's output that states why it failed.

    The output of a step explains a failure. The lines that weigh adds on steps do not:
    they count only if there is no other line.
    """
    lines = tail_of(path).splitlines()
    others = [line for line in lines if not line.lstrip().startswith(_OF_STAGES)]
    last = failure_line("\n".join(others)) or failure_line("\n".join(lines))
    return _of_shell(last) or None


def _of_shell(line: str) -> str:
    """Shorten what a shell prints on its script: the folder, and the command killed.

    Lists show the beginning of a reason; that was only the path.
    """
    line = re.sub(r"^/\S*/([^/\s:]+: line \d+: )", r"\1", line)
    return re.sub(r"^(\S+: line \d+: ) *\d+ ([A-Z][a-z ]+\w)  .*", r"\1\2", line)


class _LastEvents(msgspec.Struct):
    """The last events of a task."""

    ended: events.AttemptEnded | None = None
    started: events.AttemptStarted | None = None
    # the attempt that ran out of memory, and its start; None: none did
    short: tuple[events.AttemptEnded, events.AttemptStarted | None] | None = None


class ElementTasks(msgspec.Struct, frozen=True):
    """One element of a job, the numbers of its tasks, its state and its joblog.

    Only ``seqs`` are its tasks, if they are given: the others of a queue have other
    elements. ``on_the_way``: no task runs any more, and the results are being staged
    out.
    """

    job: str
    number: int  # of the element in its job, from 0
    # in the plan; their places, from 1, are the ``seq`` of joblog and events
    numbers: tuple[int, ...]
    state: ElementState
    joblog: str
    seqs: frozenset[int] | None = None
    on_the_way: bool = False

    def tasks(self, ends: dict[int, bool]) -> Iterator[TaskState]:
        """Yield the states of its tasks; *ends* maps ended tasks to success."""
        # only tasks that are not done are looked up in the events
        failed = {seq for seq, good in ends.items() if not good}
        if not goes_on(self.state):
            numbers = self.seqs or range(1, len(self.numbers) + 1)
            failed |= {seq for seq in numbers if seq not in ends}
        lasts = self._last_events(failed) if failed else {}
        end = self._cancelled_at() if failed else None
        running = self._running() if self.state.state == "RUNNING" else frozenset()
        short = frozenset[int]()
        # such a task may have exited with 0
        if self.state.reason == STEP_OUT_OF_MEMORY or self._hides_a_kill(ends):
            short = self._short_of_memory(ends)
        for seq, task in enumerate(self.numbers, start=1):
            if self.seqs is not None and seq not in self.seqs:
                continue
            if seq not in ends:
                one = self._unended(task, seq, is_running=seq in running)
                yield _with_last(one, lasts.get(seq, _LastEvents()))
            elif seq in short:
                yield self._task(
                    task,
                    seq,
                    "OUT_OF_MEMORY",
                    reason=STEP_OUT_OF_MEMORY,
                    output=next((p for _, p in self._outputs(seq)[-1:]), None),
                )
            elif ends[seq]:
                yield self._task(task, seq, "COMPLETED")
            else:
                is_last = len(ends) == self._count_of_own_tasks()
                last = lasts.get(seq, _LastEvents())
                yield self._failed(task, seq, last, is_last=is_last, end=end)

    def _unended(self, task: int, task_number: int, *, is_running: bool) -> TaskState:
        state: State = self.state.state
        # the element runs, the task waits for one of its slots
        if state == "RUNNING" and not (is_running or self.on_the_way):
            state = "PENDING"
        elif state == "COMPLETED":
            state = "INTERRUPTED"  # its element succeeded without running it
        return self._task(task, task_number, state, reason=self.state.reason)

    def _failed(
        self,
        task: int,
        task_number: int,
        last_events: "_LastEvents",
        *,
        is_last: bool,
        end: Seconds | None,
    ) -> TaskState:
        """Return the state of a failed task; *is_last*: its element has no more to run.

        *end* is when its element was cancelled, if it was.
        """
        event, start = last_events.ended, last_events.started
        # the joblog is written before the event
        if event is None and self._is_being_written():
            return self._task(task, task_number, "RUNNING")
        if event is None:
            return self._task(
                task, task_number, "FAILED", output=self._output(task_number, 1)
            )
        state: State = _STATES.get(event.state, "FAILED")
        if _is_killed(event) and state != "OUT_OF_MEMORY":
            if is_last and self.state.state == "RUNNING":
                return self._task(
                    task, task_number, "RUNNING"
                )  # who killed it is not known yet
            state = self._fate()
        elif state == "FAILED" and end is not None and 0 <= end - event.time <= GRACE:
            state = "CANCELLED"  # together with its element, before weigh exec noticed
        return TaskState(
            task=task,
            job=self.job,
            element=self.number,
            seq=task_number,
            state=state,
            reason=event.reason,
            exit_code=event.exit_code,
            signal=event.signal,
            output=self._output(task_number, event.attempt),
            attempt=event.attempt,
            peak=event.peak_memory,
            reserved=None if start is None else start.memory,
            alone=event.alone or (start is not None and start.alone),
            needs=event.needs,
        )

    def _short_of_memory(self, ends: dict[int, bool]) -> frozenset[int]:
        """Return the tasks whose step ran out of memory, as their output shows.

        If no output shows it (redirected), return the failed tasks, else all tasks:
        which of them it was is not known. A task whose last attempt succeeded is done.
        """
        shown = {
            seq: [_shows_step_over_memory(path) for _, path in outputs]
            for seq in ends
            if (outputs := self._outputs(seq))
        }
        if any(map(any, shown.values())) or len(ends) < self._count_of_own_tasks():
            return frozenset(seq for seq, attempts in shown.items() if attempts[-1])
        return frozenset(seq for seq, good in ends.items() if not good) or frozenset(
            ends
        )

    def _count_of_own_tasks(self) -> int:
        """Return how many tasks it has: of a shared queue, those that it claimed."""
        return len(self.numbers if self.seqs is None else self.seqs)

    def _hides_a_kill(self, ends: dict[int, bool]) -> bool:
        """Return whether the scheduler saw a kill for memory, and weigh exec none.

        A worker was killed, and the command exited on its own all the same.
        """
        return (
            self.state.state == "OUT_OF_MEMORY"
            and len(ends) == self._count_of_own_tasks()
            and not any(
                mark in line
                for line in lines_of_file(self.joblog + events.SUFFIX)
                for mark in _MARKS_OF_A_KILL
            )
        )

    def _is_being_written(self) -> bool:
        """Return whether weigh exec will still record how a task has ended."""
        return goes_on(self.state) and os.path.exists(self.joblog + events.SUFFIX)

    def _cancelled_at(self) -> Seconds | None:
        """Return when a cancelled element ended; None if not cancelled or not known."""
        if self.state.state != "CANCELLED":
            return None
        # weigh exec writes this event last, and only if it ended on its own
        last = next(reversed(lines_of_file(self.joblog + events.SUFFIX)), b"")
        with suppress(*UNREADABLE):
            return msgspec.json.decode(last, type=events.RunClosed).time
        return self.state.ended  # weigh exec was killed with the rest

    def _fate(self) -> State:
        """Return the state of a killed task: its element's, or FAILED if alone."""
        state: State = self.state.state
        return state if state in _ENDED_FROM_OUTSIDE else "FAILED"

    def _outputs(self, task_number: int) -> list[tuple[int, str]]:
        """Return the output files of a task with their attempts, the last one last."""
        folder, task = output_folder(self.joblog), self.numbers[task_number - 1]
        found = (_OUTPUT.fullmatch(name) for name in _file_names_in(folder))
        return sorted(
            (int(one[2] or 1), os.path.join(folder, one[0]))
            for one in found
            if one is not None and int(one[1]) == task
        )

    def _task(
        self,
        task: int,
        task_number: int,
        state: State,
        *,
        reason: str | None = None,
        output: str | None = None,
    ) -> TaskState:
        return TaskState(
            task=task,
            job=self.job,
            element=self.number,
            seq=task_number,
            state=state,
            reason=reason,
            output=output,
        )

    def _output(self, task_number: int, attempt: int) -> str | None:
        name = output_name(self.numbers[task_number - 1], attempt)
        path = os.path.join(output_folder(self.joblog), name)
        return path if os.path.exists(path) else None

    def _last_events(self, failed: set[int]) -> "dict[int, _LastEvents]":
        """Return the last events of each failed task."""
        found: dict[int, _LastEvents] = {}
        for line in lines_of_file(self.joblog + events.SUFFIX):
            with suppress(*UNREADABLE):
                if line.startswith(_ENDED_LINE):
                    end = msgspec.json.decode(line, type=events.AttemptEnded)
                    if end.seq in failed:
                        last = found.setdefault(end.seq, _LastEvents())
                        last.ended = end
                        if end.state == "OUT_OF_MEMORY":
                            # the start of the same attempt came before its end
                            last.short = end, last.started
                elif line.startswith(_STARTED_LINE):
                    start = msgspec.json.decode(line, type=events.AttemptStarted)
                    if start.seq in failed:
                        found.setdefault(start.seq, _LastEvents()).started = start
        return found

    def _running(self) -> frozenset[int]:
        past = events.read_past_events(
            lines_of_file(self.joblog + events.SUFFIX), lambda _: False
        )
        return frozenset(past.in_flight)


def _with_last(task_state: TaskState, last_events: _LastEvents) -> TaskState:
    """Return the task with what it lacked: memory when it ran out of it, or time."""
    if last_events.ended is not None:
        task_state = msgspec.structs.replace(task_state, needs=last_events.ended.needs)
    task_state = _if_lacking_memory(task_state, last_events)
    if last_events.short is None or task_state.state in {
        "PENDING",
        "RUNNING",
        "COMPLETED",
    }:
        return task_state
    end, start = last_events.short
    return msgspec.structs.replace(
        task_state,
        short=True,
        peak=end.peak_memory,
        reserved=None if start is None else start.memory,
        alone=end.alone or (start is not None and start.alone),
    )


def _if_lacking_memory(task_state: TaskState, last_events: _LastEvents) -> TaskState:
    """Return a task that lacked memory and never started again as out of memory.

    Its element ended for another reason, such as another task of it that hung.
    """
    end, start = last_events.ended, last_events.started
    if (
        task_state.state not in {"TIMEOUT", "INTERRUPTED"}
        or end is None
        or start is None
    ):
        return task_state
    # a later attempt began: it had what it needed, and ended with its element
    if not end.lacked_memory or start.attempt != end.attempt:
        return task_state
    return msgspec.structs.replace(
        task_state,
        state="OUT_OF_MEMORY",
        reason=end.reason,
        attempt=end.attempt,
        peak=end.peak_memory,
        reserved=start.memory,
        alone=end.alone,
    )


def _shows_step_over_memory(path: str) -> bool:
    words = tail_of(path)
    patterns = (kind.reasons.MESSAGES.step_over_memory for kind in KINDS.values())
    return any(one.search(words) for one in patterns if one)


def _as(
    element_state: ElementState, word: State, reason: str | None, code: int
) -> ElementState:
    return msgspec.structs.replace(
        element_state, state=word, reason=reason, exit_code=code
    )


def _is_killed(event: events.AttemptEnded) -> bool:
    return event.signal in _ENDERS or event.exit_code in _SHELL_ENDERS


def goes_on(element_state: ElementState) -> bool:
    """Return whether an element waits or runs."""
    return element_state.state in {"PENDING", "RUNNING"}


def _ends_in_joblog(joblog_path: str) -> dict[int, bool]:
    if not os.path.exists(joblog_path):  # somebody removed it
        return events.ended_in_events(joblog_path + events.SUFFIX)
    # of several lines on a task the last one counts
    return {seq: good for seq, good, _ in read_task_ends(lines_of_file(joblog_path))}


def lines_of_file(path: str) -> Sequence[bytes]:
    """Return the lines of a file; none if it does not exist."""
    try:
        with open(path, "rb", opener=only_regular) as file:
            return file.read().splitlines(keepends=True)
    except OSError:
        return ()


def _file_names_in(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
