"""The request for a run of several ranks: no placement of them gets too little."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from some_ranks import run_of_ranks

from weigh.flow.scan.from_records import (
    TypedOptions,
    parse_options,
    scan_answer_of_records,
)
from weigh.model.record import Record, Request
from weigh.planning import needs
from weigh.request import from_usages
from weigh.schedulers import gridengine, slurm
from weigh.units import MIB

SIZES = st.integers(1 * MIB, 4000 * MIB)


def asked(record: Record) -> Request:
    return from_usages([record])


HOSTS = st.lists(st.lists(SIZES, min_size=1, max_size=5), min_size=1, max_size=4)


@given(HOSTS, SIZES, st.data())
def test_memory_per_cpu_is_enough_wherever_the_ranks_go(
    hosts: list[list[int]], script: int, data: st.DataObject
) -> None:
    request = asked(run_of_ranks(hosts, script=script))
    assert request.memory_per_cpu is not None
    ranks = [size for sizes in hosts for size in sizes]
    some = data.draw(st.lists(st.sampled_from(range(len(ranks))), unique=True))
    held = sum(ranks[number] for number in some) + (script if some else 0)
    assert held <= request.memory_per_cpu * request.cpus * len(some)


@given(HOSTS, SIZES)
def test_memory_is_enough_for_each_node_as_it_was(
    hosts: list[list[int]], script: int
) -> None:
    request = asked(run_of_ranks(hosts, script=script))
    assert request.memory is not None
    assert request.nodes is not None
    assert request.ntasks == sum(map(len, hosts))
    assert request.memory >= max(sum(hosts[0]) + script, *map(sum, hosts))
    assert request.nodes * (request.ntasks_per_node or 0) >= request.ntasks


def test_worked_examples_of_layouts() -> None:
    names: dict[str, object] = {"slurm": slurm, "gridengine": gridengine}
    names |= {"asked": asked, "run_of_ranks": run_of_ranks}
    check_session(Path(__file__).with_name("request_layout.session"), names)


@pytest.mark.parametrize("ranks", [(1, 2, 4), (2, 4, 8)])
def test_a_scan_over_the_ranks_requests_what_each_needs(ranks: tuple[int, ...]) -> None:
    sizes = [[100 * MIB] * count for count in ranks]
    # two to a node: the memory of a node says nothing about that of eight ranks
    runs = [
        msgspec.structs.replace(
            run_of_ranks([held[:2], held[2:4], held[4:]] if held[2:] else [held]),
            parameters={"ntasks": len(held)},
            command=("srun", "-n", str(len(held)), "prog"),
        )
        for held in sizes
    ]
    runs = [
        r if len(r.ranks) > 1 else msgspec.structs.replace(r, ranks=()) for r in runs
    ]
    found = scan_answer_of_records(
        runs, "ntasks", parse_options(TypedOptions(target="16"), "ntasks", {})
    )
    assert found.request is not None
    assert slurm.TEXT.directives(found.request)[0] == "--ntasks=16"
    assert found.request.memory is None
    assert 100 * MIB <= (found.request.memory_per_cpu or 0) <= 150 * MIB


def test_plans_and_scans_call_what_was_not_seen_a_lower_bound() -> None:
    runs = [
        msgspec.structs.replace(
            run_of_ranks(
                [[100 * MIB * size]], missing=("1 of 2 nodes sent no figures",)
            ),
            parameters={"size": size},
            command=("srun", "prog", str(size)),
        )
        for size in (1, 2)
    ]
    words = "memory is a lower bound: 1 of 2 nodes sent no figures"
    assert (
        words
        in scan_answer_of_records(
            runs, "size", parse_options(TypedOptions(), "size", {})
        ).warnings
    )
    assert words in needs.measurement_notes(runs, needs.StatedUsage())
