"""What holds of every fit, whatever was measured."""

import math
import random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from sized_runs import BY, fit_of, sized_run, sized_runs

import weigh
from weigh.errors import UsageError
from weigh.estimate.advice import (
    FitOptions,
    MemoryLimit,
    accumulate,
    advise_from_estimate,
)
from weigh.estimate.curve import QuadraticCurve, SizePoint, gather_size_points
from weigh.estimate.fit import (
    FittedCurve,
    Quantity,
    fit_curve,
    sizes_that_fit,
)
from weigh.units import GIB, MIB

QUANTITIES: tuple[Quantity, ...] = ("memory", "gpu_memory", "time", "time_per_sample")
LEVELS = st.floats(0.01, 0.999)

sizes = st.integers(1, 10_000)
bytes_held = st.integers(1 * MIB, 200 * GIB)
measured = st.dictionaries(sizes, bytes_held, min_size=2, max_size=8)


@st.composite
def fits(draw: st.DrawFn, quantity: Quantity | None = None) -> FittedCurve:
    of = draw(st.sampled_from(QUANTITIES)) if quantity is None else quantity
    return fit_of(draw(measured).items(), of)


@st.composite
def rising_fits(draw: st.DrawFn) -> FittedCurve:
    """Memory that never falls with the size."""
    xs = sorted(draw(st.sets(sizes, min_size=2, max_size=8)))
    ys = sorted(draw(st.lists(bytes_held, min_size=len(xs), max_size=len(xs))))
    return fit_of(zip(xs, ys, strict=True))


@given(rising_fits(), st.floats(0.1, 50_000), st.floats(0.1, 50_000))
def test_memory_that_never_falls_is_predicted_not_to(
    made: FittedCurve, one: float, other: float
) -> None:
    less, more = sorted((one, other))

    assert made.predict(less) <= made.predict(more) * (1 + 1e-9)


@given(
    st.sampled_from((1.5, 2.0, 3.0)),
    st.integers(1, 500),
    st.integers(1, 100_000),
    st.sets(st.integers(20, 400), min_size=2, max_size=6),
    st.floats(0.05, 0.95),
)
@example(power=3.0, model=1, each=1, found={40, 51, 56, 57, 87, 158}, part=0.5)
def test_the_bound_holds_below_the_sizes_where_memory_grows_faster_than_they(
    power: float, model: int, each: int, found: set[int], part: float
) -> None:
    def truth(size: float) -> float:
        return MIB * (model + each * math.pow(size / 100, power))

    points = gather_size_points([(x, truth(x)) for x in found], keep="most")
    fit = fit_curve(points, "memory", base=model * MIB * 0.9)
    size = part * min(found)

    assert fit.upper(size) >= truth(size) * 0.98
    # and never more than the smallest run took, or is predicted to: a parabola
    # through a cubic is some per cent off there
    least = min(found)
    assert fit.predict(size) <= max(truth(least), fit.predict(least)) * 1.02


@given(fits(), st.floats(0.1, 50_000), LEVELS)
def test_a_bound_is_never_below_what_is_expected(
    made: FittedCurve, x: float, level: float
) -> None:
    assert made.upper(x, level) >= made.predict(x)


@given(fits(), st.floats(0.1, 50_000), LEVELS, LEVELS)
def test_a_surer_bound_is_never_lower(
    made: FittedCurve, x: float, one: float, other: float
) -> None:
    less, more = sorted((one, other))

    assert made.upper(x, less) <= made.upper(x, more)


@given(measured, sizes, bytes_held, LEVELS)
def test_whatever_runs_are_added_no_bound_is_below_the_most_seen_up_to_there(
    found: dict[int, int], size: int, more: int, level: float
) -> None:
    pairs = [*found.items(), (size, more)]
    made = fit_of(pairs)

    for x, _ in pairs:
        assert made.upper(x, level) >= max(y for other, y in pairs if other <= x)


@given(st.lists(sizes, min_size=2, max_size=6, unique=True), bytes_held, LEVELS)
def test_a_bigger_run_never_lowers_the_bound_of_memory_that_stays(
    xs: list[int], memory: int, level: float
) -> None:
    same = [SizePoint(float(x), memory, memory, memory) for x in sorted(xs)]
    more = memory * 1.01
    bigger = [*same[:-1], SizePoint(same[-1].x, more, memory, more, runs=2)]

    before, after = fit_curve(same, "memory"), fit_curve(bigger, "memory")

    for x in (*xs, 2 * max(xs)):
        assert after.upper(x, level) >= before.upper(x, level)


@given(fits("memory") | fits("gpu_memory"), st.integers(MIB, 400 * GIB), LEVELS)
def test_the_largest_size_fits_by_its_own_bound_and_one_more_does_not(
    made: FittedCurve, memory: int, level: float
) -> None:
    held = sizes_that_fit(made, memory, level)

    assert (held.size or 0) <= (held.at_most or 0)
    assert (held.next_size is None) == (not held.why)
    assert held.next_size is None or held.next_size >= 1
    assume(not held.unbounded)

    if held.size is None:
        assert made.upper(1, level) > memory
    else:
        assert made.upper(held.size, level) <= memory
        assert made.upper(held.size + 1, level) > memory


@given(fits("memory"), sizes, st.integers(MIB, 400 * GIB))
def test_a_size_that_failed_is_never_held(
    made: FittedCurve, size: int, memory: int
) -> None:
    failing = replace(made, failed=float(size))

    held = sizes_that_fit(failing, memory)

    assert (held.size or 0) < size
    assert (held.at_most or 0) < size


@given(st.integers(1, 5000), st.integers(0, 5000))
@example(batch=7, largest=2)  # a prime number: one sample each
def test_micro_batches_make_up_the_batch_exactly_in_the_fewest_steps(
    batch: int, largest: int
) -> None:
    made = accumulate(batch, largest)

    possible = [
        n for n in range(1, batch + 1) if batch % n == 0 and batch // n <= largest
    ]
    if largest >= batch or not possible:
        assert made is None
    else:
        assert made is not None
        assert made.micro_batch * made.steps == batch
        assert made.steps == min(possible)


@given(measured)
def test_an_estimate_has_the_units_of_what_was_measured(found: dict[int, int]) -> None:
    """Bytes in, whole bytes out: also as text, and back."""
    made = weigh.fit(sized_runs(list(found), list(found.values())), by=BY)
    memory = int(made.upper(3))

    assert isinstance(made.predict(3), int)
    assert made.largest(memory) == made.largest(f"{memory}B")
    assert made.largest(memory * 1024) == made.largest(f"{memory}K")


numbers = (
    st.floats() | st.integers(-(10**12), 10**12) | st.sampled_from([0, 1, 2, 4, "x"])
)


@given(st.lists(st.tuples(numbers, numbers, st.floats()), max_size=6))
def test_records_of_any_numbers_give_an_estimate_or_a_usage_error(
    rows: list[tuple[float | str, float | str, float]],
) -> None:
    runs = []
    for size, memory, time in rows:
        known = isinstance(memory, int) or (
            isinstance(memory, float) and math.isfinite(memory)
        )
        runs.append(sized_run(size, memory if known else None, time=time))  # type: ignore[arg-type]
    try:
        made = weigh.fit(runs, by=BY)
    except UsageError:
        return
    advice = advise_from_estimate(
        made, FitOptions(target=100.0, limits=(MemoryLimit("RAM", GIB, "memory"),))
    )
    assert advice.target is not None


# as a person chooses them: each at least a fifth larger than the one before
growing_sizes = st.lists(st.floats(1.2, 2.5), min_size=3, max_size=6).map(
    lambda ratios: [100 * math.prod(ratios[:turn]) for turn in range(len(ratios) + 1)]
)


@pytest.mark.parametrize("power", [1, 2])
@given(growing_sizes, st.floats(0, 1), st.floats(1.1, 4))
def test_an_exact_square_is_predicted_as_one_and_a_line_is_taken_for_none(
    power: int, sizes: list[float], base: float, times: float
) -> None:
    def used(size: float) -> float:
        return GIB * (base + (size / sizes[0]) ** power)

    made = fit_of((size, used(size)) for size in sizes)
    target = times * sizes[-1]

    if power != 1:
        assert isinstance(made.curve, QuadraticCurve)
        assert made.curve.slope == 0
    assert made.predict(target) == pytest.approx(used(target), rel=0.05)


@pytest.mark.parametrize("count", [4, 5, 7])
def test_bounds_of_squares_with_noise_hold(count: int) -> None:
    draw, held = random.Random(count), []
    for _ in range(300):
        sizes = [100 * draw.uniform(1, 1.3) * 1.6**turn for turn in range(count)]
        base, target = draw.uniform(0, 1), sizes[-1] * draw.uniform(1.1, 3)
        pairs = [
            (size, GIB * (base + (size / sizes[0]) ** 2) * draw.gauss(1, 0.01))
            for size in sizes
        ]
        made = fit_of(pairs)
        held.append(made.upper(target) >= GIB * (base + (target / sizes[0]) ** 2))

    assert sum(held) / len(held) >= 0.95
