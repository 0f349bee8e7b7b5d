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


def test_out_of_memory_doubles_the_memory() -> None:
    choice = choose(a_task("OUT_OF_MEMORY"), ENDED, "", 0)

    assert (choice.run, choice.memory, choice.time) == (True, 2, 1)


def test_out_of_time_doubles_the_time() -> None:
    choice = choose(a_task("TIMEOUT"), ENDED, "", 0)

    assert (choice.run, choice.memory, choice.time) == (True, 1, 2)


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


@pytest.mark.parametrize(("typed", "run"), [("2h", True), (None, False)])
def test_a_time_that_is_typed_serves_where_none_was_requested(
    typed: str | None, *, run: bool
) -> None:
    had, evidence = LastRequest(JobRequest()), TaskEvidence(ENDED)
    options = ResumeOptions(time=typed)
    choice = decide_resumption(a_task("TIMEOUT"), evidence, had, options)
    assert choice.run == run
    assert run or "--time TIME" in choice.reason


def test_a_node_that_failed_is_avoided() -> None:
    choice = choose(a_task("NODE_FAIL"), ENDED, "", 0)

    assert (choice.run, choice.avoid) == (True, "node7")


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
    "words",
    [
        "Traceback (most recent call last):\nValueError: NaN",
        "ModuleNotFoundError: No module named 'torch'",
        "json.decoder.JSONDecodeError: x\nKeyError: 'lr'",
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
    ],
)
def test_a_bug_is_not_run_again(words: str) -> None:
    assert not choose(a_task("FAILED"), ENDED, words, 1).run


@pytest.mark.parametrize("code", [2, 126, 127])
def test_a_wrong_command_line_is_not_run_again(code: int) -> None:
    assert not choose(a_task("FAILED", code), ENDED, "", 1).run


def test_what_failed_once_without_a_word_is_run_again() -> None:
    assert choose(a_task("FAILED"), ENDED, "connection reset", 1).run


def test_what_failed_twice_is_not() -> None:
    assert not choose(a_task("FAILED"), ENDED, "", 2).run


@pytest.mark.parametrize("state", ["CANCELLED", "INTERRUPTED", "PREEMPTED"])
def test_what_was_ended_from_outside_is_run_again(state: State) -> None:
    assert choose(a_task(state), ENDED, "", 0).run


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "UNKNOWN", "COMPLETED"])
def test_what_may_yet_end_is_left_alone(state: State) -> None:
    assert not choose(a_task(state), ENDED, "", 0).run
