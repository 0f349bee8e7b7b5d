"""Decide which unfinished tasks run again, and with how much more; no I/O."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import NOT_EXECUTABLE, NOT_FOUND, USAGE
from weigh.model.job import (
    OUTCOME_UNKNOWN,
    ElementState,
    JobRequest,
    Submitted,
    TaskState,
)
from weigh.model.record import State
from weigh.model.staging import Earlier, Staging
from weigh.outcome import out_of_memory
from weigh.request import round_memory, round_time
from weigh.units import parse_limit, parse_size

FACTOR = 2
_QUICKLY = 10.0  # seconds: a task that is killed sooner was probably on a bad node
# Python's last line of output when the program is wrong, not its environment
_BUG = re.compile(
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FloatingPointError|"
    r"ImportError|IndentationError|IndexError|KeyError|ModuleNotFoundError|NameError|"
    r"NotImplementedError|OverflowError|RecursionError|SyntaxError|TabError|TypeError|"
    r"UnboundLocalError|UnicodeError|ValueError|ZeroDivisionError)\b.*",
    re.MULTILINE,
)

_LEFT: dict[State, str] = {
    "PENDING": "has not ended",
    "RUNNING": "has not ended",
    "UNKNOWN": OUTCOME_UNKNOWN,
    "COMPLETED": "done",
}


class Choice(msgspec.Struct, frozen=True):
    """The decision on a task: ``run`` it again or not, and why.

    ``memory`` and ``time`` are factors; ``avoid`` is a node to exclude.
    """

    run: bool
    reason: str
    memory: int = 1
    time: int = 1
    avoid: str | None = None


class ResumeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None: decide by why each task did not finish."""

    memory: str | None = None
    time: str | None = None
    queue: str | None = None
    gpus: str | None = None
    bugs: bool = False
    unknown: bool = False
    dry_run: bool = False


def choose(
    task: TaskState, element: ElementState, words: str, *, failures: int
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
        return _more_memory(words)
    if task.state == "TIMEOUT":
        return Choice(run=True, reason="ran out of time", time=FACTOR)
    if task.state == "NODE_FAIL":
        return Choice(run=True, reason="its node failed", avoid=element.node)
    if task.state == "FAILED":
        return _failed(task, element, words, failures)
    return Choice(run=True, reason=task.state.lower())


def _more_memory(words: str) -> Choice:
    lacked = out_of_memory(words)
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


def enlarged(
    request: JobRequest, choices: Sequence[Choice], options: ResumeOptions
) -> JobRequest:
    """Return the request with more of what was too small, or as *options* say."""
    more = choices[0]
    memory, limit = request.memory, request.time_limit
    virtual = request.virtual_memory
    if options.memory is not None:
        memory = parse_size(options.memory)
        if virtual is not None:  # keep the difference: mapped memory does not change
            mapped = 0 if request.memory is None else virtual - request.memory
            virtual = max(memory, memory + mapped)
    elif more.memory > 1:
        memory = None if memory is None else round_memory(memory * more.memory)
        virtual = None if virtual is None else round_memory(virtual * more.memory)
    if options.time is not None:
        limit = parse_limit(options.time)
    elif more.time > 1 and limit is not None:
        limit = round_time(limit * more.time)
    avoid = [choice.avoid for choice in choices if choice.avoid]
    return msgspec.structs.replace(
        request,
        memory=memory,
        virtual_memory=virtual,
        time_limit=limit,
        queue=options.queue or request.queue,
        exclude=tuple(dict.fromkeys((*request.exclude, *avoid))),
    )
