"""What fails in one task's record costs that task's figures, and nothing else."""

import re
import sys

from batches import Batch
from run_captured import CapturedRun, run_captured

PLANT = """
import sys
from weigh import __main__
from weigh.runner import watch
from weigh.runner.events import AttemptEnded
from weigh.runner.journal import RunJournal
from weigh.runner.progress_watch import ProgressWatch
no_text = UnicodeEncodeError("utf-8", "x", 0, 1, "planted")
def plant(place, name, is_of_task, error=RuntimeError("planted")):
    whole = getattr(place, name)
    def fails(*words, **more):
        if is_of_task(*words):
            raise error
        return whole(*words, **more)
    setattr(place, name, fails)
{plants}
sys.exit(__main__.main())
"""


def run_planted(batch: Batch, tasks: int, plants: str) -> CapturedRun:
    (batch.folder / "planted.py").write_text(PLANT.format(plants=plants))
    batch.write(*["true"] * tasks)
    words = [sys.executable, "planted.py", "exec", "-j", "1", "tasks.txt"]
    finished = run_captured(words, cwd=batch.folder, env=batch.env())
    assert finished.returncode == 0
    assert list(batch.ended()) == [*range(1, tasks + 1)]
    assert [one["reason"] for one in batch.events_of("closed")] == ["all tasks ended"]
    return finished


def test_a_record_that_fails_costs_no_other_record_and_no_event(batch: Batch) -> None:
    """As it is measured, as it is tracked, and as it is encoded."""
    finished = run_planted(
        *(batch, 6),
        "plant(watch, 'attempt_measurement', lambda attempt, *_: attempt.seq == 2)\n"
        "plant(watch, 'tracker_floor', lambda attempt: attempt.seq == 3)\n"
        "is_4 = lambda record: record.job.task == 4\n"
        "plant(watch.lines, 'encode_record', is_4, no_text)\n",
    )
    assert "recording task 4 failed" in finished.stderr
    assert [one["job"]["task"] for one in batch.records()] == [1, 5, 6]
    assert [one["seq"] for one in batch.events_of("ended")] == [1, 2, 3, 4, 5, 6]


def test_an_event_or_a_part_of_a_record_that_fails_leaves_the_rest(
    batch: Batch,
) -> None:
    finished = run_planted(
        *(batch, 5),
        "plant(watch, '_start_event', lambda attempt, _: attempt.seq == 2)\n"
        "ends_3 = lambda _, *events: 3 in [\n"
        "    one.seq for one in events if isinstance(one, AttemptEnded)]\n"
        "plant(RunJournal, 'append_events', ends_3, no_text)\n"
        "plant(ProgressWatch, 'ended', lambda _, attempt: attempt.seq == 4)\n",
    )
    # of several troubles the last one is named
    assert re.search("(event of task 3|progress of task 4) failed", finished.stderr)
    assert [one["seq"] for one in batch.events_of("started")] == [1, 3, 4, 5]
    assert [one["seq"] for one in batch.events_of("ended")] == [1, 2, 4, 5]
    assert [one["state"] for one in batch.records()] == ["COMPLETED"] * 5
