"""What a run printed of its steps, in the next request."""

import pytest

from weigh.estimate.growth import progress_of, time_needed
from weigh.model.record import Record, ReportedProgress, Usage


def record(headway: ReportedProgress | None, **parameters: int) -> Record:
    return Record(
        id="a",
        command=("x",),
        started="2026-11-21T10:00:00Z",
        usage=Usage(wall_time=100.0),
        progress=headway,
        parameters=dict(parameters),
    )


@pytest.mark.parametrize("done", [1, 90])
def test_a_run_that_was_cut_short_states_how_long_the_whole_takes(done: int) -> None:
    cut = record(
        ReportedProgress(done=done, total=900, source="tqdm", time=99.0, step_time=2.0)
    )
    found = progress_of(cut)
    assert found is not None
    assert (found.done, found.total) == (done, 900)
    assert time_needed(cut, found) == 100.0 + (900 - done) * 2.0


def test_a_run_without_a_step_done_has_no_pace() -> None:
    headway = ReportedProgress(
        done=0, total=900, source="tqdm", time=99.0, step_time=2.0
    )
    assert progress_of(record(headway)) is None


def test_what_was_printed_counts_before_a_parameter_named_like_steps() -> None:
    headway = ReportedProgress(
        done=90, total=900, source="tqdm", time=99.0, step_time=1.0
    )
    found = progress_of(record(headway, max_steps=50))
    assert found is not None
    assert found.done == 90


def test_a_pace_that_nobody_knows_is_none() -> None:
    headway = ReportedProgress(done=90, total=900, source="tqdm", time=99.0)
    assert progress_of(record(headway)) is None
