"""The request for a run of several ranks: no placement of them gets too little."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_ranks import run_of_ranks

from weigh.flow.scan.from_records import (
    TypedOptions,
    parse_options,
    scan_answer_of_records,
)
from weigh.model.record import Record, Request
from weigh.planning import needs
from weigh.request import from_usages, per_task
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


def test_the_layout_is_written_for_slurm_and_grid_engine() -> None:
    run = run_of_ranks([[100 * MIB, 150 * MIB], [200 * MIB, 250 * MIB]], cpus=1.9)
    request = msgspec.structs.replace(asked(run), virtual_memory=4000 * MIB)
    assert slurm.TEXT.directives(request)[:4] == (
        "--nodes=2",
        "--ntasks-per-node=2",
        "--mem=540M",
        "--cpus-per-task=2",
    )
    assert slurm.TEXT.any_layout(request)[:2] == ("--ntasks=4", "--mem-per-cpu=150M")
    assert gridengine.TEXT.directives(request)[:2] == ("-l h_vmem=500M", "-pe mpi 8")


def test_an_uneven_layout_names_the_number_of_tasks() -> None:
    request = asked(run_of_ranks([[MIB, MIB, MIB], [MIB]]))
    assert slurm.TEXT.directives(request)[:3] == (
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=3",
    )


def test_workers_of_torchrun_are_one_task_per_node() -> None:
    run = run_of_ranks([[100 * MIB] * 4, [100 * MIB] * 4], launcher="torch")
    request = asked(run)
    assert slurm.TEXT.directives(request)[:2] == ("--nodes=2", "--ntasks-per-node=1")
    assert request.cpus == 4
    assert slurm.TEXT.any_layout(request) == ()


def test_what_was_not_seen_makes_it_a_lower_bound() -> None:
    assert not asked(run_of_ranks([[MIB]])).lower_bound
    request = asked(run_of_ranks([[MIB, MIB]], missing=("1 of 3 ranks were not seen",)))
    assert request.lower_bound
    assert any("1 of 3 ranks" in note for note in request.notes)


def test_a_weigh_of_each_rank_is_part_of_its_request() -> None:
    run = run_of_ranks([[10 * MIB] * 8])
    under = run_of_ranks([[10 * MIB] * 8], own_weigh=20 * MIB)
    plain, each = asked(run), asked(under)
    assert plain.memory is not None
    assert each.memory is not None
    assert each.memory >= plain.memory + 8 * 20 * MIB - 50 * MIB
    assert (each.memory_per_cpu or 0) >= 30 * MIB
    assert per_task(under) == (8, 30 * MIB)


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
