"""The request for a run of several ranks: no placement of them gets too little."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from some_ranks import run_of_ranks

from weigh.model.record import Record, Request
from weigh.request import from_usages
from weigh.units import MIB

SIZES = st.integers(1 * MIB, 4000 * MIB)


def asked(record: Record) -> Request:
    return from_usages([record])


OWN_WEIGH = st.sampled_from([0, 20 * MIB, 2000 * MIB])  # with each rank again
HOSTS = st.lists(st.lists(SIZES, min_size=1, max_size=5), min_size=1, max_size=4)


@given(HOSTS, SIZES, OWN_WEIGH, st.data())
def test_memory_per_cpu_is_enough_wherever_the_ranks_go(
    hosts: list[list[int]], script: int, own_weigh: int, data: st.DataObject
) -> None:
    request = asked(run_of_ranks(hosts, script=script, own_weigh=own_weigh))
    assert request.memory_per_cpu is not None
    ranks = [size for sizes in hosts for size in sizes]
    some = data.draw(st.lists(st.sampled_from(range(len(ranks))), unique=True))
    held = sum(ranks[number] + own_weigh for number in some)
    held += script if some else 0
    assert held <= request.memory_per_cpu * request.cpus * len(some)


@given(HOSTS, SIZES, OWN_WEIGH)
def test_memory_is_enough_for_each_node_as_it_was(
    hosts: list[list[int]], script: int, own_weigh: int
) -> None:
    request = asked(run_of_ranks(hosts, script=script, own_weigh=own_weigh))
    assert request.memory is not None
    assert request.nodes is not None
    assert request.ntasks == sum(map(len, hosts))
    held = [sum(sizes) + own_weigh * len(sizes) for sizes in hosts]
    assert request.memory >= max(held[0] + script, *held)
    assert request.nodes * (request.ntasks_per_node or 0) >= request.ntasks


def test_worked_examples_of_layouts() -> None:
    names = {"asked": asked, "run_of_ranks": run_of_ranks}
    check_session(Path(__file__).with_name("request_layout.session"), names)
