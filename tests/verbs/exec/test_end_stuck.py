"""``weigh exec --end-stuck``: real tasks that hang, and those that only seem to."""

import os
import signal

import pytest
from batches import Batch
from processes import until

AFTER = ("--end-stuck", "1.5")


def test_a_task_that_hangs_is_ended_and_named_with_its_last_line(batch: Batch) -> None:
    batch.write("echo epoch 3; sleep 1000")

    finished = batch.run(*AFTER, "--json")

    assert finished.returncode == 1
    (line,) = (one for one in finished.stderr.splitlines() if "stuck" in one)
    assert line == (
        "weigh: task 1 is stuck: no output, no CPU time and no progress for 1.50 s; "
        "printed last: epoch 3"
    )
    (ended,) = batch.events_of("ended")
    assert ended["state"] == batch.records()[0]["state"] == "STUCK"
    assert ended["reason"] == "stuck: ended by --end-stuck"


def test_a_stuck_task_has_as_many_attempts_as_a_failed_one(batch: Batch) -> None:
    batch.write("echo a >> ran; test $(wc -l < ran) -gt 1 || sleep 1000")

    assert batch.run(*AFTER, "--retries", "2").returncode == 0

    assert batch.ran() == ["a", "a"]
    assert [one["state"] for one in batch.events_of("ended")] == ["STUCK", "COMPLETED"]


def test_a_task_that_exits_with_0_when_it_is_ended_is_not_done(batch: Batch) -> None:
    batch.write("trap 'exit 0' TERM; echo a >> ran; sleep 1000 & wait")

    assert batch.run(*AFTER).returncode == 1
    assert batch.run("--dry-run").stdout.count("sleep") == 0  # it has ended
    assert batch.run("--dry-run", "--resume-failed").stdout.count("sleep") == 1


@pytest.mark.parametrize(
    "task",
    [
        pytest.param("for n in 1 2 3 4 5 6; do sleep .6; echo $n; done", id="prints"),
        pytest.param("timeout 2.5 sh -c 'while :; do :; done'; true", id="child works"),
        pytest.param(
            "(setsid timeout 2.5 sh -c 'while :; do :; done' &) ; sleep 2.5",
            id="what left its tree works",
        ),
        pytest.param(
            "for n in 1 2 3 4 5 6; do head -c 99999 /dev/zero; sleep .6; done | cat >x",
            id="copies slowly",
        ),
    ],
)
def test_a_task_that_shows_a_sign_of_life_goes_on(batch: Batch, task: str) -> None:
    batch.write(task)

    finished = batch.run(*AFTER)

    assert finished.returncode == 0, finished.stderr
    assert "stuck" not in finished.stderr


def test_a_task_whose_work_docker_does_is_not_stuck(batch: Batch) -> None:
    docker = batch.folder / "docker"  # whose name the kernel has, though it is a script
    docker.write_text("#!/bin/sh\nsleep 4\n")
    docker.chmod(0o755)
    batch.write("./docker 4; true", "./docker 4; true")

    finished = batch.run(*AFTER, "-j2")

    assert finished.returncode == 0, finished.stderr


def test_a_task_that_somebody_suspended_is_not_stuck(batch: Batch) -> None:
    batch.write("echo $$ >> ran; sleep 1; echo done >> ran")
    started = batch.begin(*AFTER)
    task = int(batch.ran()[0])
    os.killpg(task, signal.SIGSTOP)
    # by then more than the time has passed
    folder = batch.folder / "other"
    folder.mkdir()
    other = Batch(folder).write("sleep 1000")
    assert other.run(*AFTER).returncode == 1

    os.killpg(task, signal.SIGCONT)

    assert started.wait() == 0
    until(lambda: batch.ran()[-1] == "done")


def test_the_setting_ends_a_stuck_task_and_does_not_forbid_to_see_the_output(
    batch: Batch,
) -> None:
    (batch.folder / "weigh.toml").write_text('[exec]\nend_stuck = "1.5s"\n')
    batch.write("echo here; sleep 1000")
    assert "is stuck" in batch.run().stderr
    batch.write("echo there")

    seen = batch.run("-u", "--no-resume")

    assert (seen.returncode, seen.stdout) == (0, "there\n"), seen.stderr
