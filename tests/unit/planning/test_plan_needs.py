"""What tasks need by the records of runs, and by curves through them."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st
from sessions import check_session
from some_runs import a_run
from transcript import check_answers

from weigh.model.gpu import GpuUsage
from weigh.model.record import Record
from weigh.planning.needs import StatedUsage, TaskNeeds, needs_of_tasks
from weigh.planning.record_match import (
    RecordLibrary,
    command_parts,
    failed_runs,
    kind_of_command,
    record_candidates,
)
from weigh.store.index import head_of
from weigh.units import GIB, MIB


def run(  # noqa: PLR0913 - a record in a line
    command: str,
    memory: int = GIB,
    *,
    name: str | None = None,
    gpu: int | None = None,
    time: float = 60.0,
    state: str = "COMPLETED",
    label: str | None = None,
    **parameters: float | str,
) -> Record:
    """Make a record of *command*, known by its own words unless it has a name."""
    card = GpuUsage("GPU-1", "Tesla T4", 16 * GIB, peak_memory=gpu)
    return a_run(
        command,
        memory,
        id=name or f"{command} {sorted(parameters.items())}".encode().hex(),
        label=label,
        parameters=parameters,
        state=state,
        wall_time=time,
        cpus_used=1.9,
        gpus=() if gpu is None else (card,),
    )


def needs(
    records: Sequence[Record],
    *lines: str,
    said: StatedUsage | None = None,
    table: Sequence[dict[str, float]] = (),
    headroom: float = 0.2,
    named: bool = False,
) -> TaskNeeds:
    by_id = {record.id: record for record in records}
    heads = [head_of(record) for record in records]
    library = RecordLibrary(
        record_candidates(heads),
        by_id.__getitem__,
        named=named,
        failed=failed_runs(heads),
    )
    parameters = (lambda number, _: table[number - 1]) if table else None
    return needs_of_tasks(lines, said or StatedUsage(), headroom, library, parameters)


def test_worked_examples_of_needs() -> None:
    path = Path(__file__).with_name("plan_needs.session")
    check_session(path, {"run": run, "needs": needs})


def test_commands_count_as_the_same_by_their_program_and_script() -> None:
    asked = {
        "words that count as the same": lambda line: " ".join(
            kind_of_command(shlex.split(line), {})
        ),
        "program and script of": lambda line: " ".join(command_parts(line.split())[0]),
    }
    check_answers(Path(__file__).with_name("kinds_of_commands.texts"), asked)


@given(
    base=st.integers(100, 4000),
    slope=st.integers(2, 500),
    sizes=st.sets(st.integers(10, 200), min_size=3, max_size=6),
    size=st.integers(1, 800),
)
def test_along_a_line_that_is_known_no_need_is_below_the_truth(
    base: int, slope: int, sizes: set[int], size: int
) -> None:
    def truth(x: int) -> int:
        return (base + slope * x) * MIB

    growth = truth(max(sizes)) - truth(min(sizes))
    assume(growth > 0.05 * truth(max(sizes)))
    records = [run(f"python t.py -b {n}", truth(n)) for n in sizes]

    (kind,) = needs(records, f"python t.py -b {size}").kinds
    assert kind.item.memory >= truth(size)
