"""Curves, points and counts where there is little to go by."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import UsageError
from weigh.estimate.curve import (
    ConstantCurve,
    InverseCurve,
    LinearCurve,
    PowerCurve,
    QuadraticCurve,
    SizePoint,
    apart,
    bent_line,
    fit_quadratic,
    gather_size_points,
)
from weigh.estimate.estimate import near_best, share_of_best
from weigh.estimate.fit import FittedCurve, Quantity, caveats, choose_curve, next_size
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
    tall = [(size, 2.0 if size in {2, 999} else 1.0) for size in range(1, 1001)]
    xs = [point.x for point in gather_size_points(tall, keep="most") if point.y > 1]
    assert xs == [2, 999]


SQUARE = PowerCurve(0.0, 1.0, 2.0)
FASTER = "grows faster than the size: a line would start below"


@pytest.mark.parametrize(
    ("quantity", "known", "doubts"),
    [
        ("memory", {}, ()),
        (
            "memory",
            {"bend": 0.5},
            ("the slope grows by 50 % along the sizes measured",),
        ),
        (
            "memory",
            {"bend": -0.5},
            ("the slope falls by 50 % along the sizes measured",),
        ),
        ("memory", {"power": SQUARE}, (f"memory {FASTER} zero",)),
        (
            "time",
            {"power": SQUARE, "base": 5.0},
            (f"time {FASTER} what the model alone holds",),
        ),
        (
            "memory",
            {"curve": ConstantCurve(4.0), "points": points((1, 2), (2, 4), (3, 3))},
            ("the values differ by 50 %, but do not follow the size",),
        ),
    ],
)
def test_a_slope_that_changes_is_a_doubt(
    quantity: Quantity, known: dict[str, Any], doubts: tuple[str, ...]
) -> None:
    line, sizes = LinearCurve(0.0, 1.0), points((1, 1), (2, 2), (3, 3))
    fields = {"quantity": quantity, "points": sizes, "curve": line} | known

    assert caveats(FittedCurve(**fields)) == doubts


STEEP = {"points": points((1, 1), (2, 3), (4, 7)), "curve": LinearCurve(-1.0, 2.0)}
FLAT = LinearCurve(100.0, 1.0)


@pytest.mark.parametrize(
    ("quantity", "known", "size", "factor", "bound"),
    [
        # within the sizes a line does not lean, however bent
        ("memory", STEEP | {"bend": 0.5}, 4.0, 0.0, 7.0),
        ("memory", STEEP | {"bend": 0.5}, 2.0, 0.0, 3.0),
        # 10 off at size 4, and by the root of 16 / 4 more at 16
        (
            "time",
            {"points": points((1, 10), (2, 20), (4, 50)), "curve": LinearCurve(0, 10)},
            *(16.0, 0.0, 180.0),
        ),
        # three sizes show a line, two may hide a faster growth
        (
            "memory",
            {"points": points((10, 110), (20, 120), (40, 140)), "curve": FLAT},
            *(1.0, 0.0, 101.0),
        ),
        (
            "memory",
            {"points": points((10, 110), (20, 120)), "curve": FLAT},
            *(1.0, 0.0, 110.0),
        ),
        # a constant varies by 8 %
        (
            "memory",
            {"points": points((1, 100), (3, 100)), "curve": ConstantCurve(100.0)},
            *(2.0, 1.0, 108.0),
        ),
    ],
)
def test_a_bound_is_as_it_is_worked_out_by_hand(
    quantity: Quantity, known: dict[str, Any], size: float, factor: float, bound: float
) -> None:
    fit = FittedCurve(quantity=quantity, **known)

    assert fit.bound(size, factor) == pytest.approx(bound)


@pytest.mark.parametrize(
    ("curve", "sizes", "bends"),
    [
        ((2.0, 3.0, 4.0), (1, 2, 3, 4, 5), True),
        ((2.0, 3.0, 4.0), (1, 2, 3, 4), False),  # it takes five
        ((90.0, 30.0, -1.0), (1, 2, 3, 4, 5), False),  # slower and slower
        ((30.0, -3.0, 1.0), (1, 2, 3, 4, 5), False),  # it falls at first
        ((30.0, -3.0, 1.0), (1.6, 2, 3, 4, 5), True),  # its minimum is at 1.5
    ],
)
def test_five_sizes_of_a_rising_parabola_give_its_coefficients(
    curve: tuple[float, float, float],
    sizes: tuple[float, ...],
    bends: bool,  # noqa: FBT001 - a table
) -> None:
    a, b, c = curve
    found = fit_quadratic(points(*((x, a + b * x + c * x * x) for x in sizes)))

    coefficients = found and (found.intercept, found.slope, found.square)
    assert coefficients == (pytest.approx(curve) if bends else None)


def test_a_parabola_left_of_its_minimum_stays_there() -> None:
    curve = QuadraticCurve(10.0, -4.0, 1.0)

    assert [curve.at(x) for x in (0.5, 2.0, 3.0)] == [6.0, 6.0, 7.0]


@given(*[st.integers(-9, 9)] * 3, st.integers(1, 40))
def test_a_bent_line_through_three_points_is_exact(
    a: int, b: int, c: int, least: int
) -> None:
    made = [(x, float(a + b * x + c * x * x)) for x in (least, 2 * least, 5 * least)]
    curve = bent_line(points(*made))

    found = (curve.intercept, curve.slope, curve.square)
    assert found == pytest.approx((a, b, c), abs=1e-6)


def test_sizes_are_apart_from_five_per_cent_on() -> None:
    assert [point.x for point in apart(points((100, 1), (105, 2)))] == [100, 105]
    assert [point.x for point in apart(points((100, 1), (104, 2)))] == [104]


UP_AND_DOWN = [*range(10, 18), 9.9]


@pytest.mark.parametrize(
    ("values", "falling"),
    [
        (UP_AND_DOWN, True),
        (UP_AND_DOWN, False),
        # a rise of 16, of which more than a tenth is lost in between
        ([100, 110, 115, 107, 116], False),
    ],
)
def test_what_does_not_follow_the_size_is_held_at_its_most(
    values: Sequence[float],
    falling: bool,  # noqa: FBT001 - a table
) -> None:
    made = choose_curve(points(*enumerate(values, start=1)), falling=falling)

    assert made == ConstantCurve(max(values))


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


@pytest.mark.parametrize(
    ("largest", "following"),
    [(0.2, 1), (4, 8), (61.7, 120), (617, 1200), (61728, 120_000)],
)
def test_a_size_to_measure_is_twice_the_largest_in_two_digits(
    largest: float, following: int
) -> None:
    sizes = points((largest / 2, 1), (largest, 2))
    fit = FittedCurve(quantity="memory", points=sizes, curve=LinearCurve(0.0, 10))

    assert next_size(fit) == following
