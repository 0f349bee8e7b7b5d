"""When the time of a job is over, as its scheduler reports it."""

import os
import time
from pathlib import Path

import pytest

from weigh.errors import SchedulerError
from weigh.flow.run.progress import asking, queried_time_left, time_until_limit

IN_SLURM = {"SLURM_JOB_ID": "12"}
IN_GRID_ENGINE = {"JOB_ID": "1", "SGE_TASK_ID": "undefined"}
RESOURCES = "\njob_number: 1\nhard resource_list:         "


@pytest.mark.parametrize(
    ("env", "answer", "seconds"),
    [
        (IN_SLURM, "0:45\n", 45),
        (IN_SLURM, "1:00:30\n", 3630),
        (IN_SLURM, "2-00:00:01\n", 172801),
        (IN_SLURM, "12:34\n", 754),
        *((IN_SLURM, f"{x}\n", None) for x in ("UNLIMITED", "NOT_SET", "INVALID", "?")),
        (IN_SLURM, "", None),
        (IN_SLURM, None, None),  # squeue does not answer
        # the lesser of two, from the start of the job 100 s ago
        (IN_GRID_ENGINE, RESOURCES + "h_rt=600,s_rt=540,h_vmem=1G\n", 440),
        (IN_GRID_ENGINE, RESOURCES + "h_vmem=1G", None),
        (IN_GRID_ENGINE, None, None),
    ],
)
def test_a_scheduler_is_queried_for_the_time_left(
    tmp_path: Path, env: dict[str, str], answer: str | None, seconds: float | None
) -> None:
    began = time.time() - 100
    (tmp_path / "config").touch()
    os.utime(tmp_path / "config", (began, began))

    def ask(_argv: tuple[str, ...]) -> str:
        if answer is None:
            raise SchedulerError("no answer")
        return answer

    left = queried_time_left(env | {"SGE_JOB_SPOOL_DIR": str(tmp_path)}, ask)
    assert left == (None if seconds is None else pytest.approx(seconds, abs=10))


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
    assert asking(IN_GRID_ENGINE)(90000) == "-l h_rt=25:00:00"
    assert asking(IN_SLURM)(90000) == "--time=1-01:00:00"
