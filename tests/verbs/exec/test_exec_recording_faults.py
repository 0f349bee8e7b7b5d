"""What fails in one task's record costs that task's figures, and nothing else."""

import sys

import pytest
from batches import Batch
from run_captured import CapturedRun, run_captured

PLANT = """
import sys
from weigh import __main__
from weigh.runner import watch
{plant}
sys.exit(__main__.main())
"""
FAILS_FOR_2 = """
def fails(whole):
    def failing(attempt, *words, **more):
        if attempt.seq == 2:
            raise RuntimeError("planted")
        return whole(attempt, *words, **more)
    return failing
"""


def _run(batch: Batch, plant: str) -> CapturedRun:
    (batch.folder / "planted.py").write_text(PLANT.format(plant=plant))
    return run_captured(
        [sys.executable, "planted.py", "exec", "-j", "1", "tasks.txt"],
        cwd=batch.folder,
        env=batch.env(),
    )


@pytest.mark.parametrize(
    "plant",
    [
        FAILS_FOR_2 + "watch.attempt_measurement = fails(watch.attempt_measurement)",
        FAILS_FOR_2 + "watch.tracker_floor = fails(watch.tracker_floor)",
        (
            "whole = watch.lines.encode_record\n"
            "def fails(record):\n"
            "    if record.job.task == 2:\n"
            "        raise UnicodeEncodeError('utf-8', 'x', 0, 1, 'planted')\n"
            "    return whole(record)\n"
            "watch.lines.encode_record = fails"
        ),
    ],
    ids=["measurement", "tracker", "encoding"],
)
def test_a_record_that_fails_costs_no_other_record_and_no_event(
    batch: Batch, plant: str
) -> None:
    batch.write("true", "true", "true", "true")
    finished = _run(batch, plant)
    assert finished.returncode == 0
    assert "recording task 2 failed" in finished.stderr
    assert [one["job"]["task"] for one in batch.records()] == [1, 3, 4]
    assert [one["seq"] for one in batch.events_of("ended")] == [1, 2, 3, 4]
    assert [one["reason"] for one in batch.events_of("closed")] == ["all tasks ended"]
    assert list(batch.ended()) == [1, 2, 3, 4]


def test_a_start_that_cannot_be_noted_costs_no_other_event(batch: Batch) -> None:
    plant = FAILS_FOR_2 + "watch._start_event = fails(watch._start_event)"
    batch.write("true", "true", "true")
    assert _run(batch, plant).returncode == 0
    assert [one["seq"] for one in batch.events_of("started")] == [1, 3]
    assert [one["seq"] for one in batch.events_of("ended")] == [1, 2, 3]
    assert len(batch.records()) == 3


def test_an_event_that_cannot_be_written_costs_no_other_event(batch: Batch) -> None:
    plant = (
        "from weigh.runner.events import AttemptEnded\n"
        "from weigh.runner.journal import RunJournal\n"
        "whole = RunJournal.append_events\n"
        "def fails(self, *events):\n"
        "    if any(isinstance(e, AttemptEnded) and e.seq == 2 for e in events):\n"
        "        raise UnicodeEncodeError('utf-8', 'x', 0, 1, 'planted')\n"
        "    whole(self, *events)\n"
        "RunJournal.append_events = fails"
    )
    batch.write("true", "true", "true")
    assert _run(batch, plant).returncode == 0
    assert [one["seq"] for one in batch.events_of("ended")] == [1, 3]
    assert len(batch.records()) == 3


def test_a_part_of_a_record_that_fails_leaves_the_rest(batch: Batch) -> None:
    plant = (
        "from weigh.runner.progress_watch import ProgressWatch\n"
        "def fails(self, attempt):\n"
        "    raise RuntimeError('planted')\n"
        "ProgressWatch.ended = fails"
    )
    batch.write("true", "true")
    finished = _run(batch, plant)
    assert finished.returncode == 0
    assert "progress of task 2 failed" in finished.stderr
    assert [one["state"] for one in batch.records()] == ["COMPLETED"] * 2
