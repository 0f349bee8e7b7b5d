"""Requests from figures that were sampled, and from jobs that completed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.estimate.history import SampledHistory, SampledMemory
from weigh.units import GIB


def learnt(*runs: SampledMemory, kills: tuple[float, ...] = ()) -> SampledHistory:
    accounts = SampledHistory()
    for run in runs:
        accounts.add(run)
    for kill in kills:
        accounts.add_kill(kill)
    return accounts


def value(*runs: SampledMemory, kills: tuple[float, ...] = ()) -> float:
    prediction = learnt(*runs, kills=kills).predict()
    assert prediction is not None
    return prediction.value


@pytest.mark.parametrize(
    ("looks", "upper"), [(1, 110), (10, 110), (20, 105), (1000, 100.1)]
)
def test_few_samples_raise_a_figure(looks: int, upper: float) -> None:
    assert SampledMemory(100, looks).upper == pytest.approx(upper)


def test_a_job_that_completed_proves_its_request() -> None:
    assert SampledMemory(100, 1, requested=104).upper == 104
    assert value(*[SampledMemory(100, 1, requested=104)] * 5) == 104


def test_a_request_that_was_exceeded_proves_nothing() -> None:
    runs = [SampledMemory(100, 1, requested=90)] * 5

    assert learnt(*runs).proven is None
    assert value(*runs) > 110


def test_a_kill_above_all_that_was_seen_doubles_its_limit() -> None:
    runs = [SampledMemory(100, 50, requested=120)] * 5

    assert value(*runs, kills=(200,)) == 400
    assert value(*runs, kills=(50,)) < 120


def test_a_kill_at_a_request_that_was_enough_for_others_is_no_proof() -> None:
    assert value(SampledMemory(100, 50, requested=120), kills=(120,)) == 240


def test_what_nobody_sampled_proves_its_request_and_nothing_else() -> None:
    accounts = learnt(*[SampledMemory(3, 0, requested=GIB)] * 4)

    assert accounts.predict() is None
    assert accounts.proven == GIB


def test_more_runs_need_less_margin_and_more_where_they_vary() -> None:
    steady = [value(*[SampledMemory(100, 1000)] * n) for n in (3, 10, 100)]

    assert steady == sorted(steady, reverse=True)
    assert value(*(SampledMemory(100 - 10 * n, 1000) for n in range(10))) > steady[1]


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
    accounts = learnt(*runs)
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
    killed = sum(value(*runs[:n]) < runs[n].value for n in range(3, len(runs)))

    prediction = learnt(*runs).predict()

    assert prediction is not None
    assert prediction.replay.killed == killed
    assert prediction.replay.runs == 37
