"""What an element held at once, against counting moment by moment."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import PeakMemory, Record, RepeatedRun, Usage
from weigh.model.report import ReportRow
from weigh.review.elements import (
    ReviewedElement,
    elements_of_runs,
    memory_at_once,
    most_at_once,
    resource_measures,
    single_run_element,
)
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


def test_a_run_without_a_record_counts_as_a_whole() -> None:
    known = Held(0, 20, 10, 40, "python a", 0, (0, 0), 0, 0.5).run
    row = ReportRow(started=1.0, wall_time=2.0, memory=50, command="python a")
    assert memory_at_once([known, ReviewedRun(row=row)]) == 100
    assert memory_at_once([ReviewedRun(row=ReportRow())]) is None


@pytest.mark.parametrize(
    ("gpus", "used", "judged_by"),
    [
        (1, 5, 20),
        (1, None, 20),
        (0, 5, 20),
        (0, None, None),  # it was planned for, and no GPU was requested
    ],
)
def test_gpu_memory_is_judged_by_the_type_of_a_gpu_that_was_had(
    gpus: int, used: int | None, judged_by: int | None
) -> None:
    requested = ElementRequest(gpus=gpus, gpu_memory=20, memory=40, cpus=4)
    runs = [
        ReviewedRun(row=ReportRow(memory=size, cpus=size / 5, gpu_memory=used))
        for size in (5, 10, 30)
    ]
    # the one that never started is not one that used nothing
    elements = [
        *(single_run_element(run, requested) for run in runs),
        ReviewedElement(runs=(), requested=requested),
    ]

    by_name = {one.name: one for one in resource_measures(elements, requested)}

    gpu, memory, cpus = by_name["gpu_memory"], by_name["memory"], by_name["cpus"]
    assert gpu.requested == judged_by
    assert gpu.efficiency == (5 / 20 if used else None)
    assert (memory.median, memory.most, memory.efficiency) == (10, 30, 30 / 40)
    # a limit must hold for the largest; CPUs make only one element slower
    assert (cpus.median, cpus.most, cpus.efficiency) == (2.0, 6.0, 2.0 / 4)


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
