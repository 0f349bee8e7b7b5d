"""Which unfinished tasks run again, and with what more."""

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
)
from weigh.units import GIB, HOUR

ENDED = ElementState(state="FAILED", node="node7")


def choose(
    task: TaskState, element: ElementState, words: str, failures: int
) -> ResumeChoice:
    had = LastRequest(JobRequest(memory=GIB, time_limit=HOUR))
    evidence = TaskEvidence(element, words, failures=failures)
    return decide_resumption(task, evidence, had, ResumeOptions())


def a_task(state: State, exit_code: int | None = 1) -> TaskState:
    return TaskState(
        task=1, job="7", element=0, seq=1, state=state, exit_code=exit_code
    )


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
    choice = choose(a_task(state), ENDED, "", 0)

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


def test_more_host_memory_is_no_fix_for_a_full_gpu() -> None:
    words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"

    choice = choose(a_task("OUT_OF_MEMORY"), ENDED, words, 0)

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
    assert choose(a_task("FAILED", code), ENDED, words, failures).run is run


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "UNKNOWN", "COMPLETED"])
def test_what_may_yet_end_is_left_alone(state: State) -> None:
    assert not choose(a_task(state), ENDED, "", 0).run
