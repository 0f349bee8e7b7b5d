"""What an element held at once, against counting moment by moment."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import PeakMemory, Record, Usage
from weigh.model.report import ReportRow
from weigh.review.elements import elements_of_runs, most_at_once
from weigh.review.runs import ElementRequest, ReviewedRun

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


class Held(NamedTuple):
    """What a run held, and from when to when, in quarters of a second."""

    start: int
    wall: int | None  # None: it still runs
    own: int
    file: int
    command: str
    virtual: int
    gpus: tuple[int, int]
    cpu_time: int
    busy: float

    @property
    def run(self) -> ReviewedRun:
        """Return it as the program reads it."""
        memory = self.own + self.file
        figures = (self.own, 0, self.file, "test")
        peak = PeakMemory(memory, memory, memory, *figures)
        usage = Usage(
            wall_time=(self.wall or 0) / 4,
            peak_memory=peak,
            virtual_memory=self.virtual,
        )
        record = Record(
            id="0" * 12,
            command=tuple(self.command.split()),
            started="2026-01-01T00:00:00Z",
            usage=usage,
        )
        row = ReportRow(
            started=self.start / 4,
            wall_time=None if self.wall is None else self.wall / 4,
            memory=memory,
            command=self.command,
            cpu_time=self.cpu_time,
            gpu_utilization=self.busy,
        )
        peaks = tuple(zip("AB", self.gpus, strict=True))
        return ReviewedRun(row=row, record=record, need=memory, gpu_peaks=peaks)

    def runs_at(self, quarter: int) -> bool:
        """Return whether it runs in this quarter of a second."""
        return self.start <= quarter < self.start + max(1, self.wall or 0)


SIZES = st.integers(0, 100)
HELD = st.lists(
    st.builds(
        Held,
        *(st.integers(0, 30), st.none() | st.integers(0, 10), SIZES, SIZES),
        st.sampled_from(["python a", "X=1 python b", "R"]),
        *(SIZES, st.tuples(SIZES, SIZES), SIZES, st.sampled_from([0.25, 0.5, 1.0])),
    ),
    min_size=1,
    max_size=8,
)


def largest_files(runs: Sequence[Held]) -> int:
    """The largest mapped files of each program."""
    programs = {one.command.split()[-2:][0]: 0 for one in runs}
    for program in programs:
        files = [one.file for one in runs if program in one.command.split()]
        programs[program] = max(files)
    return sum(programs.values())


@given(HELD)
def test_an_element_held_what_its_runs_held_in_the_fullest_moment(
    held: list[Held],
) -> None:
    moments = [[one for one in held if one.runs_at(n)] for n in range(50)]

    (element,) = elements_of_runs([one.run for one in held], (), ElementRequest())

    memory = max(sum(one.own for one in now) + largest_files(now) for now in moments)
    # a request is judged by the figure that the table shows
    assert (element.memory, element.need) == (memory, memory)
    assert element.virtual == max(sum(one.virtual for one in now) for now in moments)
    assert element.gpu_memory == max(
        sum(one.gpus[gpu] for one in now) for now in moments for gpu in (0, 1)
    )


@given(HELD)
def test_an_element_lasts_from_its_first_start_to_its_last_end(
    held: list[Held],
) -> None:
    started = min(one.start for one in held)
    ends = [one.start + one.wall for one in held if one.wall is not None]
    wall = max(0, max(ends) - started) / 4 if ends else None
    weights = [one.wall or 0 for one in held]

    (element,) = elements_of_runs([one.run for one in held], (), ElementRequest())

    assert (element.started, element.wall_time) == (started / 4, wall)
    cpu_time = sum(one.cpu_time for one in held)
    assert element.cpus == (pytest.approx(cpu_time / wall) if wall else None)
    # a longer run has more weight in the mean
    busy = (
        statistics.fmean([one.busy for one in held], weights) if any(weights) else None
    )
    assert element.utilization == (busy and pytest.approx(busy))
