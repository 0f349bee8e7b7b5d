"""Curves, points and counts where there is little to go by."""

import math
from typing import Any

import pytest

from weigh.errors import UsageError
from weigh.estimate.curve import (
    ConstantCurve,
    InverseCurve,
    LinearCurve,
    SizePoint,
    gather_size_points,
)
from weigh.estimate.estimate import near_best, share_of_best
from weigh.estimate.fit import FittedCurve, caveats, next_size
from weigh.estimate.growth import progress_of, time_needed
from weigh.estimate.readings import gpu_memory
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    BatchTimes,
    ProgramEvent,
    Record,
    ReportedProgress,
    Usage,
)


def points(*pairs: tuple[float, float]) -> tuple[SizePoint, ...]:
    return tuple(SizePoint(x=x, y=y, low=y, high=y) for x, y in pairs)


def a_run(**known: object) -> Record:
    fields = {
        "id": "a",
        "command": ("a",),
        "started": "",
        "usage": Usage(wall_time=100.0),
    } | known
    return Record(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("measured", [0.0, -1.0, math.nan, math.inf])
def test_what_cannot_have_been_measured_is_refused(measured: float) -> None:
    with pytest.raises(UsageError, match="cannot have been measured"):
        gather_size_points([(50, measured)], keep="most")


def test_of_very_many_sizes_the_ends_and_the_largest_between_are_kept() -> None:
    made = gather_size_points(
        [(size, 1.0 + size % 7) for size in range(1, 1001)], keep="most"
    )

    assert len(made) == 100
    assert (made[0].x, made[-1].x) == (1, 1000)
    assert all(point.y == 7.0 for point in made[1:-1])


@pytest.mark.parametrize(("bent", "way"), [(0.5, "grows"), (-0.5, "falls")])
def test_a_slope_that_changes_is_a_doubt(bent: float, way: str) -> None:
    fit = FittedCurve(
        quantity="memory",
        points=points((1, 1), (2, 2), (3, 3)),
        curve=LinearCurve(0.0, 1.0),
        bend=bent,
    )

    assert caveats(fit) == (f"the slope {way} by 50 % along the sizes measured",)


def test_a_time_that_comes_down_without_end_has_no_best_size() -> None:
    fit = FittedCurve(
        quantity="time",
        points=points((1, 4), (2, 2), (4, 1)),
        curve=InverseCurve(0.0, 4.0),
    )

    assert near_best(fit) is None


def test_a_time_that_does_not_come_down_is_best_at_the_smallest_size() -> None:
    fit = FittedCurve(
        quantity="time", points=points((3, 4), (6, 4)), curve=ConstantCurve(4.0)
    )

    assert near_best(fit) == 3


def test_the_quickest_measured_is_the_best_where_time_has_no_floor() -> None:
    fit = FittedCurve(
        quantity="time", points=points((3, 4), (6, 8)), curve=ConstantCurve(8.0)
    )

    assert share_of_best(fit, 6) == 0.5


def test_a_gpu_that_nobody_could_read_does_not_count() -> None:
    cards = (GpuUsage("GPU-1", "V100"), GpuUsage("GPU-2", "V100", peak_memory=5))

    assert gpu_memory(Usage(wall_time=1.0, gpus=cards)) == 5


def events(*pairs: tuple[float, int]) -> tuple[ProgramEvent, ...]:
    return tuple(ProgramEvent("step", time, value) for time, value in pairs)


def printed(
    *, done: float, step_time: float | None, **parameters: int
) -> dict[str, Any]:
    found = ReportedProgress(
        done=done, total=900, source="tqdm", time=99.0, step_time=step_time
    )
    return {"progress": found, "parameters": parameters}


@pytest.mark.parametrize(
    ("known", "given", "steps"),
    [
        ({"batches": BatchTimes(50, 10, 500, time_mean=2.0, total=40)}, None, (10, 2)),
        ({}, 50, (50, 2)),  # a count that is given goes by the whole time
        ({"batches": BatchTimes(50, 10, 500, time_mean=3.0)}, 10, (10, 3)),
        ({"parameters": {"lr": 0.1, "max_steps": 200}}, None, (200, 0.5)),
        *(({"parameters": {"steps": n}}, None, None) for n in ("many", 0, -1)),
        ({"events": events((1.0, 5), (2.0, 5))}, None, None),  # does not get on
        ({"events": events((2.0, 1), (2.0, 9))}, None, None),  # in no time
        ({"events": events((1.0, 1))}, None, None),
        (printed(done=90, step_time=2.0), None, (90, 2)),
        # what was printed counts before a parameter named like steps
        (printed(done=90, step_time=1.0, max_steps=50), None, (90, 1)),
        (printed(done=0, step_time=2.0), None, None),
        (printed(done=90, step_time=None), None, None),
    ],
)
def test_steps_and_the_time_of_one_follow_from_what_a_record_counts(
    known: dict[str, Any], given: float | None, steps: tuple[float, float] | None
) -> None:
    made = progress_of(a_run(**known), done=given)

    assert (made and (made.done, made.step_time)) == steps


@pytest.mark.parametrize("done", [1, 90])
def test_a_run_that_was_cut_short_states_how_long_the_whole_takes(done: int) -> None:
    cut = a_run(**printed(done=done, step_time=2.0))
    found = progress_of(cut)

    assert found is not None
    assert time_needed(cut, found) == 100.0 + (900 - done) * 2.0


def test_a_size_to_measure_is_one_at_least() -> None:
    fit = FittedCurve(
        quantity="memory", points=points((0.1, 1), (0.2, 2)), curve=LinearCurve(0.0, 10)
    )

    assert next_size(fit) == 1
