"""Tasks that start ranks: each element requests the layout of the ranks."""

from pathlib import Path

import msgspec
import pytest
from sessions import check_session
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
from weigh.schedulers import slurm
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


def test_worked_examples_of_ranks() -> None:
    names = {"measured": measured, "plan_of": plan_of, "flags": flags}
    check_session(Path(__file__).with_name("ranks.session"), names)
