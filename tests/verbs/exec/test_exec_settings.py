"""Options of ``weigh exec`` from files and variables."""

import json
from subprocess import CompletedProcess

import pytest
from batches import Batch

from weigh.config import EXEC_KEYS


def _slots(finished: CompletedProcess[str]) -> int:
    assert finished.returncode == 0, finished.stderr
    slots: int = json.loads(finished.stdout)["slots"]
    return slots


def _with_settings(batch: Batch, text: str) -> Batch:
    (batch.folder / "weigh.toml").write_text(f"[exec]\n{text}\n")
    return batch.write("true")


def test_a_flag_beats_a_variable_which_beats_a_file(batch: Batch) -> None:
    _with_settings(batch, "jobs = 3")
    assert _slots(batch.run("--json")) == 3
    assert _slots(batch.run("--json", WEIGH_EXEC_JOBS="4")) == 4
    assert _slots(batch.run("--json", "-j", "5", WEIGH_EXEC_JOBS="4")) == 5


def test_a_time_in_a_file_is_written_as_on_the_command_line(batch: Batch) -> None:
    _with_settings(batch, 'timeout = 0.2\ngrace = "1s"').write("sleep 60")
    assert batch.run().returncode == 1
    assert batch.ended()[1][0] == -1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('jobs = "many"', "weigh.toml: exec.jobs: 'many' is not"),
        (
            "grace = [1]",
            "weigh.toml: exec.grace must be text, a number, true or false, not [1]",
        ),
        ('memory = "much"', "weigh.toml: exec.memory: "),
    ],
)
def test_an_option_that_cannot_be_is_named_with_its_file(
    batch: Batch, text: str, complaint: str
) -> None:
    finished = _with_settings(batch, text).run()
    assert finished.returncode == 2
    assert complaint in finished.stderr
    assert finished.stderr.count("\n") == 1


def test_a_broken_file_does_not_keep_the_help_away(batch: Batch) -> None:
    assert _with_settings(batch, "jobs = ").run("--help").returncode == 0


def test_every_key_of_the_table_is_an_option() -> None:
    from weigh.cli.exec import exec_  # noqa: PLC0415 - the test's own subject

    assert {option.name for option in exec_.params} >= set(EXEC_KEYS)


def test_jobs_on_the_command_line_need_no_gpu_of_a_file(batch: Batch) -> None:
    _with_settings(batch, "per_gpu = 2")
    assert _slots(batch.run("--json", "-j", "1")) == 1
