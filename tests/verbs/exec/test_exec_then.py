"""A command behind ``# weigh: then``: no task, run once when all tasks are done."""

import json

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


def test_a_command_on_the_line_itself_is_refused(batch: Batch) -> None:
    batch.write("echo a >> ran", "# weigh: then echo b >> ran")

    refused = batch.run()

    assert refused.returncode == 2
    assert "tasks.txt:2: the command of '# weigh: then' stands on the next line" in (
        refused.stderr
    )
    assert batch.ran() == []


def test_it_is_a_part_of_the_one_document(batch: Batch) -> None:
    batch.write("echo a >> ran", *THEN)

    document = json.loads(batch.run("--json").stdout)

    assert (document["tasks"], document["then"]["done"]) == (1, 1)


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ((), "run the same command again"),
        (("--no-resume",), "run the same command again without --no-resume"),
    ],
)
def test_after_its_failure_the_hint_runs_it_alone(
    batch: Batch, options: tuple[str, ...], hint: str
) -> None:
    batch.write("echo a >> ran", "# weigh: then", "test -e fixed && echo b >> ran")

    failed = batch.run(*options)
    (batch.folder / "fixed").touch()
    again = batch.run()

    assert f"  resume    {hint}\n" in failed.stdout
    assert "--resume-failed" not in failed.stdout
    assert (again.returncode, batch.ran()) == (0, ["a", "b"])


def test_a_run_by_hand_of_a_queue_names_it(batch: Batch) -> None:
    """No run of a queue knows that it is the last one."""
    batch.write("echo a >> ran", *THEN)
    needs = ("--time", "9s", "--memory", "90M", "--node", "1G,2", "--hours", "1")
    planned = batch.weigh("plan", "tasks.txt", *needs)
    assert planned.returncode == 0, planned.stderr

    pulled = batch.weigh("exec", "--pull", "plan/tasks")

    assert (pulled.returncode, batch.ran()) == (0, ["a"])
    assert f"weigh: when all runs of this queue end, run: {THEN[2]}\n" in pulled.stderr
