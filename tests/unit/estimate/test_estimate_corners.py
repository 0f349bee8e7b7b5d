"""Curves, points and counts where there is little to go by."""

import math

import pytest

from weigh.errors import UsageError
from weigh.estimate.curve import (
    ConstantCurve,
    InverseCurve,
    LinearCurve,
    SizePoint,
    bend,
    fit_power,
    fit_quadratic,
    gather_size_points,
)
from weigh.estimate.estimate import near_best, share_of_best
from weigh.estimate.fit import FittedCurve, caveats, next_size
from weigh.estimate.growth import growth_of, progress_of
from weigh.estimate.readings import gpu_memory
from weigh.model.gpu import GpuUsage
from weigh.model.record import BatchTimes, ProgramEvent, Record, Usage
from weigh.robust import median_of, rise_score


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


def test_a_power_law_needs_every_point_above_its_base() -> None:
    assert fit_power(points((1, 5), (2, 8)), base=5.0) is None


def test_a_parabola_needs_five_sizes() -> None:
    assert fit_quadratic(points((1, 1), (2, 4), (3, 9), (4, 16))) is None


def test_a_parabola_goes_through_no_sizes_that_are_all_but_the_same() -> None:
    near = points(*((1e9 + n, 1.0 + n) for n in range(5)))

    assert fit_quadratic(near) is None


def test_two_sizes_have_no_bend() -> None:
    assert bend(points((1, 1), (2, 9))) == 0.0


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


def test_of_nothing_the_median_is_zero() -> None:
    assert median_of([]) == 0.0


def test_a_few_values_rise_in_no_sure_way() -> None:
    assert rise_score([1.0, 2.0]) == 0.0


def test_a_gpu_that_nobody_could_read_does_not_count() -> None:
    cards = (GpuUsage("GPU-1", "V100"), GpuUsage("GPU-2", "V100", peak_memory=5))

    assert gpu_memory(Usage(wall_time=1.0, gpus=cards)) == 5


def test_a_loop_states_how_many_batches_there_are() -> None:
    loop = BatchTimes(50, 10, 500, time_mean=2.0, total=40)

    made = progress_of(a_run(batches=loop))

    assert made is not None
    assert (made.done, made.total, made.step_time) == (10, 40, 2.0)


def test_a_count_given_goes_by_the_whole_time() -> None:
    made = progress_of(a_run(), done=50)

    assert made is not None
    assert (made.step_time, made.source) == (2.0, "as given")


def test_a_count_given_that_a_loop_shares_goes_by_the_loop() -> None:
    loop = BatchTimes(50, 10, 500, time_mean=2.0)

    made = progress_of(a_run(batches=loop), done=10)

    assert made is not None
    assert made.step_time == 2.0


@pytest.mark.parametrize("value", ["many", 0, -1])
def test_a_parameter_that_counts_nothing_is_no_progress(value: float | str) -> None:
    assert progress_of(a_run(parameters={"lr": 0.1, "steps": value})) is None


def test_a_parameter_named_like_steps_is_progress() -> None:
    made = progress_of(a_run(parameters={"lr": 0.1, "max_steps": 200}))

    assert made is not None
    assert (made.done, made.step_time) == (200, 0.5)


@pytest.mark.parametrize(
    "told",
    [
        ((1.0, 5), (2.0, 5)),  # does not get on
        ((2.0, 1), (2.0, 9)),  # in no time
        ((1.0, 1),),
    ],
)
def test_events_that_do_not_go_forward_are_no_progress(
    told: tuple[tuple[float, int], ...],
) -> None:
    events = tuple(ProgramEvent("step", time, value) for time, value in told)

    assert progress_of(a_run(events=events)) is None


def test_what_is_flat_has_no_bend() -> None:
    assert bend(points((1, 5), (2, 5), (3, 5))) == 0.0


def test_a_size_to_measure_is_one_at_least() -> None:
    fit = FittedCurve(
        quantity="memory", points=points((0.1, 1), (0.2, 2)), curve=LinearCurve(0.0, 10)
    )

    assert next_size(fit) == 1


def test_memory_that_nobody_saw_grew_in_no_way() -> None:
    assert growth_of([], []) is None
