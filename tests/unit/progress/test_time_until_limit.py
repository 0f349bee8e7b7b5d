"""When the time of a job is over, as its scheduler reports it."""

import os
import time
from pathlib import Path

import pytest

from weigh.errors import SchedulerError
from weigh.flow.run.progress import asking, queried_time_left, time_until_limit

IN_SLURM = {"SLURM_JOB_ID": "12"}
RESOURCES = "\njob_number: 1\nhard resource_list:         "


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (RESOURCES + "h_rt=600,s_rt=540,h_vmem=1G\n", 440),  # the lesser of two
        (RESOURCES + "h_vmem=1G", None),
        (None, None),  # qstat does not answer
    ],
)
def test_grid_engine_is_queried_for_a_limit_that_counts_from_the_start(
    tmp_path: Path, answer: str | None, seconds: float | None
) -> None:
    (tmp_path / "config").touch()
    began = time.time() - 100
    os.utime(tmp_path / "config", (began, began))
    env = {"JOB_ID": "1", "SGE_JOB_SPOOL_DIR": str(tmp_path)}

    def ask(_argv: tuple[str, ...]) -> str:
        if answer is None:
            raise SchedulerError("qstat did not answer")
        return answer

    left = queried_time_left(env | {"SGE_TASK_ID": "undefined"}, ask)
    assert left == (None if seconds is None else pytest.approx(seconds, abs=10))


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        ("0:45\n", 45),
        ("1:00:30\n", 3630),
        ("2-00:00:01\n", 172801),
        ("12:34\n", 754),
        *((word, None) for word in ("UNLIMITED\n", "NOT_SET\n", "INVALID\n", "", "?")),
    ],
)
def test_slurm_is_queried_for_the_time_left(answer: str, seconds: int | None) -> None:
    assert queried_time_left(IN_SLURM, lambda _job: answer) == seconds


@pytest.mark.parametrize(
    "env",
    [
        {"JOB_ID": "1"},  # of no Grid Engine
        # not by every rank, nor for a limit that is known
        IN_SLURM | {"SLURM_PROCID": "3"},
        IN_SLURM | {"SLURM_JOB_END_TIME": "0"},
        {"SLURM_JOB_ID": "x"},
    ],
)
def test_no_scheduler_is_queried_in_vain(env: dict[str, str]) -> None:
    def fail(_argv: tuple[str, ...]) -> str:
        raise AssertionError

    assert queried_time_left(env, fail) is None


@pytest.mark.parametrize(
    ("limit", "end", "seconds"),
    [
        (None, "in an hour", 3600),
        (60.0, "1", 60),  # the user's own counts first
        (None, "1", None),  # that of a job that is over
        *((None, word, None) for word in ("", "soon", "-5", "²")),
    ],
)
def test_the_environment_of_slurm_states_when_a_job_ends(
    limit: float | None, end: str, seconds: float | None
) -> None:
    end = end.replace("in an hour", f"{time.time() + 3600:.0f}")
    found = time_until_limit(limit, IN_SLURM | {"SLURM_JOB_END_TIME": end})
    assert found == (None if seconds is None else pytest.approx(seconds, abs=30))


def test_a_limit_is_written_as_the_jobs_scheduler_takes_it() -> None:
    assert asking({"SGE_TASK_ID": "1"})(90000) == "-l h_rt=25:00:00"
    assert asking({"SLURM_JOB_ID": "1"})(90000) == "--time=1-01:00:00"
