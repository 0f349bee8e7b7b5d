"""Tasks that start ranks: each element requests the layout of the ranks."""

from pathlib import Path

import msgspec
import pytest
from transcript import named_rows

from weigh.flow.plan.plan import no_library
from weigh.model.job import JobRequest
from weigh.model.plan import Plan
from weigh.model.record import (
    MeasuringCost,
    PeakMemory,
    Record,
    RecordedNode,
    RecordedRank,
    Usage,
)
from weigh.planning.launchers import launch_of
from weigh.planning.make_plan import plan_for_target
from weigh.planning.needs import needs_of_tasks
from weigh.planning.options import PlanOptions, PlanTarget, stated_usage
from weigh.planning.record_match import (
    RecordLibrary,
    command_parts,
    record_candidates,
    task_line_words,
)
from weigh.schedulers import gridengine, slurm
from weigh.schedulers.job_script import request_of
from weigh.store.index import head_of
from weigh.units import MIB

LAUNCHERS = named_rows(Path(__file__).with_name("launchers.texts"))["lines"]


@pytest.mark.parametrize(("line", "layout", "program"), LAUNCHERS)
def test_the_ranks_that_a_line_starts_are_read_from_its_launcher(
    line: str, layout: str, program: str
) -> None:
    """A layout is its ranks, nodes, ranks on a node, CPUs of a rank."""
    found = launch_of(task_line_words(line))
    known = () if found is None else msgspec.structs.astuple(found)
    assert " ".join("-" if one is None else str(one) for one in known) == layout
    assert command_parts(task_line_words(line))[0][0] == program


def measured(
    command: str, *hosts: int, each: int = 100 * MIB, own_weigh: int | None = None
) -> Record:
    """Return a run with so many ranks on each of its hosts; none: one process."""
    ranks: list[RecordedRank] = []
    nodes: list[RecordedNode] = []
    for at, count in enumerate(hosts):
        held = PeakMemory(count * each, count * each, count * each, 0, 0, 0, "test")
        nodes.append(RecordedNode(name=f"n{at}", peak_memory=held, final=True))
        for _ in range(count):
            rank = RecordedRank(
                len(ranks),
                host=f"n{at}",
                peak_memory=each,
                cpu_time=60.0,
                size=sum(hosts),
                launcher="step",
                start=0.0,
                wall_time=60.0,
            )
            ranks.append(rank)
    top = max(hosts, default=1) * each
    return Record(
        id=command.encode().hex()[:12],
        command=tuple(command.split()),
        started="2026-11-23T10:00:00Z",
        state="COMPLETED",
        exit_code=0,
        usage=Usage(
            wall_time=60.0,
            cpu_time=60.0,
            peak_memory=PeakMemory(top, top, top, 0, 0, 0, "test"),
        ),
        ranks=tuple(ranks),
        nodes=tuple(nodes),
        monitor=MeasuringCost(rank_memory=own_weigh),
    )


def plan_of(lines: list[str], *records: Record, **options: object) -> Plan:
    chosen = PlanOptions(task_file="t.txt", **options)  # type: ignore[arg-type]
    by_id = {record.id: record for record in records}
    library = no_library()
    if records:
        known = record_candidates(head_of(record) for record in records)
        library = RecordLibrary(known, by_id.__getitem__)
    needs = needs_of_tasks(lines, stated_usage(chosen), 0.0, library)
    return plan_for_target(chosen, needs, PlanTarget(None), 0.0)


def flags(plan: Plan) -> str:
    ask = plan.request
    request = JobRequest(
        cpus=ask.cpus, memory=ask.memory, nodes=ask.nodes, ntasks=ask.ntasks
    )
    return " ".join(slurm.TEXT.directives(request_of(request)))


LINES = ["srun -n4 ./solve --at 1", "srun -n4 ./solve --at 2"]


def test_elements_request_the_layout_that_was_measured() -> None:
    plan = plan_of([*LINES, "srun -n4 ./other"], measured(LINES[0], 2, 2))

    expected = "--nodes=2 --ntasks-per-node=2 --mem=220M --cpus-per-task=1"
    assert flags(plan) == expected
    assert [element.tasks for element in plan.elements] == [(1,), (2,), (3,)]


def test_a_run_under_a_weigh_each_counts_for_the_same_program_below_srun() -> None:
    record = measured("./solve --at 1", 2, 2, own_weigh=20 * MIB)

    assert "--nodes=2 --ntasks-per-node=2" in flags(plan_of(LINES, record))

    alone = plan_of(["./solve --at 1"], record)
    assert alone.request.ntasks == 0
    assert any("launcher with -n 4" in note for note in alone.notes)


def test_other_numbers_of_ranks_keep_what_a_node_holds() -> None:
    record = measured("srun -n 4 ./solve a", 2, 2)

    more = plan_of(["srun -n 7 ./solve a"], record)
    expected = "--nodes=4 --ntasks=7 --ntasks-per-node=2 --mem=220M --cpus-per-task=1"
    assert flags(more) == expected
    assert any("measured with 4 ranks" in note for note in more.notes)
    crowded = plan_of(["srun -n 4 ./solve a"], record, nodes=1)
    expected = "--nodes=1 --ntasks-per-node=4 --mem=420M --cpus-per-task=1"
    assert flags(crowded) == expected


def test_ranks_that_were_not_measured_are_requested_as_the_line_states_them() -> None:
    said = {"memory": "600MiB", "cpus": 4, "time": "5m"}  # of each node
    stated = plan_of(["mpirun -n 4 ./solve"], **said)
    expected = "--nodes=1 --ntasks-per-node=4 --mem=620M --cpus-per-task=1"
    assert flags(stated) == expected
    two = plan_of(["srun -n4 ./solve"], **said, nodes=2)
    expected = "--nodes=2 --ntasks-per-node=2 --mem=620M --cpus-per-task=2"
    assert flags(two) == expected

    one_process = plan_of(["srun -n4 ./solve a"], measured("./solve a"))
    assert one_process.request.memory == 420 * MIB
    assert any("4 times its memory" in note for note in one_process.notes)


def test_an_element_requests_the_most_ranks_of_its_tasks() -> None:
    record = measured("srun -n 4 ./solve a", 4)

    plan = plan_of(["srun -n 2 ./solve a", "srun -n 4 ./solve a", "true"], record)

    assert "--nodes=1 --ntasks-per-node=4" in flags(plan)
    assert any("tasks start 1 to 4 ranks" in note for note in plan.notes)


def test_a_script_that_starts_its_ranks_gets_their_layout() -> None:
    plan = plan_of(["bash job.sh"], measured("bash job.sh", 3, 1))

    expected = "--nodes=2 --ntasks-per-node=2 --mem=320M --cpus-per-task=1"
    assert flags(plan) == expected


def test_the_slots_of_grid_engine_are_those_of_all_ranks() -> None:
    request = JobRequest(cpus=4, ntasks=4, virtual_memory=4000 * MIB)

    words = gridengine.TEXT.directives(request_of(request))

    assert words == ("-l h_vmem=1000M", "-pe smp 4")
