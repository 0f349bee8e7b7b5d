"""What weigh exec and the shell of a job need is part of each element's request."""

import sys

import pytest
from memory_groups import alone_in_a_group
from roads import Road
from run_captured import run_captured

from weigh.request import RUNNER_MEMORY


def pull(road: Road, limit: int) -> int:
    """Pull all tasks below a memory *limit*, as the shell of a job does."""
    words = f"{sys.executable} -P -m weigh exec --pull --jobs 1 --time 5m"
    with alone_in_a_group(limit) as prefix:
        return run_captured(
            [*prefix, "bash", "-c", f"{words} plan/tasks & wait $!"],
            cwd=road.folder,
            env=road.env,
        ).returncode


@pytest.mark.as_root
def test_the_runner_works_in_what_is_added_for_it_and_not_in_half(road: Road) -> None:
    if road.scheduler != "local":
        pytest.skip("needs no scheduler")
    (road.folder / "tasks.txt").write_text("true\n" * 12)
    road("plan", "tasks.txt", "--memory", "1M", "--time", "1s", "--cpus", "1")
    assert pull(road, RUNNER_MEMORY // 2) != 0
    assert not road.succeeded()
    assert pull(road, RUNNER_MEMORY) == 0
    assert road.succeeded() == 12


@pytest.mark.parametrize(
    ("mebibytes", "headroom", "options"),
    [
        ("31", "20%", ()),
        ("91", "0", ()),
        ("31", "20%", ("--node", "2")),  # the guard stops neither of two that fit
    ],
)
def test_tasks_that_were_measured_exactly_are_not_killed_for_memory(
    road: Road, mebibytes: str, headroom: str, options: tuple[str, ...]
) -> None:
    """A peak of 40 MiB and 20 % were 50 MiB: no room for what runs the tasks."""
    if road.scheduler != "slurm":
        pytest.skip("only Slurm limits the memory of all processes together")
    road.program()
    job = ("python3", "job.py", "--mb", mebibytes, "--seconds", "0.3", "--x")
    road("run", "-q", "--", *job, "1")
    road.forget()
    road("sweep", "x=1..12", "--", *job, "{x}")
    (road.folder / "weigh.toml").write_text(f'headroom = "{headroom}"\n')
    road("plan", "tasks.txt", *options)
    road.submit("plan/tasks")
    assert road.wait() == {"COMPLETED": 12}
    assert {*road.begun().values()} == {1}
