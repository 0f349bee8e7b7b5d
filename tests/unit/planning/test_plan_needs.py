"""What tasks need by the records of runs, and by curves through them."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sessions import check_session
from some_runs import a_run
from transcript import check_answers

from weigh.model.gpu import GpuUsage
from weigh.model.plan import TaskKind, TaskNeed
from weigh.model.record import Record
from weigh.planning.needs import StatedUsage, TaskNeeds, needs_of_tasks
from weigh.planning.record_match import (
    RecordLibrary,
    SimilarRecordFinder,
    command_parts,
    failed_runs,
    kind_of_command,
    nearest_records,
    record_candidates,
)
from weigh.request import from_usages
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


WORDS = ["ppo", "dqn", "-v", "1", "2", "2.5", "--n", "--n=1", "--n=2", "kind=a", "a"]
ARGUMENTS = st.lists(st.sampled_from(WORDS), max_size=3).map(tuple)
LABELS = st.sampled_from(["plain", "a", "ppo"])


def texts_of(words: Sequence[str]) -> set[str]:
    """Return the words that are no numbers, apart where an = joins them."""
    return {w for w in re.split("[ =]", " ".join(words)) if not re.match(r"\d|$", w)}


def numbers_of(words: Sequence[str]) -> set[str]:
    """Return the numbers, each with its option in front."""
    line = re.sub(r"(-v|--n) (?=\d)", r"\1=", " ".join(words))
    return {word for word in line.split() if re.search(r"\d$", word)}


@given(ARGUMENTS, st.dictionaries(ARGUMENTS, LABELS, min_size=1, max_size=6))
def test_the_records_that_share_the_most_words_and_then_the_most_numbers_count(
    line: tuple[str, ...], runs: dict[tuple[str, ...], str]
) -> None:
    def shared(words: tuple[str, ...]) -> tuple[int, int]:
        texts = texts_of((*words, runs[words])) & texts_of(line)
        return len(texts), len(numbers_of(words) & numbers_of(line))

    records = [
        run(" ".join(("t", "t.py", *words)), name=str(words), label=label)
        for words, label in runs.items()
    ]
    known = record_candidates(map(head_of, records))
    parts = command_parts(("t", "t.py", *line))
    finder = SimilarRecordFinder(RecordLibrary(known, lambda _: records[0]))
    found = nearest_records(finder.most_alike("", parts), parts[2])

    most = max(map(shared, runs))
    assert found == tuple(str(one) for one in runs if shared(one) == most)


FIGURES = st.tuples(*[st.integers(1, 9)] * 4)
STATED = st.tuples(*[st.none() | st.integers(1, 9)] * 4)
UNITS = {"memory": GIB, "gpu_memory": GIB, "time": 100, "cpus": 1}


# the last figure of a run is how much of its time it kept the GPU busy
@given(st.lists(FIGURES, min_size=1, max_size=3), STATED, st.sampled_from([0, 0.1, 1]))
def test_what_is_stated_counts_and_else_the_largest_that_was_measured(
    runs: list[tuple[int, ...]], stated: tuple[int | None, ...], headroom: float
) -> None:
    records = []
    for number, (memory, held, time, busy) in enumerate(runs):
        card = GpuUsage("1", "T4", peak_memory=held * GIB, utilization_mean=12 * busy)
        known = {"gpus": (card,), "virtual_memory": 20 * GIB, "wall_time": 100.0 * time}
        records.append(a_run("t t.py", memory * GIB, id=f"{number}", **known))
    pairs = zip(UNITS.items(), stated, strict=True)
    said = {name: count * unit for (name, unit), count in pairs if count}
    usage = StatedUsage(**said)

    (kind,) = needs(records, "t t.py", said=usage, headroom=headroom).kinds

    asked = from_usages(records, headroom=headroom)
    most = [max(column) for column in zip(*runs, strict=True)]
    for name, largest in zip(("memory", "gpu_memory", "time"), most, strict=False):
        used = said.get(name, largest * UNITS[name])
        assert getattr(kind.used, name) == used
        is_rounded = name == "memory" and name not in said
        need = asked.memory if is_rounded else used * (1 + headroom)
        assert getattr(kind.item, name) == pytest.approx(need, abs=1)
    assert kind.item.cpus == kind.used.cpus == said.get("cpus", asked.cpus)
    more = max(0, kind.item.memory - (asked.memory or 0))
    assert kind.virtual_memory == (asked.virtual_memory or 0) + more
    assert kind.busy == min(1.0, 0.12 * most[3])


@given(st.lists(st.tuples(*[st.integers(1, 9)] * 3), min_size=1, max_size=3))
def test_an_element_has_room_for_the_ranks_of_any_task(
    layouts: list[tuple[int, int, int]],
) -> None:
    items = [
        TaskNeed(nodes=min(nodes, ranks), ntasks=ranks if ranks > 1 else 0, cpus=cpus)
        for nodes, ranks, cpus in layouts
    ]
    kinds = tuple(TaskKind(item=one, used=one, tasks=1, example="") for one in items)
    element = TaskNeeds(kinds, (*range(len(kinds)),)).ranks
    assert element.nodes == max(one.nodes for one in items)
    assert element.per_node == max(-(-one.ntasks // one.nodes) for one in items)
    shares = (-(-one.cpus // (-(-one.ntasks // one.nodes) or 1)) for one in items)
    assert element.cpus == max(shares)
    alike = len({(one.nodes, one.ntasks) for one in items}) == 1
    filled = element.nodes * element.per_node
    assert element.ntasks == (items[0].ntasks if alike else filled)
