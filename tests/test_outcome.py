import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import (
    Measurement,
    Monitor,
    Series,
    Usage,
)
from weigh.outcome import judge, signal_name


def measured(
    code: int | None = 0,
    number: int | None = None,
    *,
    oom_kills: int | None = 0,
    told_to_end: int | None = None,
) -> Measurement:
    return Measurement(
        started=0.0,
        ended=1.0,
        exit_code=code,
        signal=number,
        usage=Usage(wall_time=1.0),
        series=Series(),
        monitor=Monitor(),
        oom_kills=oom_kills,
        told_to_end=told_to_end,
    )


def reason(run: Measurement) -> str:
    outcome = judge(run)[1]
    assert outcome is not None
    return "; ".join((outcome.reason, *outcome.evidence))


def test_exit_code_0_needs_no_explanation() -> None:
    assert judge(measured(0)) == ("COMPLETED", None)


def test_any_other_exit_code_is_a_failure_and_is_named() -> None:
    assert judge(measured(7))[0] == "FAILED"
    assert reason(measured(7)) == "exit code 7"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_that_asks_to_end_is_a_cancellation(number: int) -> None:
    state, _ = judge(measured(None, number))
    assert state == "CANCELLED"
    assert signal.Signals(number).name in reason(measured(None, number))


def test_a_shells_128_and_n_is_read_as_the_signal() -> None:
    assert judge(measured(128 + signal.SIGTERM)) == judge(
        measured(None, signal.SIGTERM)
    )


@pytest.mark.parametrize("code", [128, 128 + 70, 255])
def test_an_exit_code_of_no_signal_is_an_exit_code(code: int) -> None:
    assert reason(measured(code)) == f"exit code {code}"


def test_the_cpu_time_limit_is_a_timeout() -> None:
    assert judge(measured(None, signal.SIGXCPU))[0] == "TIMEOUT"


def test_a_crash_is_a_failure() -> None:
    assert judge(measured(None, signal.SIGSEGV))[0] == "FAILED"
    assert "SIGSEGV" in reason(measured(None, signal.SIGSEGV))


@pytest.mark.parametrize("end", [(None, signal.SIGKILL), (137, None), (1, None)])
def test_a_count_of_oom_kills_decides_for_memory(
    end: tuple[int | None, int | None],
) -> None:
    run = measured(*end, oom_kills=2)
    assert judge(run)[0] == "OUT_OF_MEMORY"
    assert "rose by 2" in reason(run)


def test_memory_comes_before_being_told_to_end() -> None:
    run = measured(None, signal.SIGTERM, oom_kills=1, told_to_end=signal.SIGTERM)
    assert judge(run)[0] == "OUT_OF_MEMORY"


def test_a_job_that_outlived_an_oom_kill_completed_and_says_so() -> None:
    assert judge(measured(0, oom_kills=1))[0] == "COMPLETED"
    assert "killed for memory" in reason(measured(0, oom_kills=1))


def test_sigkill_without_an_oom_kill_is_somebody_elses() -> None:
    assert judge(measured(None, signal.SIGKILL))[0] == "FAILED"
    assert "no oom_kill was counted" in reason(measured(None, signal.SIGKILL))


def test_sigkill_where_no_count_can_be_read_is_not_called_somebody_elses() -> None:
    said = reason(measured(None, signal.SIGKILL, oom_kills=None))
    assert "not known" in said
    assert "no oom_kill" not in said


def test_a_count_that_fell_is_no_kill() -> None:
    """The process was moved to another control group meanwhile."""
    assert judge(measured(1, oom_kills=-3))[0] == "FAILED"


def test_being_told_to_end_explains_an_odd_exit_code() -> None:
    run = measured(3, told_to_end=signal.SIGTERM)
    assert judge(run)[0] == "CANCELLED"
    assert "weigh was sent SIGTERM" in reason(run)


def test_a_job_that_finished_all_the_same_completed() -> None:
    assert judge(measured(0, told_to_end=signal.SIGTERM)) == ("COMPLETED", None)


ENDS = st.tuples(st.just(0) | st.integers(0, 255), st.none()) | st.tuples(
    st.none(), st.integers(1, 64)
)


@given(ENDS, st.none() | st.integers(-5, 5), st.none() | st.integers(1, 64))
def test_exit_code_0_alone_is_completed_and_all_else_has_a_reason(
    end: tuple[int | None, int | None], oom_kills: int | None, told: int | None
) -> None:
    state, outcome = judge(measured(*end, oom_kills=oom_kills, told_to_end=told))
    assert (state == "COMPLETED") == (end == (0, None))
    assert state == "COMPLETED" or outcome is not None


@pytest.mark.parametrize("number", list(signal.Signals))
def test_signals_are_named_as_the_system_names_them(number: signal.Signals) -> None:
    assert signal_name(number) in {number.name, f"signal {int(number)}"}
