"""Decide which unfinished tasks run again, with how much more, and until when; no I/O.

A person who resumes a job and the healer decide by the same rules. A healer also keeps
to limits (`Heal`), leaves what somebody cancelled, and stops where a round gains
nothing, so that each chain of rounds ends.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.errors import NOT_EXECUTABLE, NOT_FOUND, USAGE
from weigh.model.job import (
    OUTCOME_UNKNOWN,
    ElementState,
    Heal,
    JobRequest,
    Submitted,
    TaskState,
)
from weigh.model.record import State
from weigh.model.staging import Earlier, Staging
from weigh.outcome import fixed_heap, out_of_memory
from weigh.request import LEAST_MEMORY, round_shared, round_time
from weigh.units import (
    HOUR,
    MIB,
    Bytes,
    format_duration,
    format_limit,
    format_size,
    parse_limit,
    parse_size,
)

FACTOR = 2
HELD = "waits for the first tasks: "  # how the reason of a task begins that waits
_OWN = 32 * MIB  # of weigh exec and the shell of the job script
_MARGIN = 1.2  # above the largest peak that was not enough, and a predicted time
_QUICKLY = 10.0  # seconds: a task that is killed sooner was probably on a bad node
# Python's last line of output when the program is wrong, not its environment
_BUG = re.compile(
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FloatingPointError|"
    r"ImportError|IndentationError|IndexError|KeyError|ModuleNotFoundError|NameError|"
    r"NotImplementedError|OverflowError|RecursionError|SyntaxError|TabError|TypeError|"
    r"UnboundLocalError|UnicodeError|ValueError|ZeroDivisionError)\b.*",
    re.MULTILINE,
)

_BUG_REASONS = ("a bug", "failed", "raise ")  # how the reason of a bug begins
_LEFT: dict[State, str] = {
    "PENDING": "has not ended",
    "RUNNING": "has not ended",
    "UNKNOWN": OUTCOME_UNKNOWN,
    "COMPLETED": "done",
}


LOWERS_MEMORY = frozenset({"mem-update"})  # options that do while a job runs


class Choice(msgspec.Struct, frozen=True):
    """The decision on a task: ``run`` it again or not, and why.

    ``memory`` and ``time`` are factors; ``need`` is what the task alone gets, where its
    memory grows and is known, or where it is ``sized`` from the first tasks.
    ``together`` is how many tasks ran at once in its element, where that is known.
    ``avoid`` is a node to exclude.
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
    def grows(self) -> bool:
        """Return whether the task gets more than last time."""
        return self.memory > 1 or self.time > 1

    @property
    def ran_short(self) -> bool:
        """Return whether the task ran out of memory."""
        return self.memory > 1 or (self.need is not None and not self.sized)


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None: decide by why each task did not finish."""

    memory: str | None = None
    time: str | None = None
    queue: str | None = None
    gpus: str | None = None
    bugs: bool = False
    unknown: bool = False
    heal: bool = False
    dry_run: bool = False


def choose(
    task: TaskState,
    element: ElementState,
    words: str,
    *,
    failures: int,
    command: str = "",
) -> Choice:
    """Decide by the reason why a task did not finish; *words* are its last output.

    *failures* counts its failures in this job and the jobs before.
    """
    if task.state in _LEFT:
        why = (
            f": {element.reason}" if task.state == "UNKNOWN" and element.reason else ""
        )
        return Choice(run=False, reason=f"{_LEFT[task.state]}{why}")
    if task.state == "OUT_OF_MEMORY":
        return _more_memory(words, command)
    if task.state == "TIMEOUT":
        return Choice(run=True, reason="ran out of time", time=FACTOR)
    if task.state == "NODE_FAIL":
        return Choice(run=True, reason="its node failed", avoid=element.node)
    if task.state == "FAILED" or _diverged(task):
        return _failed(task, element, words, failures)
    return Choice(run=True, reason=task.state.lower())


def _more_memory(words: str, command: str) -> Choice:
    lacked = out_of_memory(words)
    fixed = None if lacked is None else fixed_heap(lacked.words, command)
    if fixed is not None:
        reason = f"raise {fixed}: more memory for the job cannot help"
        return Choice(run=False, reason=reason)
    if lacked is not None and lacked.on_gpu:
        return Choice(
            run=False, reason="needs more GPU memory than the GPU has: use a larger GPU"
        )
    return Choice(run=True, reason="ran out of memory", memory=FACTOR)


def _failed(
    task: TaskState, element: ElementState, words: str, failures: int
) -> Choice:
    bug = _bug(task, words)
    if bug is not None:
        return Choice(run=False, reason=f"a bug: {bug}")
    if failures > 1:
        return Choice(run=False, reason=f"failed {failures} times")
    if task.exit_code is None and task.signal is None and _died_at_once(element):
        return Choice(
            run=True, reason="killed within seconds of its start", avoid=element.node
        )
    return Choice(run=True, reason="failed once")


def _bug(task: TaskState, words: str) -> str | None:
    """Return the error in the program, if the output or exit code shows one."""
    if _diverged(task):
        return task.reason
    found = _BUG.findall(words)
    if found:
        return str(found[-1].strip())
    if task.exit_code == NOT_FOUND:
        return "command not found"
    if task.exit_code == NOT_EXECUTABLE:
        return "cannot be executed"
    if task.exit_code == USAGE:
        return "exit code 2, as for a wrong option"
    return None


def _diverged(task: TaskState) -> bool:
    """Return whether the task was stopped because a value was no number."""
    return (task.reason or "").startswith("diverged")


def _died_at_once(element: ElementState) -> bool:
    if element.signal is None or None in {element.started, element.ended}:
        return False
    return (element.ended or 0) - (element.started or 0) < _QUICKLY


Chosen = tuple[TaskState, Choice]


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
        yield task, msgspec.structs.replace(choice, memory=memory, time=time)


def continued(
    staging: Staging | None, tasks: Sequence[TaskState], jobs: Sequence[Submitted]
) -> Staging | None:
    """Return the staging with, per new element, the element that it continues."""
    if staging is None:
        return None
    by_id = {job.id: job for job in jobs}
    before = dict.fromkeys((task.job, task.element) for task in tasks)
    earlier = tuple(_earlier(by_id[job], element) for job, element in before)
    return msgspec.structs.replace(staging, continues=earlier)


def _earlier(job: Submitted, element: int) -> Earlier:
    """Return an element and the ones that it continues, the newest first."""
    number = job.first + element
    label = f"{job.id}_{number}"
    continues = () if job.staging is None else job.staging.continues
    if not continues:
        return Earlier((label,), job.id, number)
    before = continues[number]
    return Earlier((label, *before.labels), before.job, before.element)


def fitted(  # noqa: PLR0913 - keyword-only past the fourth
    choice: Choice,
    task: TaskState,
    had: JobRequest,
    options: ResumeOptions,
    *,
    together: int = 1,
    rounds: int = 1,
    heal: Heal | None = None,
) -> Choice:
    """Return the choice with the memory that the task needs, where that is known.

    *had* is the request of its element, in which *together* tasks ran at once, in the
    last of *rounds*. A task does not run if what it lacked is not known, or above the
    limits of *heal*.
    """
    more = FACTOR if rounds == 1 else FACTOR * FACTOR  # 4 rounds reach 32 times
    choice = msgspec.structs.replace(
        choice,
        together=together,
        memory=more if choice.memory > 1 else 1,
        time=more if choice.time > 1 else 1,
    )
    if not choice.run:
        return choice
    if heal is not None and task.state == "CANCELLED":
        return _left(choice, "cancelled")
    if (choice.memory > 1 or task.short) and options.memory is None:
        choice = _with_need(_short(choice, more), task, had, heal)
    if choice.run and choice.time > 1 and options.time is None:
        most = None if heal is None else heal.max_time
        if had.time_limit is None:
            return _left(choice, f"{choice.reason}, the queue's default: --time TIME")
        if most is not None and had.time_limit >= most:
            return _left(choice, f"{choice.reason}: --max-time is {format_limit(most)}")
        if most is not None and task.needs is not None and task.needs > most:
            needs = f"needs about {format_duration(task.needs)}"
            return _left(choice, f"{needs}: --max-time is {format_limit(most)}")
        while max(1, had.time_limit) * choice.time < _MARGIN * (task.needs or 0.0):
            choice = msgspec.structs.replace(choice, time=FACTOR * choice.time)
    return choice


def _short(choice: Choice, more: int) -> Choice:
    """Return the choice with *more* memory: the task ran out of it, now or before."""
    if choice.memory > 1:
        return choice
    reason = f"{choice.reason}, ran out of memory before"
    return msgspec.structs.replace(choice, memory=more, reason=reason)


def _with_need(
    choice: Choice, task: TaskState, had: JobRequest, heal: Heal | None
) -> Choice:
    """Return the choice with more memory than was too small, within the limits."""
    if had.memory is None:
        if had.virtual_memory is None:
            why = f"{choice.reason}, the queue's default: --memory SIZE"
            return _left(choice, why)
        return choice
    held = max(held_by(task, had.memory, choice.together), task.peak or 0)
    most = None if heal is None else heal.max_memory
    if most is not None and held >= most:
        return _left(choice, f"{choice.reason}: --max-memory is {format_size(most)}")
    need = choice.memory * held_by(task, had.memory, choice.together)
    need = max(need, int(_MARGIN * (task.peak or 0)))
    return msgspec.structs.replace(choice, need=min(need, most or need))


def held_by(task: TaskState, memory: Bytes, together: int) -> Bytes:
    """Return what a task could hold at most of the *memory* of its element."""
    if task.alone or together == 1:
        return memory
    return min(memory, task.reserved or memory // together)


def _left(choice: Choice, reason: str) -> Choice:
    return msgspec.structs.replace(choice, run=False, reason=reason)


def at_once(choice: Choice, memory: Bytes | None) -> int:
    """Return how many such tasks run at once in an element that had *memory*."""
    if choice.need is None or memory is None:
        return choice.together
    return max(1, min(choice.together, memory // choice.need))


def larger(
    first: JobRequest, before: JobRequest, heal: Heal, number: int
) -> Iterator[JobRequest]:
    """Yield requests for the round *number* that is sent ahead, the largest first.

    The memory is 2, 8, 32 times that of the *first* round, as where a healer sends it;
    the time 2, 4, 8 times. All are larger than that of the round *before*.
    """
    memory, limit = first.memory, first.time_limit
    most = fewer = memory
    if memory is not None:
        factor = FACTOR * (FACTOR * FACTOR) ** (number - 1)
        most = min(round_shared(memory * factor), heal.max_memory or memory * factor)
        fewer = min(round_shared(memory * factor // 2), most)
    longest = limit
    if limit is not None:
        longer = round_time(limit * FACTOR**number)
        longest = min(longer, heal.max_time or longer)
    had = before.memory or 0, before.time_limit or 0
    both = [
        (size, time)
        for size in (most, fewer, before.memory)
        for time in (longest, before.time_limit)
        if (size or 0) >= had[0] and (time or 0) >= had[1]
    ]
    for size, time in dict.fromkeys(both):
        if (size, time) == (before.memory, before.time_limit):
            continue
        virtual = first.virtual_memory
        if virtual is not None and size and memory:
            virtual = round_shared(virtual * size / memory)
        yield msgspec.structs.replace(
            before,
            memory=size,
            virtual_memory=virtual,
            time_limit=time,
            extra=_keeping_memory(before.extra),
        )


def in_granted(
    choices: Sequence[Chosen], hads: Mapping[str, JobRequest], granted: JobRequest
) -> list[list[Chosen]]:
    """Return the tasks to run that fit what was *granted* already, in groups.

    As many tasks of a group as fit share an element, each with the same need. Those
    that ran out of time are apart: else each element is held until its one long task
    ends. *hads* are the requests by job. A task that was too large for what it had
    runs only where more was granted.
    """
    groups: dict[tuple[bool, int], list[Chosen]] = {}
    for task, choice in choices:
        had = hads[task.job]
        if choice.run and _fits(task, choice, had, granted):
            need = _needed(task, choice, had)
            if granted.memory is not None and need is not None:
                need = min(granted.memory, need)
            given = msgspec.structs.replace(choice, need=need, time=1)
            kind = choice.time == 1, -at_once(given, granted.memory)
            groups.setdefault(kind, []).append((task, given))
    return [with_largest_need(groups[kind]) for kind in sorted(groups)]


def with_largest_need(chosen: Sequence[Chosen]) -> list[Chosen]:
    """Return the tasks of a group, each with the largest need among them."""
    most = max((choice.need or 0 for _, choice in chosen), default=0)
    if not most:
        return list(chosen)
    return [
        (task, msgspec.structs.replace(choice, need=most)) for task, choice in chosen
    ]


def _fits(
    task: TaskState, choice: Choice, had: JobRequest, granted: JobRequest
) -> bool:
    """Return whether *granted* is more than what is known to be too small."""
    memory, limit = granted.memory, granted.time_limit
    if had.memory is not None and memory is not None:
        held = held_by(task, had.memory, choice.together)
        if memory < held or (choice.memory > 1 and memory == held):
            return False
        if choice.memory > 1 and memory < _MARGIN * (task.peak or 0):
            return False
    if had.time_limit is None or limit is None:
        return choice.time == 1
    if choice.time == 1:
        return limit >= had.time_limit
    return limit > had.time_limit and limit >= _MARGIN * (task.needs or 0.0)


def _needed(task: TaskState, choice: Choice, had: JobRequest) -> Bytes | None:
    if choice.need is not None or had.memory is None:
        return choice.need
    share = had.memory // choice.together
    if task.peak is not None:  # it may have held the whole element, and not used it
        return max(share, int(_MARGIN * task.peak))
    return task.reserved or share


def enlarged(
    request: JobRequest,
    choices: Sequence[Choice],
    options: ResumeOptions,
    heal: Heal | None = None,
) -> JobRequest:
    """Return the request with more of what was too small, or as *options* say.

    It is never less than before, except for CPUs where fewer tasks run at once. What
    ran out of memory keeps what it is given: no option lets that fall again.
    """
    more = choices[0]
    is_short = any(choice.ran_short for choice in choices)
    memory, limit = request.memory, request.time_limit
    virtual, cpus = request.virtual_memory, request.cpus
    if options.memory is not None:
        memory = parse_size(options.memory)
        if virtual is not None:  # keep the difference: mapped memory does not change
            mapped = 0 if request.memory is None else virtual - request.memory
            virtual = max(memory, memory + mapped)
    elif more.sized and more.need is not None:
        memory = memory_for(more.need, at_once(more, memory))
        if virtual is not None:  # as much more than memory as before
            virtual = max(memory, virtual - (request.memory or 0) + memory)
    elif more.need is not None and memory is not None:
        least = more.need * at_once(more, memory)
        most = None if heal is None else heal.max_memory
        rounded = round_shared(least)
        memory = max(memory, rounded if most is None else min(rounded, most))
        cpus = -(-cpus * at_once(more, request.memory) // more.together)
        if virtual is not None:
            ratio = memory / (request.memory or memory)
            virtual = max(virtual, round_shared(virtual * ratio))
    elif more.memory > 1:
        memory = None if memory is None else round_shared(memory * more.memory)
        virtual = None if virtual is None else round_shared(virtual * more.memory)
    if options.time is not None:
        limit = parse_limit(options.time)
    elif more.time > 1 and limit is not None:
        longer = round_time(limit * more.time)
        most_time = None if heal is None else heal.max_time
        limit = max(limit, longer if most_time is None else min(longer, most_time))
    avoid = [choice.avoid for choice in choices if choice.avoid]
    return msgspec.structs.replace(
        request,
        cpus=cpus,
        memory=memory,
        virtual_memory=virtual,
        time_limit=limit,
        queue=options.queue or request.queue,
        exclude=tuple(dict.fromkeys((*request.exclude, *avoid))),
        extra=_keeping_memory(request.extra) if is_short else request.extra,
    )


def _keeping_memory(
    flags: Sequence[tuple[str, str]],
) -> tuple[tuple[str, str], ...]:
    """Return the flags without those that let the memory of a running job fall."""
    return tuple((name, value) for name, value in flags if name not in LOWERS_MEMORY)


def memory_for(need: Bytes, together: int) -> Bytes:
    """Return what to request for an element of *together* tasks with that *need*."""
    return max(LEAST_MEMORY, round_shared(need * together + _OWN))


def is_held(reason: str) -> bool:
    """Return whether a task waits for the first tasks of its plan."""
    return reason.startswith(HELD)


def is_bug(reason: str) -> bool:
    """Return whether a task is left because its program fails by itself."""
    return reason.startswith(_BUG_REASONS)


def change_words(before: JobRequest, after: JobRequest) -> str:
    """Write what of an element's request has changed; empty if nothing."""
    words = []
    old, new = before.memory, after.memory
    if old is None or new is None:
        old, new = before.virtual_memory, after.virtual_memory
    if old is not None and new is not None and new != old:
        words.append(f"{format_size(old)} -> {format_size(new)}")
    elif after.cpus < before.cpus:
        words.append(f"{after.cpus} instead of {before.cpus} CPUs")
    if (after.time_limit or 0) > (before.time_limit or 0):
        longer = format_limit(after.time_limit or 0)
        words.append(f"{format_limit(before.time_limit or 0)} -> {longer}")
    if set(after.exclude) - set(before.exclude):
        words.append(f"not on {', '.join(after.exclude)}")
    kept = {name for name, _ in after.extra}
    left_out = [f"--{name}" for name, _ in before.extra if name not in kept]
    words += [f"without {', '.join(left_out)}"] if left_out else []
    return ", ".join(words)


def cpu_hours(request: JobRequest, elements: int) -> float | None:
    """Return the CPU hours that *elements* may use; None without a time limit."""
    if request.time_limit is None:
        return None
    each = max(1, request.cpus) * request.nodes * request.time_limit / HOUR
    return elements * each


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
    first = any(choice.sized for choice in runs)  # they are no second try
    if before.rounds >= heal.max_rounds and not first:
        return f"{before.rounds} rounds, as many as --max-rounds allows"
    gains = before.finished > 0 or any(choice.grows for choice in runs)
    if before.rounds > 1 and not gains:
        return f"no progress in round {before.rounds}"
    return (
        None if heal.max_hours is None else _over(before.hours, hours, heal.max_hours)
    )


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
    if before + more <= most:
        return None
    return (
        f"a further round makes {before + more:.3g} CPU hours, of --max-hours {most:g}"
    )
