"""How the tasks of a job stand: by their joblogs, else by the element they are in."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import get_args

import msgspec

from weigh.joblog import read_ends
from weigh.model.job import (
    STEP_OUT_OF_MEMORY,
    ElementState,
    Submitted,
    TaskState,
)
from weigh.model.plan import Element, Plan
from weigh.model.record import State
from weigh.runner import events
from weigh.schedulers.job_script import AGAIN, ENDED, GRACE, HOME, NEAR
from weigh.schedulers.protocol import Scheduler
from weigh.store.lines import UNREADABLE
from weigh.units import Seconds

LOGS = "log"
_TAIL = 1 << 16
_OF_STAGES = ('weigh: step "', "weigh: go on with: ")
_TOLD = 128 + 15
# the exit codes of a weigh exec that a scheduler's warning reached: USR1, USR2, XCPU
_WARNED = frozenset({128 + 10, 128 + 12, 128 + 24})
# what slurmstepd says, with control groups or by polling
_OVER_MEMORY = re.compile(
    r"slurmstepd(?:-\S+)?: error: .*"
    r"(?:exceeded memory limit|Exceeded job memory limit|oom.kill)"
)
# what srun and slurmstepd print into the output of the task that started the step
_STEP_OVER_MEMORY = re.compile(
    rf"{_OVER_MEMORY.pattern}|srun: error: .*Out Of Memory", re.IGNORECASE
)
# what slurmstepd prints where it ends a job
_ENDED_BY_SLURM = re.compile(
    r"slurmstepd(?:-\S+)?: error: \*\*\* JOB \d+ ON \S+ CANCELLED AT \S+"
    r"(?: DUE TO ([A-Z ]+)[^*]*)? \*\*\*"
)
_BY_REASON: dict[str, State] = {
    "TIME LIMIT": "TIMEOUT",
    "NODE FAILURE": "NODE_FAIL",
    "PREEMPTION": "PREEMPTED",
}
_EXIT = re.compile(f"^{ENDED} ([0-9]{{1,3}})$", re.MULTILINE)
# weigh exec's summary of the tasks, which says nothing of why the script ended
_SUMMARY = re.compile(r"weigh  |  (?!stopped )[a-z]+ +\S|   +")
_OUTPUT = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?\.out")
_ENDED_LINE = b'{"event":"ended"'
_ENDERS = frozenset({9, 15})
_SHELL_ENDERS = frozenset({128 + 9, 128 + 15})
_ENDED_FROM_OUTSIDE: frozenset[State] = frozenset(
    {"CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "PREEMPTED", "UNKNOWN"}
)
_STATES: dict[str, State] = {word: word for word in get_args(State)}
StateOf = Callable[[int], ElementState]


def read_tasks(
    job: Submitted, plan: Plan, scheduler: Scheduler, state_of: StateOf
) -> Iterator[TaskState]:
    """Yield how each task of *job* stands, element by element."""
    logs = os.path.join(job.folder, LOGS)
    there = _names(logs)
    ours = plan.elements[job.first : job.first + job.elements]
    for number, element in enumerate(ours):
        name = element.file.removesuffix(".txt")
        joblog = os.path.join(logs, f"{name}.joblog")
        state = state_of(number)
        ends = _ends(joblog) if f"{name}.joblog" in there else {}
        over = len(ends) == len(element.tasks) or not _goes_on(state)
        if job.staging is not None and over:
            # what has not come home from the node is not done
            ends = _ends(joblog + HOME) if f"{name}.joblog{HOME}" in there else {}
        if len(ends) < len(element.tasks) and not _goes_on(state):
            log = scheduler.log_name(job.id, number, is_array=job.elements > 1)
            state = judge_by_log(state, os.path.join(logs, log))
        on_the_way = job.staging is not None and over
        one = _Element(job.id, number, element, state, joblog, on_the_way)
        yield from one.tasks(ends)


def judge_by_log(state: ElementState, log: str) -> ElementState:
    """Say how an element ended by the last words of its log, where they say more.

    weigh exec ends the tasks itself before the time limit: the scheduler sees only
    that it exited.
    """
    words = tail_of(log)
    if state.state in {"FAILED", "UNKNOWN"} and _OVER_MEMORY.search(words):
        return msgspec.structs.replace(
            state, state="OUT_OF_MEMORY", reason="killed for memory"
        )
    exits = list(_EXIT.finditer(words))  # the scheduler may have a word after it
    if state.state == "UNKNOWN":
        by = list(_ENDED_BY_SLURM.finditer(words))
        if by and (not exits or exits[-1].end() < by[-1].start()):
            word = _BY_REASON.get(by[-1][1] or "", "CANCELLED")
            return msgspec.structs.replace(state, state=word, reason=None)
    if not exits or int(exits[-1][1]) == AGAIN:
        return state
    before = words[: exits[-1].start()]
    if state.is_final and state.state != "FAILED" and NEAR not in before:
        return state
    return _ended(state, int(exits[-1][1]), before)


def _ended(state: ElementState, code: int, before: str) -> ElementState:
    """Judge an element by its exit code and what its log says before that."""
    is_told = code == _TOLD or code in _WARNED
    if is_told and NEAR in before:
        return _as(state, "TIMEOUT", "stopped before its time limit", code)
    if code == 0:
        return _as(state, "COMPLETED", None, code)
    if is_told:
        return _as(state, "INTERRUPTED", "told to end", code)
    said = [line for line in before.splitlines() if line.strip()]
    said = [line for line in said if not _SUMMARY.match(line)]
    last = said[-1].strip() if said else ""
    for title in ("weigh: ", "stopped "):
        last = last.removeprefix(title).strip()
    return _as(state, "FAILED", last or state.reason, code)


def tail_of(path: str) -> str:
    """Return the end of a file; nothing where there is none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(path: str) -> str | None:
    """Return the last line of a file that says something; weigh stages' own come last.

    What a step said says why; which step it was, and how to go on, does not.
    """
    lines = [line.strip() for line in tail_of(path).splitlines() if line.strip()]
    said = (line for line in reversed(lines) if not line.startswith(_OF_STAGES))
    return next(said, lines[-1] if lines else None)


class _Element(msgspec.Struct, frozen=True):
    """One element of a job with all that is known of it.

    Its results are ``on_the_way`` once no task runs any more and they are staged out.
    """

    job: str
    number: int
    element: Element
    state: ElementState
    joblog: str
    on_the_way: bool = False

    def tasks(self, ends: dict[int, bool]) -> Iterator[TaskState]:
        """Yield how its tasks stand; *ends* says of a number whether it succeeded."""
        failed = {seq for seq, good in ends.items() if not good}
        said = self._said(failed) if failed else {}
        end = self._cancelled_at() if failed else None
        running = self._running() if self.state.state == "RUNNING" else frozenset()
        short = frozenset[int]()
        if self.state.reason == STEP_OUT_OF_MEMORY:
            short = self._short_of_memory(ends)
        for seq, task in enumerate(self.element.tasks, start=1):
            if seq not in ends:
                yield self._unended(task, seq, is_running=seq in running)
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
                is_last = len(ends) == len(self.element.tasks)
                yield self._failed(task, seq, said.get(seq), is_last=is_last, end=end)

    def _unended(self, task: int, seq: int, *, is_running: bool) -> TaskState:
        state: State = self.state.state
        if state == "RUNNING" and not (is_running or self.on_the_way):
            state = "PENDING"
        elif state == "COMPLETED":
            state = "INTERRUPTED"  # its element ended well and did not run it
        return self._task(task, seq, state, reason=self.state.reason)

    def _failed(
        self,
        task: int,
        seq: int,
        said: events.Ended | None,
        *,
        is_last: bool,
        end: Seconds | None,
    ) -> TaskState:
        """Say how a task failed; *is_last* where its element has no more to run.

        *end* is when its element was cancelled, if it was.
        """
        if said is None and self._is_being_written():
            return self._task(task, seq, "RUNNING")
        if said is None:
            return self._task(task, seq, "FAILED", output=self._output(seq, 1))
        state: State = _STATES.get(said.state, "FAILED")
        if _is_killed(said) and state != "OUT_OF_MEMORY":
            if is_last and self.state.state == "RUNNING":
                return self._task(task, seq, "RUNNING")  # soon it is known by whom
            state = self._fate()
        elif state == "FAILED" and end is not None and 0 <= end - said.time <= GRACE:
            state = "CANCELLED"  # by whom ended its element, before weigh exec knew
        return TaskState(
            task=task,
            job=self.job,
            element=self.number,
            seq=seq,
            state=state,
            reason=said.reason,
            exit_code=said.exit_code,
            signal=said.signal,
            output=self._output(seq, said.attempt),
            attempt=said.attempt,
        )

    def _short_of_memory(self, ends: dict[int, bool]) -> frozenset[int]:
        """Return the tasks whose step ran out of memory, as their output shows.

        Where no output shows it (redirected), those that failed, else all: nobody
        knows which of them it was. One that succeeded on a later attempt is done.
        """
        shown = {
            seq: [bool(_STEP_OVER_MEMORY.search(tail_of(path))) for _, path in outputs]
            for seq in ends
            if (outputs := self._outputs(seq))
        }
        if any(map(any, shown.values())) or len(ends) < len(self.element.tasks):
            return frozenset(seq for seq, attempts in shown.items() if attempts[-1])
        return frozenset(seq for seq, good in ends.items() if not good) or frozenset(
            ends
        )

    def _is_being_written(self) -> bool:
        """Return whether weigh exec is about to tell how a task has ended."""
        return _goes_on(self.state) and os.path.exists(self.joblog + events.SUFFIX)

    def _cancelled_at(self) -> Seconds | None:
        """Return when a cancelled element ended; None where it was not, or who knows."""
        if self.state.state != "CANCELLED":
            return None
        last = next(reversed(lines_of(self.joblog + events.SUFFIX)), b"")
        with suppress(*UNREADABLE):
            return msgspec.json.decode(last, type=events.Closed).time
        return self.state.ended  # weigh exec was killed with the rest

    def _fate(self) -> State:
        """Return why a task was killed: its element was ended, or it alone."""
        state: State = self.state.state
        return state if state in _ENDED_FROM_OUTSIDE else "FAILED"

    def _outputs(self, seq: int) -> list[tuple[int, str]]:
        """Return the output files of a task by attempt, the last one last."""
        folder = f"{self.joblog.removesuffix('.joblog')}.out"
        found = (_OUTPUT.fullmatch(name) for name in _names(folder))
        return sorted(
            (int(one[2] or 1), os.path.join(folder, one[0]))
            for one in found
            if one is not None and int(one[1]) == seq
        )

    def _task(
        self,
        task: int,
        seq: int,
        state: State,
        *,
        reason: str | None = None,
        output: str | None = None,
    ) -> TaskState:
        return TaskState(
            task=task,
            job=self.job,
            element=self.number,
            seq=seq,
            state=state,
            reason=reason,
            output=output,
        )

    def _output(self, seq: int, attempt: int) -> str | None:
        folder = f"{self.joblog.removesuffix('.joblog')}.out"
        name = f"{seq}.out" if attempt == 1 else f"{seq}.{attempt}.out"
        path = os.path.join(folder, name)
        return path if os.path.exists(path) else None

    def _said(self, failed: set[int]) -> dict[int, events.Ended]:
        """Read what the events say of tasks that failed, of each the last."""
        said = {}
        for line in lines_of(self.joblog + events.SUFFIX):
            if line.startswith(_ENDED_LINE):
                with suppress(*UNREADABLE):
                    event = msgspec.json.decode(line, type=events.Ended)
                    if event.seq in failed:
                        said[event.seq] = event
        return said

    def _running(self) -> frozenset[int]:
        past = events.read_past(lines_of(self.joblog + events.SUFFIX), lambda _: False)
        return frozenset(past.in_flight)


def _as(
    state: ElementState, word: State, reason: str | None, code: int
) -> ElementState:
    return msgspec.structs.replace(state, state=word, reason=reason, exit_code=code)


def _is_killed(said: events.Ended) -> bool:
    return said.signal in _ENDERS or said.exit_code in _SHELL_ENDERS


def _goes_on(state: ElementState) -> bool:
    return state.state in {"PENDING", "RUNNING"}


def _ends(joblog: str) -> dict[int, bool]:
    return {seq: good for seq, good, _ in read_ends(lines_of(joblog))}


def lines_of(path: str) -> Sequence[bytes]:
    """Return the lines of a file; none where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read().splitlines(keepends=True)
    except OSError:
        return ()


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
