from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.model.record import CpuWait, Usage
from weigh.usage_needs import cpus_for


def test_worked_examples_of_waits_for_cpus() -> None:
    check_session(Path(__file__).with_name("cpu_need.session"), {})


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
        plain, waited = (
            cpus_for(Usage(6.8, cpu_time=3.02, cpus_used=used, cpu_wait=one))
            for one in (None, found)
        )
        assert plain <= waited <= max(plain, threads)
