"""A command behind ``# weigh: then``: no task, run once when all tasks are done."""

import pytest
from batches import Batch

THEN = ("", "# weigh: then", "echo then $(sort ran) >> gathered; echo merged")


def test_it_runs_after_the_last_task_and_is_none_itself(batch: Batch) -> None:
    batch.write("sleep .3; echo a >> ran", "echo b >> ran", " #weigh: Then \r", THEN[2])

    finished = batch.run("-j", "2")

    assert finished.returncode == 0, finished.stderr
    assert "2 of 2 tasks done" in finished.stdout
    assert (batch.folder / "gathered").read_text() == "then a b\n"
    output = batch.folder / "tasks.txt.joblog.then.out"
    assert (output / "1.out").read_text() == "merged\n"
    assert len(batch.entries()) == 2


def test_it_waits_until_what_failed_is_done_and_runs_once(batch: Batch) -> None:
    batch.write("echo a >> ran", "test -e fixed && echo b >> ran", *THEN)
    gathered = batch.folder / "gathered"
    assert batch.run().returncode == 1
    assert not gathered.exists()
    (batch.folder / "fixed").touch()

    assert batch.run("--resume-failed").returncode == 0
    assert batch.run().returncode == 0

    assert gathered.read_text() == "then a b\n"


def test_it_runs_again_after_tasks_that_were_added(batch: Batch) -> None:
    batch.write("echo a >> ran", *THEN)
    batch.run()
    batch.write("echo a >> ran", "echo b >> ran", *THEN)

    assert batch.run().returncode == 0

    assert (batch.folder / "gathered").read_text() == "then a\nthen a b\n"


def test_its_exit_code_is_that_of_the_run_and_it_is_tried_again(batch: Batch) -> None:
    batch.write("true", "# weigh: then", "echo c >> ran; exit 3")

    assert batch.run().returncode == 1
    assert batch.run().returncode == 1
    assert batch.ran() == ["c", "c"]


@pytest.mark.parametrize("lines", [(), ("true", "true")])
def test_not_exactly_one_command_is_refused(
    batch: Batch, lines: tuple[str, ...]
) -> None:
    batch.write("echo a >> ran", "# weigh: then", "# a comment", *lines)

    refused = batch.run()

    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert f"tasks.txt:2: one command follows '# weigh: then', not {len(lines)}" in (
        refused.stderr
    )
    assert batch.ran() == []
