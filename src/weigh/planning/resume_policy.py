"""Decide which unfinished tasks run again, with how much more, and until when; no I/O.

A person who resumes a job and the healer decide by the same rules. A healer also keeps
to limits (`HealLimits`), leaves what somebody cancelled, and stops where a round gains
nothing, so that each chain of rounds ends.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from weigh.errors import NOT_EXECUTABLE, NOT_FOUND, USAGE
from weigh.model.job import (
    ANY_QUEUE,
    NOT_STARTED,
    OUTCOME_UNKNOWN,
    ElementState,
    HealLimits,
    JobRequest,
    TaskState,
)
from weigh.model.plan import (
    SCHEMA_OF_QUEUES,
    Plan,
    PlannedElement,
    PlannedQueue,
    TaskKind,
    TaskNeed,
)
from weigh.model.record import State
from weigh.planning.queue_order import size_of_round
from weigh.request import round_shared, round_time
from weigh.units import (
    HOUR,
    Bytes,
    Seconds,
    format_duration,
    format_limit,
    format_size,
    format_three_digits,
    parse_limit,
    parse_size,
)
from weigh.why_run_ended import fixed_heap, out_of_memory

_LARGER_GPU = "needs more GPU memory than the GPU has: --gpus TYPE:N"
# the need is not known, only that it is more: doubling finds it in few rounds and
# wastes half at most
_FACTOR = 2
_MARGIN = 1.2  # above the largest peak that was not enough, and a predicted time
# Python's last line of output when the program is wrong, not its environment
_BUG = re.compile(
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FloatingPointError|"
    r"ImportError|IndentationError|IndexError|JSONDecodeError|KeyError|LookupError|"
    r"ModuleNotFoundError|NameError|NotImplementedError|OverflowError|RecursionError|"
    r"SyntaxError|TabError|TypeError|UnboundLocalError|"
    r"Unicode(?:Decode|Encode|Translate)?Error|ValueError|ZeroDivisionError)\b.*",
    re.MULTILINE,
)
_BUG_CODES = {
    NOT_FOUND: "command not found",
    NOT_EXECUTABLE: "cannot be executed",
    USAGE: "exit code 2, as for a wrong option",
}
# how the reason begins of an element that lacked a program, as its job script puts it
_NO_PROGRAM = ("not found on ", "not found in ", "not executable: ")
_BUG_REASONS = ("a bug", "failed", "raise ")  # how the reason of a bug begins


# states of tasks that no round runs again, with the reason that is shown
_NOT_LEFT: dict[State, str] = {
    "PENDING": "not ended yet",
    "RUNNING": "not ended yet",
    "COMPLETED": "done",
    "DIVERGED": "a bug: its output diverged",
}
# states in which the program, not its request, may be at fault
BUGGY_STATES: frozenset[State] = frozenset({"FAILED", "STUCK", "DIVERGED"})
_WORDS: dict[State, str] = {
    "TIMEOUT": "ran out of time",
    "NODE_FAIL": "its node failed",
    "STUCK": "was stuck",
}


class ResumeChoice(msgspec.Struct, frozen=True):
    """The decision on a task: ``run`` it again or not, and why.

    ``memory`` and ``time`` are factors; ``need`` is what the task alone gets, where its
    memory grows and is known. ``together`` is how many tasks ran at once in its
    element, ``avoid`` is a node.
    """

    run: bool  # False: leave it
    reason: str
    memory: int = 1
    time: int = 1
    need: Bytes | None = None
    together: int = 1  # tasks at once in its element
    avoid: str | None = None  # None: any node

    @property
    def ran_short(self) -> bool:
        """Return whether the task ran out of memory."""
        return self.memory > 1 or self.need is not None

    def at_once(self, memory: Bytes | None) -> int:
        """Return how many such tasks run at once in an element that had *memory*."""
        if self.need is None or memory is None:
            return self.together
        # a task that needs more than the element had still runs: then the element grows
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
    limits: HealLimits | None = None


class LastRequest(msgspec.Struct, frozen=True):
    """What a task had last: its element's request, how many shared it, the round."""

    request: JobRequest
    together: int = 1  # tasks that shared the element
    round: int = 1

    @property
    def factor(self) -> int:
        """Return how much more is tried next: 4 rounds reach 32 times."""
        # 1, 2, 8, 32 times the first request
        return _FACTOR if self.round == 1 else _FACTOR**2

    def held_by(self, task_state: TaskState) -> Bytes:
        """Return what a task could hold at most of the memory of its element."""
        memory = self.request.memory or 0
        # nobody else used the element's memory
        if task_state.alone or self.together == 1:
            return memory
        # weigh exec reserves by the tasks' needs; without one each has an equal part
        return min(memory, task_state.reserved or memory // self.together)


Chosen = tuple[TaskState, ResumeChoice]


class TaskEvidence(msgspec.Struct, frozen=True):
    """What shows why a task did not finish, besides its own state."""

    element: ElementState
    last_output: str = ""
    """The end of what it printed."""
    command: str = ""
    failures: int = 0
    """How often it failed in all jobs of its plan."""


def decide_resumption(
    task_state: TaskState,
    evidence: TaskEvidence,
    last_request: LastRequest,
    options: ResumeOptions,
) -> ResumeChoice:
    """Decide by the reason why a task did not finish.

    It does not run if what it lacked is not known, or above the limits.
    """
    choice = _choice_by_cause(task_state, evidence)
    # --gpus changes the one thing that the task lacked
    if options.gpus is not None and choice.reason == _LARGER_GPU:
        choice = ResumeChoice(run=True, reason="ran out of GPU memory")
    # the user knows better: the program was fixed, or the outcome looked up
    if (options.bugs and task_state.state in BUGGY_STATES) or (
        options.unknown and task_state.state == "UNKNOWN"
    ):
        choice = replace(choice, run=True)
    if not choice.run:
        return choice
    # a person cancelled it: a healer must not start it again behind their back
    if options.limits is not None and task_state.state == "CANCELLED":
        return _choice_to_leave("cancelled")
    choice = replace(choice, together=last_request.together)
    # short: an earlier attempt ran out of memory, so the old request would fail once
    # more
    if choice.memory > 1 or (task_state.short and options.memory is None):
        choice = _choice_with_memory(choice, task_state, last_request, options)
    if choice.run and choice.time > 1:
        choice = _with_time(choice, task_state, last_request, options)
    return choice


def _choice_by_cause(task_state: TaskState, evidence: TaskEvidence) -> ResumeChoice:
    state, element = task_state.state, evidence.element
    # it never ran, so its program has not failed
    if state == "FAILED" and NOT_STARTED in (task_state.reason or ""):
        return ResumeChoice(run=True, reason="waited for a job that failed")
    if state == "FAILED":
        return _choice_after_failure(task_state, evidence)
    if state == "OUT_OF_MEMORY":
        return _choice_after_out_of_memory(evidence)
    why_left = _NOT_LEFT.get(state)
    if state == "UNKNOWN":
        why_left = ": ".join(filter(None, (OUTCOME_UNKNOWN, element.reason)))
    # a hang may be the node's (a driver, a mount); on two nodes it is the program's
    if state == "STUCK" and evidence.failures > 1:
        why_left = f"stuck or failed {evidence.failures} times"
    if why_left is not None:
        return _choice_to_leave(why_left)
    return ResumeChoice(
        run=True,
        reason=_WORDS.get(state, state.lower()),
        time=_FACTOR if state == "TIMEOUT" else 1,
        # what the scheduler preempted may go back there
        avoid=element.node if state in {"NODE_FAIL", "STUCK"} else None,
    )


def _choice_after_out_of_memory(evidence: TaskEvidence) -> ResumeChoice:
    # None: killed from outside, where the output shows nothing
    lacked = out_of_memory(evidence.last_output)
    fixed = None if lacked is None else fixed_heap(lacked.words, evidence.command)
    # -Xmx and the like: the program stops at its own limit, whatever the job has
    if fixed is not None:
        return _choice_to_leave(f"raise {fixed}: more memory for the job cannot help")
    if lacked is not None and lacked.on_gpu:
        return _choice_to_leave(_LARGER_GPU)
    return ResumeChoice(run=True, reason="ran out of memory", memory=_FACTOR)


def _choice_after_failure(
    task_state: TaskState, evidence: TaskEvidence
) -> ResumeChoice:
    shown = _BUG.findall(evidence.last_output)
    # the last one ended the program; earlier ones were caught, or are its causes
    bug = shown[-1].strip() if shown else _BUG_CODES.get(task_state.exit_code or 0)
    # the job script looked for the programs before the first task
    if bug is None and (task_state.reason or "").startswith(_NO_PROGRAM):
        bug = task_state.reason
    if bug is not None:
        return _choice_to_leave(f"a bug: {bug}")
    # once may be chance (a file system, a network): twice is taken as the program's own
    if evidence.failures > 1:
        return _choice_to_leave(f"failed {evidence.failures} times")
    return ResumeChoice(run=True, reason="failed once")


def _choice_to_leave(reason: str) -> ResumeChoice:
    return ResumeChoice(run=False, reason=reason)


def _choice_with_memory(
    choice: ResumeChoice,
    task_state: TaskState,
    last_request: LastRequest,
    options: ResumeOptions,
) -> ResumeChoice:
    """Return the choice with more memory than was too small, within the limits."""
    # it ended for another reason this time: both are named
    if choice.memory == 1:
        choice = replace(choice, reason=f"{choice.reason}, ran out of memory before")
    choice = replace(choice, memory=last_request.factor)
    # the user's size is for all tasks: nothing is worked out for each
    if options.memory is not None:
        return choice
    if last_request.request.memory is None:
        # a limit of address space can be raised in its place; otherwise the size to
        # double is only known to the site
        if last_request.request.virtual_memory is None:
            return _choice_to_leave(
                f"{choice.reason}, the queue's default: --memory SIZE"
            )
        return choice
    # 0: not measured, so what it could hold decides
    held, peak = last_request.held_by(task_state), task_state.peak or 0
    most = options.limits and options.limits.max_memory
    # it had the maximum already, or used more: with it the task would fail again
    if most and max(held, peak) >= most:
        return _choice_to_leave(f"{choice.reason}: --heal allows {format_size(most)}")
    # a peak above what the task could hold is the better evidence
    need = max(last_request.factor * held, int(_MARGIN * peak))
    return replace(choice, need=min(need, most or need))


def _with_time(
    choice: ResumeChoice,
    task_state: TaskState,
    last_request: LastRequest,
    options: ResumeOptions,
) -> ResumeChoice:
    """Return the choice with more time than was too short, within the limits."""
    limit, more = last_request.request.time_limit, last_request.factor
    needs = task_state.needs or 0.0
    # seconds; without a healer nothing limits what a person sends again
    most = options.limits and options.limits.max_time
    if options.time is not None:
        return replace(choice, time=more)
    if limit is None:
        return _choice_to_leave(f"{choice.reason}, the queue's default: --time TIME")
    if most and limit >= most:
        return _choice_to_leave(f"{choice.reason}: --heal allows {format_limit(most)}")
    # by its progress it cannot end within the limit: starting it would waste the time
    if most and needs > most:
        about = f"needs about {format_duration(needs)}"
        return _choice_to_leave(f"{about}: --heal allows {format_limit(most)}")
    return replace(choice, time=enough_time_factor(limit, needs, more))


def enough_time_factor(limit: int, needs: Seconds, factor: int = _FACTOR) -> int:
    """Return by how much to raise a time limit; *needs* is the time by its progress."""
    # whole powers of two, so that tasks with almost equal needs share one request
    while max(1, limit) * factor < _MARGIN * needs:
        factor *= _FACTOR
    return factor


def choices_kept_together(choices: Sequence[Chosen]) -> Iterator[Chosen]:
    """Yield the choices; tasks of one element get the largest factors among them."""
    most: dict[tuple[str, int], tuple[int, int]] = {}  # factors of memory and time
    for task, choice in choices:
        if choice.run:
            memory, time = most.get((task.job, task.element), (1, 1))
            more = max(memory, choice.memory), max(time, choice.time)
            most[task.job, task.element] = more
    for task, choice in choices:
        memory, time = most.get((task.job, task.element), (1, 1))
        yield task, replace(choice, memory=memory, time=time)


def group_by_request(
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
            # these do not say how large an element is: tasks that differ in them only
            # go together
            had = replace(requests[task.job], after=(), exclude=(), throttle=None)
            more = enlarged_request(had, [choice], options)
            memory = None if choice.need is None else more.memory
            at_once = choice.at_once(had.memory), choice.together
            # memory after rounding: needs that round to the same request share an array
            key = had, choice.memory, choice.time, memory, at_once
            groups.setdefault(key, []).append((task, choice))
    return [_with_largest_need(chosen) for chosen in groups.values()]


def _with_largest_need(chosen: list[Chosen]) -> list[Chosen]:
    most = max(choice.need or 0 for _, choice in chosen)
    return [(t, replace(c, need=most)) for t, c in chosen] if most else chosen


def enlarged_request(
    job_request: JobRequest, choices: Sequence[ResumeChoice], options: ResumeOptions
) -> JobRequest:
    """Return the request with more of what was too small, or as *options* say.

    It is never less than before, except for CPUs where fewer tasks run at once. What
    ran out of memory keeps what it is given: no option lets that fall again.
    """
    # all choices of a group agree in what is requested
    more, limits = choices[0], options.limits or HealLimits()
    memory, virtual = job_request.memory, job_request.virtual_memory
    cpus = job_request.cpus
    at_once = more.at_once(memory)
    if options.memory is not None:
        memory = parse_size(options.memory)
    elif more.need is not None and memory is not None:
        wanted = round_shared(more.need * at_once)  # has a share of the runner
        memory = max(memory, min(wanted, limits.max_memory or wanted))
        cpus = -(-cpus * at_once // more.together)
    elif more.memory > 1:
        memory = None if memory is None else round_shared(memory * more.memory)
    # address space grows by the same factor: its limit may be what the task ran into
    if virtual is not None and more.ran_short and options.memory is None:
        ratio: float = more.memory
        if memory and job_request.memory:
            ratio = memory / job_request.memory
        virtual = max(virtual, round_shared(virtual * ratio))
    elif virtual is not None and memory is not None and memory != job_request.memory:
        mapped = virtual - (job_request.memory or virtual)  # does not change
        virtual = memory + max(0, mapped)
    limit = job_request.time_limit
    if options.time is not None:
        limit = parse_limit(options.time)
    elif more.time > 1 and limit is not None:
        longer = round_time(limit * more.time)
        limit = max(limit, min(longer, limits.max_time or longer))
    # once avoided, a node stays excluded in later rounds
    avoid = [choice.avoid for choice in choices if choice.avoid]
    return replace(
        job_request,
        cpus=cpus,
        memory=memory,
        virtual_memory=virtual,
        time_limit=limit,
        queue=options.queue
        or (ANY_QUEUE if job_request.is_any_queue else job_request.queue),
        is_any_queue=False,
        exclude=tuple(dict.fromkeys((*job_request.exclude, *avoid))),
    )


def is_bug(reason: str) -> bool:
    """Return whether a task is left because its program fails by itself."""
    return reason.startswith(_BUG_REASONS)


def request_change_text(before: JobRequest, after: JobRequest) -> str:
    """Write what of an element's request has changed; empty if nothing."""
    old, new = before.memory, after.memory
    # Grid Engine limits address space: then that is what has changed
    if old is None or new is None:
        old, new = before.virtual_memory, after.virtual_memory
    words = []
    if old is not None and new is not None and new != old:
        words.append(f"{format_size(old)} -> {format_size(new)}")
    elif after.cpus < before.cpus:
        words.append(f"{after.cpus} instead of {before.cpus} CPUs")
    limit, longer = before.time_limit, after.time_limit
    if longer is not None and (limit is None or longer > limit):
        had = "the queue's default" if limit is None else format_limit(limit)
        words.append(f"{had} -> {format_limit(longer)}")
    if set(after.exclude) - set(before.exclude):
        words.append(f"not on {', '.join(after.exclude)}")
    return ", ".join(words)


def cpu_hours(job_request: JobRequest, elements: int) -> float | None:
    """Return the CPU hours that *elements* may use; None without a time limit."""
    if job_request.time_limit is None:
        return None
    cpus = elements * max(1, job_request.cpus) * job_request.nodes
    return cpus * job_request.time_limit / HOUR


class EarlierRounds(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds so far: how many, and how many tasks the last one finished.

    ``hours`` are the CPU hours that the rounds after the first requested, None if one
    had no time limit.
    """

    rounds: int
    finished: int
    hours: float | None  # CPU hours


def healer_stop_reason(
    chosen: Sequence[ResumeChoice],
    before: EarlierRounds,
    hours: float | None,
    heal_limits: HealLimits,
) -> str | None:
    """Return why a healer sends no further round; None if it sends one.

    *chosen* are the decisions on all unfinished tasks, *hours* the CPU hours that the
    round would request.
    """
    runs = [choice for choice in chosen if choice.run]
    if not runs:
        return _no_retry_reason(chosen)
    if before.rounds >= heal_limits.max_rounds:
        return f"{before.rounds} rounds, as many as --heal allows"
    # a round that gives more may succeed although the last one finished nothing
    gains = before.finished > 0 or any(c.memory > 1 or c.time > 1 for c in runs)
    if before.rounds > 1 and not gains:
        return f"no progress in round {before.rounds}"
    budget, total = heal_limits.max_hours, None
    if before.hours is not None and hours is not None:
        total = before.hours + hours
    if budget is None or (total is not None and total <= budget):
        return None
    if total is None:
        return "no time limit, so the hours of --heal cannot be kept"
    hours_text = format_three_digits(total)
    return f"a further round makes {hours_text} CPU hours, and --heal allows {budget:g}"


def _no_retry_reason(chosen: Sequence[ResumeChoice]) -> str:
    """Return why none of the unfinished tasks runs again."""
    return "nothing left that a retry could fix" if chosen else "all tasks are done"


class PreviousPlace(NamedTuple):
    """Where a task was: the plan of its job, its element there, its kind if known."""

    plan: Plan
    element: int  # from 0
    kind: int | None  # None: the plan does not have it


def previous_task_place(plan: Plan, element: int, task_number: int) -> PreviousPlace:
    """Return where the task at place *task_number*, from 1, of an element was."""
    kinds = plan.queue.kinds if plan.queue else plan.elements[element].kinds
    return PreviousPlace(
        plan, element, kinds[task_number - 1] if 0 < task_number <= len(kinds) else None
    )


def plan_of_round(
    plan: Plan,
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
    at_once: int,
    *,
    keeps: bool,
) -> Plan:
    """Return the plan of *tasks* with the same *choice*, of which *at_once* run.

    *plan* is the first one. Its tasks are pulled from its queue if it has one; *keeps*:
    tasks stay with those of their element.
    """
    made = replace(plan, left_out=())
    if plan.queue is not None:
        long = choice.time > 1 and plan.gpu is None  # tasks may share a GPU
        size = size_of_round(len(tasks), at_once, len(plan.elements), is_long=long)
        return _plan_with_queue(made, plan.queue, tasks, choice, size)
    parts = dict[object, list[int]]()
    # elements are filled as before, or with as many tasks as have room with their new
    # need
    most = max(len(element.tasks) for element in plan.elements)
    most = at_once if choice.need else most
    most = -(-len(tasks) // -(-len(tasks) // most))  # in equal parts
    # tasks of unlike kinds were packed to fit together: those stay in their element
    is_filled = (bool(choice.need) or len(plan.kinds) <= 1) and not keeps
    for place, (task, one) in enumerate(tasks.items()):
        # element numbers start again in each plan, so the plan is part of the key
        key = place // most if is_filled else (id(one.plan), one.element)
        parts.setdefault(key, []).append(task)
    return replace(made, elements=tuple(_round_elements(parts.values(), tasks, choice)))


def _round_elements(
    element_tasks: Iterable[list[int]],
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
) -> Iterator[PlannedElement]:
    for number, part in enumerate(element_tasks):
        first = tasks[part[0]]
        known = [kind for task in part if (kind := tasks[task].kind) is not None]
        is_known = len(known) == len(part) and choice.memory == 1  # else underestimated
        yield replace(
            first.plan.elements[first.element],
            file=f"tasks_{number}.txt",
            tasks=tuple(part),
            kinds=tuple(known) if is_known else (),
        )


def _plan_with_queue(
    plan: Plan,
    queue: PlannedQueue,
    tasks: Mapping[int, PreviousPlace],
    choice: ResumeChoice,
    size: tuple[int, int],
) -> Plan:
    """Return a plan of *size* elements and slots, which pull the tasks from *queue*."""
    count, slots = size
    grown = [
        _enlarged_kind(one.plan.kinds[one.kind or 0], choice) for one in tasks.values()
    ]
    # kinds of several plans meet here: equal ones become one
    kinds = list(dict.fromkeys(grown))
    memory = plan.elements[0].memory * choice.memory
    element = replace(plan.elements[0], tasks=(), kinds=(), memory=memory)
    return replace(
        plan,
        schema=SCHEMA_OF_QUEUES,
        kinds=tuple(kinds),
        elements=tuple(
            replace(element, file=f"tasks_{number}.txt") for number in range(count)
        ),
        queue=PlannedQueue(
            folder=queue.folder,
            tasks=tuple(tasks),
            kinds=tuple(map(kinds.index, grown)),
            slots=slots,
        ),
    )


def _enlarged_kind(task_kind: TaskKind, choice: ResumeChoice) -> TaskKind:
    def grown(task_need: TaskNeed) -> TaskNeed:
        memory = (
            task_need.memory * choice.memory if choice.need is None else choice.need
        )
        # a task that ran out of time takes longer than was thought, by the factor that
        # its limit grows by
        time = None if task_need.time is None else task_need.time * choice.time
        return replace(task_need, memory=memory, time=time)

    return replace(
        task_kind, item=grown(task_kind.item), used=grown(task_kind.used), notes=()
    )


def narrowed_request(
    job_request: JobRequest, plan: Plan, most_tasks: int
) -> JobRequest:
    """Return the request with fewer CPUs where fewer tasks run at once."""
    alike = len({kind.item.cpus for kind in plan.kinds}) <= 1
    if plan.together >= most_tasks or not alike:
        return job_request
    return replace(job_request, cpus=-(-job_request.cpus * plan.together // most_tasks))
