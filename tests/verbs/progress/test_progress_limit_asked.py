"""When the time of a job is over, as its scheduler says."""

import os
import time
from pathlib import Path

import pytest

from weigh.errors import SchedulerError
from weigh.flow.run.progress import asking, queried_time_left, time_until_limit

ANSWER = """
job_number:                 1
hard resource_list:         h_rt=600,s_rt=540,h_vmem=1G
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a Grid Engine job that began 100 seconds ago."""
    (tmp_path / "config").touch()
    began = time.time() - 100
    os.utime(tmp_path / "config", (began, began))
    spool = str(tmp_path)
    return {"SGE_TASK_ID": "undefined", "JOB_ID": "1", "SGE_JOB_SPOOL_DIR": spool}


def test_grid_engine_states_the_lesser_of_two_limits(env: dict[str, str]) -> None:
    found = queried_time_left(env, lambda _job: ANSWER)
    assert found == pytest.approx(440, abs=10)


def test_a_grid_engine_job_without_a_limit_has_none(env: dict[str, str]) -> None:
    answer = "hard resource_list:         h_vmem=1G"
    assert queried_time_left(env, lambda _job: answer) is None


def test_a_scheduler_that_does_not_answer_gives_no_limit(env: dict[str, str]) -> None:
    def fail(_argv: tuple[str, ...]) -> str:
        raise SchedulerError("qstat did not answer")

    assert queried_time_left(env, fail) is None


def test_outside_of_grid_engine_nobody_is_queried() -> None:
    def fail(_argv: tuple[str, ...]) -> str:
        raise AssertionError

    assert queried_time_left({"JOB_ID": "1"}, fail) is None


def test_slurm_states_when_a_job_ends() -> None:
    end = str(int(time.time()) + 3600)
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": end}
    assert time_until_limit(None, env) == pytest.approx(3600, abs=10)


def test_the_users_word_counts_before_the_schedulers() -> None:
    assert (
        time_until_limit(60.0, {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": "1"}) == 60.0
    )


@pytest.mark.parametrize("word", ["", "soon", "-5", "²"])
def test_an_end_that_is_no_time_is_none(word: str) -> None:
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": word}
    assert time_until_limit(None, env) is None


def test_a_limit_is_written_as_the_jobs_scheduler_takes_it() -> None:
    assert asking({"SGE_TASK_ID": "1"})(90000) == "-l h_rt=25:00:00"
    assert asking({"SLURM_JOB_ID": "1"})(90000) == "--time=1-01:00:00"


IN_SLURM = {"SLURM_JOB_ID": "12"}


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [("0:45\n", 45), ("1:00:30\n", 3630), ("2-00:00:01\n", 172801), ("12:34\n", 754)],
)
def test_slurm_is_queried_for_the_time_left_if_the_environment_lacks_it(
    answer: str, seconds: int
) -> None:
    assert queried_time_left(IN_SLURM, lambda _job: answer) == seconds


@pytest.mark.parametrize("answer", ["UNLIMITED\n", "NOT_SET\n", "INVALID\n", "", "?"])
def test_a_slurm_job_without_a_limit_has_none(answer: str) -> None:
    assert queried_time_left(IN_SLURM, lambda _job: answer) is None


@pytest.mark.parametrize(
    "more", [{"SLURM_PROCID": "3"}, {"SLURM_JOB_END_TIME": "0"}, {"SLURM_JOB_ID": "x"}]
)
def test_slurm_is_not_queried_by_every_rank_nor_for_a_known_limit(
    more: dict[str, str],
) -> None:
    def fail(_argv: tuple[str, ...]) -> str:
        raise AssertionError

    assert queried_time_left(IN_SLURM | more, fail) is None


def test_the_end_of_a_job_that_is_over_is_no_limit() -> None:
    env = {"SLURM_JOB_ID": "1", "SLURM_JOB_END_TIME": str(int(time.time()) - 60)}
    assert time_until_limit(None, env) is None
