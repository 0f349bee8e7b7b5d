"""Decide which unfinished tasks run again, with how much more, and until when; no I/O.

A person who resumes a job and the healer decide by the same rules. A healer also keeps
to limits (`Heal`), leaves what somebody cancelled, and stops where a round gains
nothing, so that each chain of rounds ends.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from weigh.errors import NOT_EXECUTABLE, NOT_FOUND, USAGE
from weigh.model.job import (
    NOT_STARTED,
    OUTCOME_UNKNOWN,
    ElementState,
    Heal,
    JobRequest,
    TaskState,
)
from weigh.model.record import State
from weigh.outcome import fixed_heap, out_of_memory
from weigh.request import LEAST_MEMORY, RUNNER_MEMORY, round_shared, round_time
from weigh.units import (
    HOUR,
    Bytes,
    Seconds,
    format_duration,
    format_limit,
    format_size,
    parse_limit,
    parse_size,
)

HELD = "waits for the first tasks: "  # how the reason of a task begins that waits
_LARGER_GPU = "needs more GPU memory than the GPU has: --gpus TYPE:N"
_FACTOR = 2
_MARGIN = 1.2  # above the largest peak that was not enough, and a predicted time
# Python's last line of output when the program is wrong, not its environment
_BUG = re.compile(
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FloatingPointError|"
    r"ImportError|IndentationError|IndexError|KeyError|ModuleNotFoundError|NameError|"
    r"NotImplementedError|OverflowError|RecursionError|SyntaxError|TabError|TypeError|"
    r"UnboundLocalError|UnicodeError|ValueError|ZeroDivisionError)\b.*",
    re.MULTILINE,
)
_BUG_CODES = {
    NOT_FOUND: "command not found",
    NOT_EXECUTABLE: "cannot be executed",
    USAGE: "exit code 2, as for a wrong option",
}
_BUG_REASONS = ("a bug", "failed", "raise ")  # how the reason of a bug begins


_NOT_LEFT: dict[State, str] = {
    "PENDING": "not ended yet",
    "RUNNING": "not ended yet",
    "COMPLETED": "done",
}
_WORDS: dict[State, str] = {
    "TIMEOUT": "ran out of time",
    "NODE_FAIL": "its node failed",
}


class Choice(msgspec.Struct, frozen=True):
    """The decision on a task: ``run`` it again or not, and why.

    ``memory`` and ``time`` are factors; ``need`` is what the task alone gets, where its
    memory grows and is known, or where it is ``sized`` from the first tasks.
    ``together`` is how many tasks ran at once in its element, ``avoid`` is a node.
    """

    run: bool
    reason: str
    memory: int = 1
    time: int = 1
    need: Bytes | None = None
    together: int = 1
    avoid: str | None = None
    sized: bool = False

    @property
    def ran_short(self) -> bool:
        """Return whether the task ran out of memory."""
        return self.memory > 1 or (self.need is not None and not self.sized)

    def at_once(self, memory: Bytes | None) -> int:
        """Return how many such tasks run at once in an element that had *memory*."""
        if self.need is None or memory is None:
            return self.together
        return max(1, min(self.together, memory // self.need))


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None: decide by why each task did not finish.

    ``limits`` are those of a healer, if one decides.
    """

    memory: str | None = None
    time: str | None = None
    queue: str | None = None
    gpus: str | None = None
    bugs: bool = False
    unknown: bool = False
    heal: bool = False
    dry_run: bool = False
    limits: Heal | None = None


class Had(msgspec.Struct, frozen=True):
    """What a task had last: its element's request, how many shared it, the round."""

    request: JobRequest
    together: int = 1
    round: int = 1

    @property
    def factor(self) -> int:
        """Return how much more is tried next: 4 rounds reach 32 times."""
        return _FACTOR if self.round == 1 else _FACTOR**2

    def held_by(self, task: TaskState) -> Bytes:
        """Return what a task could hold at most of the memory of its element."""
        memory = self.request.memory or 0
        if task.alone or self.together == 1:
            return memory
        return min(memory, task.reserved or memory // self.together)


Chosen = tuple[TaskState, Choice]


def decide(  # noqa: PLR0913 - keyword-only past the fourth
    task: TaskState,
    element: ElementState,
    had: Had,
    options: ResumeOptions,
    *,
    words: str = "",
    command: str = "",
    failures: int = 0,
) -> Choice:
    """Decide by the reason why a task did not finish; *words* are its last output.

    *failures* counts its failures in all jobs of the plan. A task does not run if what
    it lacked is not known, or above the limits.
    """
    choice = _by_cause(task, element, words, command, failures)
    if options.gpus is not None and choice.reason == _LARGER_GPU:
        choice = Choice(run=True, reason="ran out of GPU memory")
    if (options.bugs and task.state == "FAILED") or (
        options.unknown and task.state == "UNKNOWN"
    ):
        choice = replace(choice, run=True)
    if not choice.run:
        return choice
    if options.limits is not None and task.state == "CANCELLED":
        return _left("cancelled")
    choice = replace(choice, together=had.together)
    if choice.memory > 1 or (task.short and options.memory is None):
        choice = _with_memory(choice, task, had, options)
    if choice.run and choice.time > 1:
        choice = _with_time(choice, task, had, options)
    return choice


def _by_cause(
    task: TaskState, element: ElementState, words: str, command: str, failures: int
) -> Choice:
    if task.state == "FAILED" and NOT_STARTED in (task.reason or ""):
        return Choice(run=True, reason="waited for a job that failed")
    if task.state == "FAILED" or _diverged(task):
        return _failed(task, words, failures)
    if task.state == "OUT_OF_MEMORY":
        return _out_of_memory(words, command)
    if task.state == "UNKNOWN":
        return _left(": ".join(filter(None, (OUTCOME_UNKNOWN, element.reason))))
    if task.state in _NOT_LEFT:
        return _left(_NOT_LEFT[task.state])
    is_late, is_lost = task.state == "TIMEOUT", task.state == "NODE_FAIL"
    return Choice(
        run=True,
        reason=_WORDS.get(task.state, task.state.lower()),
        time=_FACTOR if is_late else 1,
        avoid=element.node if is_lost else None,
    )


def _out_of_memory(words: str, command: str) -> Choice:
    lacked = out_of_memory(words)
    fixed = None if lacked is None else fixed_heap(lacked.words, command)
    if fixed is not None:
        return _left(f"raise {fixed}: more memory for the job cannot help")
    if lacked is not None and lacked.on_gpu:
        return _left(_LARGER_GPU)
    return Choice(run=True, reason="ran out of memory", memory=_FACTOR)


def _failed(task: TaskState, words: str, failures: int) -> Choice:
    shown = _BUG.findall(words)
    bug = shown[-1].strip() if shown else _BUG_CODES.get(task.exit_code or 0)
    bug = task.reason if _diverged(task) else bug
    if bug is not None:
        return _left(f"a bug: {bug}")
    if failures > 1:
        return _left(f"failed {failures} times")
    return Choice(run=True, reason="failed once")


def _diverged(task: TaskState) -> bool:
    return (task.reason or "").startswith("diverged")


def _left(reason: str) -> Choice:
    return Choice(run=False, reason=reason)


def _with_memory(
    choice: Choice, task: TaskState, had: Had, options: ResumeOptions
) -> Choice:
    """Return the choice with more memory than was too small, within the limits."""
    if choice.memory == 1:
        choice = replace(choice, reason=f"{choice.reason}, ran out of memory before")
    choice = replace(choice, memory=had.factor)
    if options.memory is not None:
        return choice
    if had.request.memory is None:
        if had.request.virtual_memory is None:
            return _left(f"{choice.reason}, the queue's default: --memory SIZE")
        return choice
    held, peak = had.held_by(task), task.peak or 0
    most = options.limits and options.limits.max_memory
    if most and max(held, peak) >= most:
        return _left(f"{choice.reason}: --max-memory is {format_size(most)}")
    need = max(had.factor * held, int(_MARGIN * peak))
    return replace(choice, need=min(need, most or need))


def _with_time(
    choice: Choice, task: TaskState, had: Had, options: ResumeOptions
) -> Choice:
    """Return the choice with more time than was too short, within the limits."""
    limit, needs, more = had.request.time_limit, task.needs or 0.0, had.factor
    most = options.limits and options.limits.max_time
    if options.time is not None:
        return replace(choice, time=more)
    if limit is None:
        return _left(f"{choice.reason}, the queue's default: --time TIME")
    if most and limit >= most:
        return _left(f"{choice.reason}: --max-time is {format_limit(most)}")
    if most and needs > most:
        about = f"needs about {format_duration(needs)}"
        return _left(f"{about}: --max-time is {format_limit(most)}")
    return replace(choice, time=enough_time_factor(limit, needs, more))


def enough_time_factor(limit: int, needs: Seconds, factor: int = _FACTOR) -> int:
    """Return by how much to raise a time limit; *needs* is the time by its progress."""
    while max(1, limit) * factor < _MARGIN * needs:
        factor *= _FACTOR
    return factor


def keep_together(choices: Sequence[Chosen]) -> Iterator[Chosen]:
    """Yield the choices; tasks of one element get the largest factors among them."""
    most: dict[tuple[str, int], tuple[int, int]] = {}
    for task, choice in choices:
        if choice.run:
            memory, time = most.get((task.job, task.element), (1, 1))
            more = max(memory, choice.memory), max(time, choice.time)
            most[task.job, task.element] = more
    for task, choice in choices:
        memory, time = most.get((task.job, task.element), (1, 1))
        yield task, replace(choice, memory=memory, time=time)


def alike(
    choices: Sequence[Chosen],
    requests: Mapping[str, JobRequest],
    options: ResumeOptions,
) -> list[list[Chosen]]:
    """Group the tasks to run by what is requested for them; *requests* are by job.

    The tasks of a group get the largest need among them.
    """
    groups: dict[object, list[Chosen]] = {}
    for task, choice in choices:
        if choice.run:
            had = replace(requests[task.job], after=(), exclude=(), throttle=None)
            more = enlarged(had, [choice], options)
            memory = None if choice.need is None else more.memory
            at_once = choice.at_once(had.memory), choice.together
            key = had, choice.memory, choice.time, memory, at_once
            groups.setdefault(key, []).append((task, choice))
    return [_with_largest_need(chosen) for chosen in groups.values()]


def _with_largest_need(chosen: list[Chosen]) -> list[Chosen]:
    most = max(choice.need or 0 for _, choice in chosen)
    return [(t, replace(c, need=most)) for t, c in chosen] if most else chosen


def enlarged(
    request: JobRequest, choices: Sequence[Choice], options: ResumeOptions
) -> JobRequest:
    """Return the request with more of what was too small, or as *options* say.

    It is never less than before, except for CPUs where fewer tasks run at once. What
    ran out of memory keeps what it is given: no option lets that fall again.
    """
    more, limits = choices[0], options.limits or Heal()
    memory, virtual, cpus = request.memory, request.virtual_memory, request.cpus
    at_once = more.at_once(memory)
    if options.memory is not None:
        memory = parse_size(options.memory)
    elif more.sized and more.need is not None:
        memory = max(LEAST_MEMORY, round_shared(more.need * at_once + RUNNER_MEMORY))
    elif more.need is not None and memory is not None:
        wanted = round_shared(more.need * at_once)  # has a share of the runner
        memory = max(memory, min(wanted, limits.max_memory or wanted))
        cpus = -(-cpus * at_once // more.together)
    elif more.memory > 1:
        memory = None if memory is None else round_shared(memory * more.memory)
    if virtual is not None and more.ran_short and options.memory is None:
        ratio = (
            more.memory if not (memory and request.memory) else memory / request.memory
        )
        virtual = max(virtual, round_shared(virtual * ratio))
    elif virtual is not None and memory is not None and memory != request.memory:
        mapped = virtual - (request.memory or virtual)  # does not change
        virtual = memory + max(0, mapped)
    limit = request.time_limit
    if options.time is not None:
        limit = parse_limit(options.time)
    elif more.time > 1 and limit is not None:
        longer = round_time(limit * more.time)
        limit = max(limit, min(longer, limits.max_time or longer))
    avoid = [choice.avoid for choice in choices if choice.avoid]
    return replace(
        request,
        cpus=cpus,
        memory=memory,
        virtual_memory=virtual,
        time_limit=limit,
        queue=options.queue or request.queue,
        exclude=tuple(dict.fromkeys((*request.exclude, *avoid))),
    )


def is_held(reason: str) -> bool:
    """Return whether a task waits for the first tasks of its plan."""
    return reason.startswith(HELD)


def is_bug(reason: str) -> bool:
    """Return whether a task is left because its program fails by itself."""
    return reason.startswith(_BUG_REASONS)


def change_words(before: JobRequest, after: JobRequest) -> str:
    """Write what of an element's request has changed; empty if nothing."""
    old, new = before.memory, after.memory
    if old is None or new is None:
        old, new = before.virtual_memory, after.virtual_memory
    words = []
    if old is not None and new is not None and new != old:
        words.append(f"{format_size(old)} -> {format_size(new)}")
    elif after.cpus < before.cpus:
        words.append(f"{after.cpus} instead of {before.cpus} CPUs")
    if (after.time_limit or 0) > (before.time_limit or 0):
        limits = (format_limit(one.time_limit or 0) for one in (before, after))
        words.append(" -> ".join(limits))
    if set(after.exclude) - set(before.exclude):
        words.append(f"not on {', '.join(after.exclude)}")
    return ", ".join(words)


def cpu_hours(request: JobRequest, elements: int) -> float | None:
    """Return the CPU hours that *elements* may use; None without a time limit."""
    if request.time_limit is None:
        return None
    return elements * max(1, request.cpus) * request.nodes * request.time_limit / HOUR


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds so far: how many, and how many tasks the last one finished.

    ``hours`` are the CPU hours that the rounds after the first requested, None if one
    had no time limit.
    """

    rounds: int
    finished: int
    hours: float | None


def why_stop(
    chosen: Sequence[Choice], before: Before, hours: float | None, heal: Heal
) -> str | None:
    """Return why a healer sends no further round; None if it sends one.

    *chosen* are the decisions on all unfinished tasks, *hours* the CPU hours that the
    round would request.
    """
    runs = [choice for choice in chosen if choice.run]
    if not chosen:
        return "all tasks are done"
    if not runs:
        return _why_none(chosen)
    is_first = any(choice.sized for choice in runs)  # they are no second try
    if before.rounds >= heal.max_rounds and not is_first:
        return f"{before.rounds} rounds, as many as --max-rounds allows"
    gains = before.finished > 0 or any(c.memory > 1 or c.time > 1 for c in runs)
    if before.rounds > 1 and not gains:
        return f"no progress in round {before.rounds}"
    if heal.max_hours is None:
        return None
    return _over(before.hours, hours, heal.max_hours)


def _why_none(chosen: Sequence[Choice]) -> str:
    """Return why none of the unfinished tasks runs again."""
    held = next((one.reason for one in chosen if is_held(one.reason)), None)
    if held is not None:
        return f"the others were not sent: {held.removeprefix(HELD)}"
    bugs = all(is_bug(choice.reason) for choice in chosen)
    return "only bugs are left" if bugs else "nothing left that a retry could fix"


def _over(before: float | None, more: float | None, most: float) -> str | None:
    if before is None or more is None:
        return "no time limit, so --max-hours cannot be kept"
    total = before + more
    if total <= most:
        return None
    return f"a further round makes {total:.3g} CPU hours, of --max-hours {most:g}"
