"""Which unfinished tasks to run again, and with what more: pure."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.job import ElementState, Submitted, TaskState
from weigh.model.record import State
from weigh.model.staging import Earlier, Staging
from weigh.outcome import out_of_memory

FACTOR = 2
_QUICKLY = 10.0  # seconds: who dies sooner on a good node dies of itself
_USAGE, _NOT_EXECUTABLE, _NOT_FOUND = 2, 126, 127
# what Python says last where the program is wrong, not its surroundings
_BUG = re.compile(
    r"^(?:\w+\.)*(?:ArithmeticError|AssertionError|AttributeError|FloatingPointError|"
    r"ImportError|IndentationError|IndexError|KeyError|ModuleNotFoundError|NameError|"
    r"NotImplementedError|OverflowError|RecursionError|SyntaxError|TabError|TypeError|"
    r"UnboundLocalError|UnicodeError|ValueError|ZeroDivisionError)\b.*",
    re.MULTILINE,
)

UNKNOWN_END = "how it ended is not known"
_LEFT: dict[State, str] = {
    "PENDING": "has not ended",
    "RUNNING": "has not ended",
    "UNKNOWN": UNKNOWN_END,
    "COMPLETED": "done",
}


class Choice(msgspec.Struct, frozen=True):
    """What becomes of a task: ``run`` it again or not, and why.

    ``memory`` and ``time`` are times as much; ``avoid`` is a node to stay away from.
    """

    run: bool
    reason: str
    memory: int = 1
    time: int = 1
    avoid: str | None = None


def choose(
    task: TaskState, element: ElementState, words: str, *, failures: int
) -> Choice:
    """Decide by why it did not finish; *words* are the last that it printed.

    *failures* is how often it failed of itself in this job and those before.
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
            run=False, reason="needs more GPU memory than the GPU has: a larger GPU"
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
            run=True, reason="its node ended it within seconds", avoid=element.node
        )
    return Choice(run=True, reason="failed once")


def _bug(task: TaskState, words: str) -> str | None:
    """Name what is wrong with the program, where it says so."""
    found = _BUG.findall(words)
    if found:
        return str(found[-1].strip())
    if task.exit_code == _NOT_FOUND:
        return "command not found"
    if task.exit_code == _NOT_EXECUTABLE:
        return "cannot be executed"
    if task.exit_code == _USAGE:
        return "exit code 2, as for a wrong option"
    return None


def _died_at_once(element: ElementState) -> bool:
    if element.signal is None or None in {element.started, element.ended}:
        return False
    return (element.ended or 0) - (element.started or 0) < _QUICKLY


Chosen = tuple[TaskState, Choice]


def keep_together(choices: Sequence[Chosen]) -> Iterator[Chosen]:
    """Give the tasks of each element the most that one of them needs."""
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
    """Say of each element to come which it goes on from; *tasks* are in its order."""
    if staging is None:
        return None
    by_id = {job.id: job for job in jobs}
    before = dict.fromkeys((task.job, task.element) for task in tasks)
    earlier = tuple(_earlier(by_id[job], element) for job, element in before)
    return msgspec.structs.replace(staging, continues=earlier)


def _earlier(job: Submitted, element: int) -> Earlier:
    """Name an element and those that it goes on from itself, the newest first."""
    number = job.first + element
    label = f"{job.id}_{number}"
    continues = () if job.staging is None else job.staging.continues
    if not continues:
        return Earlier((label,), job.id, number)
    before = continues[number]
    return Earlier((label, *before.labels), before.job, before.element)
