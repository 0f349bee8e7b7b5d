"""What an element held at once, against counting moment by moment."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import PeakMemory, Record, RepeatedRun, Usage
from weigh.model.report import ReportRow
from weigh.review.elements import elements_of_runs, memory_at_once, most_at_once
from weigh.review.runs import (
    ElementRequest,
    ReviewedRun,
    epoch_seconds,
    runs_of_records,
)

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 10), st.integers(0, 100)), max_size=8
)


@given(SPANS)
def test_the_most_at_once_is_that_of_the_fullest_second(
    spans: list[tuple[int, int, int]],
) -> None:
    whole = [(float(start), float(start + wall), size) for start, wall, size in spans]
    held = [
        sum(size for start, wall, size in spans if start <= second < start + wall)
        for second in range(50)
    ]
    assert most_at_once(whole) == (max(held) if spans else None)


@given(st.floats(0, 2e9), st.floats(0, 100))
def test_a_run_of_no_length_counts(start: float, size: float) -> None:
    assert most_at_once([(start, start, size)]) == size


def run_of(start: float, wall: float, own: int, file: int, command: str) -> ReviewedRun:
    """A run that held *own* bytes and mapped *file* bytes of files."""
    memory = own + file
    peak = PeakMemory(
        value=memory,
        low=memory,
        high=memory,
        anonymous=own,
        shared=0,
        file=file,
        source="test",
    )
    record = Record(
        id="0" * 12,
        command=tuple(command.split()),
        started="2026-01-01T00:00:00Z",
        usage=Usage(wall_time=wall, peak_memory=peak),
    )
    row = ReportRow(started=start, wall_time=wall, memory=memory, command=command)
    return ReviewedRun(row=row, record=record)


HELD = st.lists(
    st.tuples(
        *(st.integers(0, 30), st.integers(1, 10), st.integers(0, 100)),
        *(st.integers(0, 100), st.sampled_from(["python a", "X=1 python b", "R"])),
    ),
    max_size=8,
)


@given(HELD)
def test_libraries_count_once_in_the_fullest_second(
    held: list[tuple[int, int, int, int, str]],
) -> None:
    sums = []
    for second in range(50):
        now = [one for one in held if one[0] <= second < one[0] + one[1]]
        largest = {"python": 0, "R": 0}
        for _, _, _, file, command in now:
            program = "python" if "python" in command else "R"
            largest[program] = max(largest[program], file)
        sums.append(sum(own for _, _, own, _, _ in now) + sum(largest.values()))
    assert memory_at_once(run_of(*one) for one in held) == (max(sums) if held else None)


@given(HELD)
def test_memory_lies_between_the_largest_run_and_the_sum(
    held: list[tuple[int, int, int, int, str]],
) -> None:
    runs = [run_of(*one) for one in held]
    sizes = [run.row.memory or 0 for run in runs]
    assert max(sizes, default=0) <= (memory_at_once(runs) or 0) <= sum(sizes)


def test_a_run_without_a_record_counts_as_a_whole() -> None:
    known = run_of(0.0, 5.0, 10, 40, "python a")
    row = ReportRow(started=1.0, wall_time=2.0, memory=50, command="python a")
    assert memory_at_once([known, ReviewedRun(row=row)]) == 100
    assert memory_at_once([ReviewedRun(row=ReportRow())]) is None


@given(HELD)
def test_a_request_is_judged_by_the_figure_that_the_table_shows(
    held: list[tuple[int, int, int, int, str]],
) -> None:
    runs = [
        msgspec.structs.replace(run, need=run.row.memory)
        for run in (run_of(*one) for one in held)
    ]
    for element in elements_of_runs(runs, (), ElementRequest()):
        assert element.need == element.memory


def test_a_repeat_starts_after_the_warm_ups_and_repeats_before_it() -> None:
    repeats = tuple(
        RepeatedRun(Usage(wall_time=wall), exit_code=0, signal=None, warmup=warmup)
        for wall, warmup in ((100.0, True), (5.0, False), (7.0, False))
    )
    record = Record(
        id="a" * 12,
        command=("x",),
        started="2026-11-21T10:00:00Z",
        state="COMPLETED",
        usage=repeats[2].usage,
        repeats=repeats,
    )
    first, second = runs_of_records([record])
    began = epoch_seconds(record.started)
    assert began is not None
    assert first.row.started == began + 100
    assert second.row.started == began + 105
