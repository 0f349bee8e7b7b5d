"""Tasks that start ranks: each element requests the layout of the ranks."""

from pathlib import Path

import msgspec
from msgspec.structs import replace
from sessions import check_session
from some_ranks import run_of_ranks
from transcript import check_answers

from weigh.flow.plan.plan import no_library
from weigh.model.job import JobRequest
from weigh.model.plan import Plan
from weigh.model.record import Record
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


def launched(line: str) -> str:
    words = task_line_words(line)
    found = launch_of(words)
    known = ("none",) if found is None else msgspec.structs.astuple(found)
    layout = " ".join("-" if one is None else str(one) for one in known)
    return f"{layout} {command_parts(words)[0][0]}"


def test_the_ranks_that_a_line_starts_are_read_from_its_launcher() -> None:
    path = Path(__file__).with_name("launchers.texts")
    name = "ranks, nodes, ranks on a node and CPUs of a rank, and the program"
    check_answers(path, {name: launched})


def measured(
    command: str, *hosts: int, each: int = 100 * MIB, own_weigh: int | None = None
) -> Record:
    """Return a run with so many ranks on each of its hosts; none: one process."""
    run = run_of_ranks(
        [[each] * count for count in hosts or (1,)],
        command=command,
        cpus=1.0 / max(1, sum(hosts)),
        wall_time=60.0,
        own_weigh=own_weigh,
    )
    return run if hosts else replace(run, ranks=(), nodes=())


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
