import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import CpuWait, Usage
from weigh.usage_needs import cpus_for, need_notes, wait_words

FULL = CpuWait(time=10.1, wanted=1.95, alone=1.6, threads=3, cpus=2, others=1.5)


def usage(wait: CpuWait | None, used: float = 0.45) -> Usage:
    return Usage(wall_time=6.8, cpu_time=3.02, cpus_used=used, cpu_wait=wait)


def test_a_pool_on_a_full_machine_gets_the_cpus_it_waited_for() -> None:
    assert cpus_for(usage(FULL)) == 2
    assert wait_words(usage(FULL)) == (
        "waited 10.1 s for a CPU: all CPUs were busy (others used 1.5 of 2 CPUs)"
    )
    (note,) = need_notes(usage(FULL))
    assert note == (
        "on 2 CPUs of its own it would take 1.60 s instead of 6.80 s "
        "(it could use 1.95)"
    )


def test_what_needs_more_threads_at_times_takes_longer_on_the_cpus_requested() -> None:
    bursts = msgspec.structs.replace(FULL, threads=1, alone=1.6)
    (note,) = need_notes(usage(bursts))
    assert "on 1 CPU of its own it would take 3.02 s instead" in note


def test_threads_that_wait_for_each_other_get_no_more_cpus() -> None:
    own = CpuWait(time=16.4, wanted=6.1, alone=2.2, threads=8, cpus=2, others=0.02)
    assert cpus_for(usage(own, used=1.95)) == 2
    assert (
        wait_words(usage(own)) == "waited 16.4 s for a CPU: up to 8 threads on 2 CPUs"
    )
    assert list(need_notes(usage(own))) == [
        "it has 8 threads for 2 CPUs: set their number, or request more CPUs"
    ]


def test_a_cpu_limit_is_named() -> None:
    held = msgspec.structs.replace(FULL, throttled=9.0)
    assert wait_words(usage(held)).endswith("a control group limits its CPU time")
    assert cpus_for(usage(held)) == 2


@pytest.mark.parametrize(
    "wait", [None, CpuWait(time=0.2, wanted=1.9, alone=3.0, threads=4, others=1.0)]
)
def test_without_a_wait_that_matters_the_busy_cpus_count(wait: CpuWait | None) -> None:
    assert cpus_for(usage(wait)) == 1
    assert cpus_for(usage(wait, used=2.3)) == 3
    assert wait_words(usage(wait)) == ""
    assert list(need_notes(usage(wait))) == []


def test_a_run_that_mostly_sleeps_gets_no_advice_on_cpus() -> None:
    idle = msgspec.structs.replace(FULL, wanted=0.5, alone=5.0)
    assert list(need_notes(usage(idle))) == []


@given(
    wait=st.floats(0, 1e6),
    wanted=st.floats(0, 1e4),
    threads=st.integers(0, 9999),
    others=st.none() | st.floats(0, 512),
)
def test_a_wait_never_lowers_the_cpus(
    wait: float, wanted: float, threads: int, others: float | None
) -> None:
    found = CpuWait(wait, wanted, 1.0, threads=threads, cpus=4, others=others)
    for used in (0.2, 3.7):
        plain = cpus_for(usage(None, used))
        assert plain <= cpus_for(usage(found, used)) <= max(plain, threads)
