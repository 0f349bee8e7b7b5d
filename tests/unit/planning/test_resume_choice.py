"""Which unfinished tasks run again, and with what more."""

from typing import Any

import pytest
from msgspec.structs import replace

from weigh.model.job import ElementState, HealLimits, JobRequest, TaskState
from weigh.model.record import State
from weigh.planning.resume_policy import (
    LastRequest,
    ResumeChoice,
    ResumeOptions,
    TaskEvidence,
    decide_resumption,
    enlarged_request,
)
from weigh.units import GIB, HOUR, MIB

ENDED = ElementState(state="FAILED", node="node7")


def choose(
    task: TaskState,
    words: str = "",
    failures: int = 0,
    *,
    options: ResumeOptions | None = None,
    command: str = "",
) -> ResumeChoice:
    had = LastRequest(JobRequest(memory=GIB, time_limit=HOUR))
    evidence = TaskEvidence(ENDED, words, failures=failures, command=command)
    return decide_resumption(task, evidence, had, options or ResumeOptions())


def a_task(state: State, exit_code: int | None = 1) -> TaskState:
    return TaskState(
        task=1, job="7", element=0, seq=1, state=state, exit_code=exit_code
    )


def short_task(
    state: State = "OUT_OF_MEMORY", peak: int = 0, reserved: int = 0, **known: bool
) -> TaskState:
    """Return a task with sizes in MiB."""
    sizes = {"peak": peak * MIB, "reserved": reserved * MIB or None}
    return replace(a_task(state), **sizes, **known)


@pytest.mark.parametrize(
    ("state", "memory", "time", "avoid"),
    [
        ("OUT_OF_MEMORY", 2, 1, None),
        ("TIMEOUT", 1, 2, None),
        ("NODE_FAIL", 1, 1, "node7"),
        *((state, 1, 1, None) for state in ("CANCELLED", "INTERRUPTED", "PREEMPTED")),
    ],
)
def test_what_lacked_is_doubled_and_a_node_that_failed_avoided(
    state: State, memory: int, time: int, avoid: str | None
) -> None:
    choice = choose(a_task(state))

    assert (choice.run, choice.memory, choice.time) == (True, memory, time)
    assert choice.avoid == avoid


@pytest.mark.parametrize(
    ("needs", "most", "run", "time"),
    [
        (None, None, True, 2),
        (70.0, None, True, 2),  # in a limit of 60 s
        (110.0, None, True, 4),  # with a margin
        (500.0, None, True, 16),
        (500.0, 550, True, 16),  # the request is cut to the limit
        (500.0, 400, False, 2),
    ],
)
def test_more_time_is_what_the_progress_asks_for(
    needs: float | None,
    most: int | None,
    *,
    run: bool,
    time: int,
) -> None:
    task = replace(a_task("TIMEOUT"), needs=needs)
    limits = None if most is None else HealLimits(max_time=most)
    had = LastRequest(JobRequest(time_limit=60))
    evidence = TaskEvidence(ENDED)
    choice = decide_resumption(task, evidence, had, ResumeOptions(limits=limits))
    assert choice.run == run
    assert not run or choice.time == time


# an element had 1000 MiB and 4 CPUs: what a task of it gets in MiB, then how many tasks
# at once, memory and CPUs an element has
@pytest.mark.parametrize(
    ("round_", "together", "known", "most", "expected"),
    [
        (1, 1, {}, None, (2000, 1, 2000, 4)),
        (1, 1, {"state": "NODE_FAIL", "short": True}, None, (2000, 1, 2000, 4)),
        (1, 1, {"state": "NODE_FAIL"}, None, (None, 1, 1000, 4)),
        (2, 1, {}, None, (4000, 1, 4000, 4)),  # four times from the third round on
        (1, 1, {"peak": 1600}, None, (2000, 1, 2000, 4)),
        (1, 1, {"peak": 1900}, None, (2280, 1, 2300, 4)),  # 20 % above the peak
        # tasks that had a share each: twice that share, and fewer of them at once
        (1, 4, {}, None, (500, 2, 1000, 2)),
        (1, 4, {"reserved": 300}, None, (600, 1, 1000, 1)),
        (1, 4, {"reserved": 1200}, None, (2000, 1, 2000, 1)),
        (1, 4, {"reserved": 300, "alone": True}, None, (2000, 1, 2000, 1)),
        # within the limits of a healer
        (1, 1, {}, 1500, (1500, 1, 1500, 4)),
        (1, 1, {}, 1001, (1001, 1, 1001, 4)),
        (1, 1, {}, 1000, None),
        (1, 1, {"peak": 1600}, 1500, None),
    ],
)
def test_more_memory_is_twice_what_was_too_small(
    round_: int,
    together: int,
    known: dict[str, Any],
    most: int | None,
    expected: tuple[int | None, int, int, int] | None,
) -> None:
    had = LastRequest(JobRequest(memory=1000 * MIB, cpus=4), together, round_)
    limits = None if most is None else HealLimits(max_memory=most * MIB)
    options = ResumeOptions(limits=limits)

    choice = decide_resumption(short_task(**known), TaskEvidence(ENDED), had, options)

    assert choice.run == (expected is not None)
    if expected is not None:
        request = enlarged_request(had.request, [choice], options)
        need = None if choice.need is None else choice.need / MIB
        at_once = choice.at_once(had.request.memory)
        assert (need, at_once) == expected[:2]
        assert ((request.memory or 0) / MIB, request.cpus) == expected[2:]


def test_memory_that_is_typed_is_what_a_task_gets_that_was_short_before() -> None:
    had = LastRequest(JobRequest(memory=GIB, time_limit=HOUR))
    task = short_task(state="TIMEOUT", short=True)

    choice = decide_resumption(
        task, TaskEvidence(ENDED), had, ResumeOptions(memory="3GiB")
    )

    assert (choice.run, choice.memory, choice.time) == (True, 1, 2)


def test_more_host_memory_is_no_fix_for_a_full_gpu() -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"

    choice = choose(a_task("OUT_OF_MEMORY"), words)

    assert not choice.run
    assert "--gpus TYPE:N" in choice.reason


def test_what_filled_a_gpu_runs_on_another_one_that_is_requested() -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    had = LastRequest(JobRequest(memory=GIB, gpus=1))
    options = ResumeOptions(gpus="a100:1")

    evidence = TaskEvidence(ENDED, words)
    choice = decide_resumption(a_task("OUT_OF_MEMORY"), evidence, had, options)

    assert (choice.run, choice.memory) == (True, 1)


@pytest.mark.parametrize(
    ("words", "code", "failures", "run"),
    [
        *(
            (words, 1, 1, False)
            for words in (
                "Traceback (most recent call last):\nValueError: NaN",
                "ModuleNotFoundError: No module named 'torch'",
                "json.decoder.JSONDecodeError: x\nKeyError: 'lr'",
                "json.decoder.JSONDecodeError: Expecting value: line 1 column 1",
                "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
            )
        ),
        *(("", code, 1, False) for code in (2, 126, 127)),  # a wrong command line
        ("connection reset", 1, 1, True),
        ("", 1, 2, False),
    ],
)
def test_a_failure_that_may_be_an_accident_is_run_again_once(
    words: str, code: int, failures: int, *, run: bool
) -> None:
    assert choose(a_task("FAILED", code), words, failures).run is run


def test_a_heap_fixed_in_the_command_gets_no_more_memory() -> None:
    words = 'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space'

    fixed, elastic = (
        choose(a_task("OUT_OF_MEMORY"), words, command=f"java -Xmx{size} -jar a")
        for size in ("100m", "$X")
    )

    assert (fixed.run, elastic.run) == (False, True)
    assert "raise -Xmx100m" in fixed.reason


def test_a_stuck_task_goes_to_another_node_once_and_then_to_a_person() -> None:
    again = choose(a_task("STUCK"), failures=1)

    assert again == replace(again, run=True, avoid="node7", time=1, memory=1)
    assert not choose(a_task("STUCK"), failures=2).run
    by_hand = ResumeOptions(bugs=True)
    assert choose(a_task("STUCK"), failures=2, options=by_hand).run


def test_what_was_cancelled_is_left_by_a_healer() -> None:
    healer = ResumeOptions(heal=True, limits=HealLimits())
    assert not choose(a_task("CANCELLED"), options=healer).run


@pytest.mark.parametrize(
    "state", ["PENDING", "RUNNING", "UNKNOWN", "COMPLETED", "DIVERGED"]
)
def test_what_may_yet_end_or_is_a_bug_is_left_alone(state: State) -> None:
    assert not choose(a_task(state)).run
