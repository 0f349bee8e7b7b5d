"""What a fit answers, and where it refuses to answer with one number."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest
from sessions import check_session
from sized_runs import BY, fit_of, on_a_line, sized_run

import weigh
from weigh.errors import UsageError
from weigh.estimate.advice import MemoryLimit
from weigh.estimate.estimate import SizeEstimate
from weigh.estimate.fit import Quantity, caveats
from weigh.model.record import JvmHeap, Record, RecordedHost, RunOutcome
from weigh.units import GIB, MIB

A_LINE = on_a_line(8, 16, 32)


def fit(records: list[Record]) -> SizeEstimate:
    return weigh.fit(records, by=BY)


def burst(size: float, *evidence: str, **other: object) -> Record:
    out = RunOutcome("ran out of memory", evidence)
    run = sized_run(size, 100 * MIB, state="OUT_OF_MEMORY", outcome=out)
    return msgspec.structs.replace(run, **other)


def named(memory: float, command: str, **parameters: float | str) -> Record:
    """Return a run of a command with its parameters filled in."""
    words = tuple(command.format(**parameters).split())
    return sized_run(1, memory, command=words, parameters=parameters)


def falling(*sizes: int) -> list[Record]:
    return [sized_run(x, GIB, gpu=GIB + x * 100 * MIB, time=3 + 40 / x) for x in sizes]


def gpu_limits(*sizes: float) -> tuple[MemoryLimit, ...]:
    return tuple(
        MemoryLimit(f"{size}", round(size * GIB), "gpu_memory") for size in sizes
    )


def timed(times: dict[int, float]) -> list[Record]:
    return [sized_run(x, GIB, time=t) for x, t in times.items()]


def curve(made: SizeEstimate, quantity: Quantity = "memory") -> str:
    return type(made.fit_of(quantity).curve).__name__


def test_worked_examples_of_fits() -> None:
    names = (fit, burst, named, falling, gpu_limits, timed, curve)
    path = Path(__file__).with_name("fit_answers.session")
    check_session(path, {one.__name__: one for one in names})


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: fit([sized_run(8, GIB)] * 2), r"one distinct size \(8\)"),
    (lambda: fit([sized_run(0, GIB)]), "batch_size=0 is not a size above 0"),
    (lambda: fit([sized_run("x", GIB)]), "batch_size='x' is not a size above 0"),
    (lambda: weigh.fit([], by=BY), "weigh scan"),
    (lambda: fit(A_LINE).predict(8, "gpu_memory"), "measure a run on a GPU"),
    (
        lambda: weigh.fit(
            [sized_run(x, GIB, parameters={BY: x, "n": x}) for x in (1, 2)]
        ),
        "name one of batch_size, n",
    ),
    *(
        (partial(fit(A_LINE).predict, size), "a size must be a number above 0")
        for size in (0, -1, math.nan, math.inf)
    ),
    *(
        (partial(fit(A_LINE).upper, 8, level), "not a share between 0 and 1")
        for level in (0, 1, 95, -1)
    ),
]


@pytest.mark.parametrize(("ask", "why"), REFUSED)
def test_what_has_no_answer_is_refused_with_the_reason(
    ask: Callable[[], object], why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        ask()


IMPOSSIBLE = "its memory or time is impossible"
LEFT_OUT: list[tuple[Record, str]] = [
    *(
        (sized_run(size, GIB), "its batch_size is not a number above 0")
        for size in ("large", math.nan, math.inf, 0, -8)
    ),
    *((sized_run(64, memory), IMPOSSIBLE) for memory in (0, -5)),
    *(
        (sized_run(64, GIB, time=time), IMPOSSIBLE)
        for time in (0.0, -1.0, math.nan, math.inf)
    ),
    (sized_run(64, GIB, parameters={}), "no parameter batch_size"),
    (
        sized_run(64, GIB, host=RecordedHost(name="node08", system="Linux")),
        "another host, node08",
    ),
    (
        sized_run(64, GIB, command=("python", "train.py", "64")),
        "another command, python train.py {batch_size}",
    ),
    (
        sized_run(64, GIB, jvm=JvmHeap(GIB, flags=("-Xmx1g",))),
        "another limit of memory, -Xmx=1g",
    ),
    (sized_run(64, GIB, state="FAILED"), "it did not complete"),
]


@pytest.mark.parametrize(("other", "note"), LEFT_OUT)
def test_a_record_of_something_else_or_without_figures_is_left_out_and_reported(
    other: Record, note: str
) -> None:
    made = fit([*A_LINE, other])

    assert made.notes == (f"1 record left out: {note}",)
    assert [point.x for point in made.fit_of("memory").points] == [8, 16, 32]
    assert made.group.host == "node07"


@pytest.mark.parametrize("quantity", ["memory", "time"])
@pytest.mark.parametrize(
    ("sizes", "used"),
    [
        ((2048, 3608, 3768), (15149, 24885, 36735)),
        ((586, 666, 736, 737), (70, 86, 92, 95)),
        ((849, 868, 886, 886.1), (60, 69, 75, 78)),
    ],
)
def test_two_sizes_that_are_almost_the_same_make_no_slope(
    quantity: Quantity, sizes: tuple[float, ...], used: tuple[float, ...]
) -> None:
    made = fit_of(zip(sizes, used, strict=True), quantity)
    twice = 2 * sizes[-1]

    assert made.upper(twice) < 3 * made.predict(twice)


def test_sizes_that_are_almost_the_same_do_not_count_as_three() -> None:
    made = fit_of([(10, 100), (20, 200), (20.5, 204)])

    assert "only 2 of the 3 sizes differ" in caveats(made)[0]


@pytest.mark.parametrize("most", [(5111, 6589, 8743), (100, 180, 175), (8, 20, 21)])
def test_memory_that_rises_unevenly_is_not_taken_to_stay(most: tuple[int, ...]) -> None:
    made = fit_of(zip((64, 120, 136), most, strict=True))

    assert made.predict(272) > 1.2 * max(most)
    assert caveats(made)


@pytest.mark.parametrize("most", [(40, 120, 86), (120, 60, 80), (80, 60, 85)])
def test_memory_that_does_not_follow_the_size_is_a_reason_not_to_trust_it(
    most: tuple[int, ...],
) -> None:
    made = fit_of(zip((40, 96, 112), most, strict=True))

    assert any("do not follow the size" in why for why in caveats(made))
