import csv
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sessions import check_session

from weigh.errors import FormatError, UsageError
from weigh.estimate.history import (
    RISKS,
    HistoryPrediction,
    LowerBound,
    PastValue,
    Risk,
    RunHistory,
    SampledHistory,
    SampledMemory,
    escalate,
    margin_above_largest,
)
from weigh.units import MIB, parse_size

TRACES = Path(__file__).parents[2] / "support" / "data" / "workflows"

values = st.floats(1e3, 1e13)
few_values = st.lists(values, min_size=3, max_size=30)
sized = st.tuples(values, st.floats(1, 1e6))
few_sized = st.lists(sized, min_size=3, max_size=30)
risks = st.sampled_from(RISKS)
quick = settings(max_examples=40, deadline=None)


def of_values(runs: Sequence[float], risk: Risk = "low") -> RunHistory:
    return RunHistory.of([PastValue(value) for value in runs], risk=risk)


def of_sized(runs: Sequence[tuple[float, float]], risk: Risk = "low") -> RunHistory:
    return RunHistory.of(
        [PastValue(value, (at,)) for value, at in runs], ["x"], risk=risk
    )


def metaspades(risk: Risk) -> HistoryPrediction:
    with (TRACES / "galaxy_metaspades_size.csv").open() as file:
        runs = [
            PastValue(
                parse_size(row["peak_memory"]),
                (float(row["file_size"] or "nan"),),
                float(row["wall_time"]),
            )
            for row in csv.DictReader(file)
        ]
    return RunHistory.of(runs, ["file_size"], risk=risk).predict([5e9])


@quick
@given(few_values)
def test_low_risk_requests_the_most_seen_and_a_margin(runs: list[float]) -> None:
    said = of_values(runs).predict()
    top = sorted(runs, reverse=True)[:3]
    assert said.value == pytest.approx(
        (1 + margin_above_largest(len(runs), top)) * max(runs)
    )
    assert said.margin == pytest.approx(margin_above_largest(len(runs), top), abs=0.001)


@quick
@given(few_values, risks)
def test_no_run_it_is_from_would_have_been_killed(
    runs: list[float], risk: Risk
) -> None:
    assert max(runs) <= of_values(runs, risk).predict().value


@quick
@given(few_sized, risks)
def test_no_run_of_a_size_would_have_been_killed_at_it(
    runs: list[tuple[float, float]], risk: Risk
) -> None:
    history = of_sized(runs, risk)
    for value, at in runs:
        assert value <= history.predict([at]).value


@quick
@given(few_sized, risks)
def test_learning_one_by_one_is_learning_at_once(
    runs: list[tuple[float, float]], risk: Risk
) -> None:
    history = RunHistory(["x"], risk=risk)
    for value, at in runs:
        history.add(PastValue(value, (at,)))

    first = [runs[0][1]]
    assert history.predict(first) == of_sized(runs, risk).predict(first)


@quick
@given(few_values, risks, st.floats(1e-3, 1e3))
def test_another_unit_gives_the_same_answer(
    runs: list[float], risk: Risk, unit: float
) -> None:
    said = of_values(runs, risk).predict().value
    scaled = of_values([value * unit for value in runs], risk).predict().value

    assert scaled == pytest.approx(said * unit)


@quick
@given(few_sized, st.floats(1, 1e9))
def test_no_answer_is_above_the_most_seen_carried_on(
    runs: list[tuple[float, float]], at: float
) -> None:
    most, largest = max(v for v, _ in runs), max(s for _, s in runs)

    for risk in RISKS:
        said = of_sized(runs, risk).predict([at])
        assert said.reach == pytest.approx(max(1, at / largest))
        assert said.value <= most * (1 + said.margin) * min(said.reach, 4) * 1.001


@quick
@given(few_values)
def test_the_replay_is_each_run_requested_from_those_before_it(
    runs: list[float],
) -> None:
    killed, asked = 0, 0.0
    for place in range(3, len(runs)):
        tried = of_values(runs[:place], "normal").predict().value
        killed += tried < runs[place]
        while tried < runs[place]:
            asked += tried
            tried = escalate(tried, max(runs[:place]))
        asked += tried

    replay = of_values(runs, "normal").predict().replay

    assert (replay.runs, replay.killed) == (len(runs) - 3, killed)
    assert replay.requested == pytest.approx(asked)


def test_a_real_trace_costs_less_at_normal_risk_than_at_low() -> None:
    low, normal = metaspades("low").replay, metaspades("normal").replay

    assert low.waste is not None
    assert normal.waste is not None
    assert normal.waste < low.waste
    assert normal.killed <= 0.04 * normal.runs


def test_worked_examples_of_histories() -> None:
    names = {"of_sized": of_sized, "of_values": of_values}
    check_session(Path(__file__).with_name("history.session"), names)


ONES = [1.0] * 2_000


@pytest.mark.parametrize("value", [math.nan, 0.0, -1.0, math.inf])
@pytest.mark.parametrize(
    "learn",
    [
        lambda value: of_values([1.0, 1.0, value]),
        lambda value: of_values([value, *ONES]),  # an old run, too
        lambda value: RunHistory().add_bound(LowerBound(value)),
    ],
)
def test_what_is_no_measurement_is_refused_in_one_line(
    learn: Callable[[float], object], value: float
) -> None:
    with pytest.raises(FormatError, match="not a measurement") as refused:
        learn(value)

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        *((of_values([1.0] * n).predict, "run 3 of these first") for n in (0, 1, 2)),
        (lambda: RunHistory(["x"]).add(PastValue(1.0)), "expected: x"),
        (lambda: RunHistory(risk="none"), "low, normal, high"),  # type: ignore[arg-type]
    ],
)
def test_what_history_cannot_answer_is_refused_with_the_way_out(
    ask: Callable[[], object], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        ask()


@given(
    st.sampled_from((1.0, 1.5, 2.0, 3.0)),
    st.floats(0.01, 10),
    st.lists(st.floats(5, 20), min_size=3, max_size=20),
    st.floats(0.05, 0.95),
)
def test_a_request_below_the_sizes_holds_however_fast_the_need_grows(
    power: float, each: float, sizes: list[float], part: float
) -> None:
    def truth(size: float) -> float:
        return 100 * MIB * (1 + each * math.pow(size / 10, power))

    history = RunHistory.of([PastValue(truth(x), (x,)) for x in sizes], ["n"])
    size = part * min(sizes)

    assert history.predict((size,)).value >= truth(size)


@given(
    st.lists(
        st.builds(
            SampledMemory,
            st.floats(1, 1e12),
            st.integers(0, 10**6),
            st.none() | st.floats(1, 1e12),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_request_covers_what_was_seen_and_never_exceeds_what_is_proven(
    runs: list[SampledMemory],
) -> None:
    accounts = SampledHistory()
    for run in runs:
        accounts.add(run)
    prediction = accounts.predict()
    seen = [run for run in runs if run.is_well_seen]

    assert (prediction is None) == (not seen)
    if prediction is not None:
        assert prediction.value >= max(run.value for run in seen)
        if accounts.proven is not None:
            assert prediction.value <= accounts.proven
        assert prediction.replay.runs == max(0, len(seen) - 3)


def test_a_replay_is_what_each_run_would_have_cost() -> None:
    chance = random.Random(3)
    runs = [SampledMemory(chance.lognormvariate(3, 0.4), 10**6) for _ in range(40)]
    accounts, killed = SampledHistory(), 0
    for number, run in enumerate(runs):
        before = accounts.predict()
        killed += number >= 3 and before is not None and before.value < run.value
        accounts.add(run)

    prediction = accounts.predict()

    assert prediction is not None
    assert prediction.replay.killed == killed
    assert prediction.replay.runs == 37
