"""What schedulers read and write: a row each, and whole texts that real ones printed.

The rows are in read_and_written.txt, what is read in the texts in captured_texts.txt.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from captured_text import captured
from transcript import check_texts

from weigh.errors import FormatError
from weigh.schedulers import KINDS, htcondor
from weigh.schedulers.gridengine import accounting as qacct
from weigh.schedulers.gridengine import cluster as cell
from weigh.schedulers.gridengine import scheduler as gridengine
from weigh.schedulers.kind import Argv, PastAccounting
from weigh.schedulers.slurm import accounting as sacct
from weigh.schedulers.slurm import cluster, script
from weigh.schedulers.slurm import scheduler as slurm

ROWS = Path(__file__).with_name("read_and_written.txt").read_text()
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
UNITS |= {"m": 60, "h": 3600, "d": 86400}
TEXTS = dict(row[2:].split(": ", 1) for row in ROWS.splitlines() if row[:2] == "= ")
Reader = Callable[[str], object]


@pytest.fixture(autouse=True)
def _in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read local times as those of UTC: the files are the same everywhere."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def written(found: object) -> str:
    """Return an answer as a row states it: of a struct, the fields that are known."""
    if isinstance(found, tuple | Iterator):
        some = tuple(found)
        is_flat = all(isinstance(one, str | int | float) for one in some)
        return (" " if is_flat else "; ").join(map(written, some))
    if isinstance(found, dict):  # of each element of each job
        jobs = ((job, *one) for job, ended in found.items() for one in ended.items())
        return "; ".join(f"{job}_{number} {written(one)}" for job, number, one in jobs)
    if isinstance(found, msgspec.Struct):
        known = msgspec.structs.asdict(found).items()
        return " ".join(f"{k}={_field(v)}" for k, v in known if v not in (None, ()))
    return str(found)


def _field(value: object) -> str:
    """Return a field's value; in brackets where it has fields of its own."""
    parts = value if isinstance(value, tuple) else (value,)
    if any(isinstance(part, msgspec.Struct) for part in parts):
        return "".join(f"[{written(part)}]" for part in parts)
    return written(value)


def figure(text: str) -> int:
    """Return the sum of terms such as ``36 h + 15``."""
    terms = (term.strip().partition(" ") for term in text.split("+"))
    return sum(int(number) * UNITS[unit] for number, _, unit in terms)


def rows() -> Iterator[tuple[str, str, str]]:
    question = ""
    for line in ROWS.splitlines():
        if line.startswith(" "):
            argument, _, answer = line.strip().partition(" -> ")
            yield question, argument, answer
        elif not line.startswith(("#", "= ")):
            question = line.partition(":")[0]


def text_of(argument: str) -> str:
    """Return the text of an argument, which may name one and what is exchanged."""
    if argument.startswith("@"):
        name, *exchanged = argument[1:].split(" | ")
        text = TEXTS[name] if name in TEXTS else captured(name)
        for old, new in (pair.split(" => ") for pair in exchanged):
            assert old in text
            text = text.replace(old, new)
        return text.replace("\\n", "\n")
    return argument.replace("\\n", "\n")


def reader(question: str) -> Any:
    """Return the function of a part of a scheduler, or else of a module."""
    *place, name = question.split()
    if len(place) == 1:
        return getattr(import_module(f"weigh.schedulers.{place[0]}"), name)
    return getattr(getattr(KINDS[place[0]], place[1]), name)


@pytest.mark.parametrize("row", [*rows()], ids=" ".join)
def test_a_scheduler_reads_and_writes_as_its_commands_do(
    row: tuple[str, str, str],
) -> None:
    question, argument, answer = row
    words: object = text_of(argument)
    if " format" in question:
        words = figure(argument)
    elif question.endswith("_from_environment"):
        words = dict(word.split("=") for word in argument.split())
    elif question.endswith("read_past"):
        words = text_of(argument).splitlines(keepends=True)

    if answer == "refused":
        with pytest.raises(FormatError):
            reader(question)(words)
        return
    found = reader(question)(words)
    if isinstance(found, int | float) and not isinstance(found, bool):
        assert found == figure(answer)
    else:
        assert written(found) == answer.removeprefix("nothing")


HOSTS = cell.parse_hosts(captured("gridengine-8.1.9-qhost.txt"))
TOTALS = cell.parse_host_totals(captured("gridengine-8.1.9-host.txt"))


def texts_of(cluster_name: str, names: Mapping[Argv, str]) -> dict[Argv, str]:
    """Return what each question was answered on a cluster, by the name of its file."""
    return {argv: captured(f"{cluster_name}-{names[argv]}.txt") for argv in names}


SLURM_TEXTS = texts_of(
    "slurm-22.05",
    {
        cluster.NODES: "node",
        cluster.PARTITIONS: "partition",
        cluster.CONFIG: "config",
    },
)
CELL_TEXTS = texts_of(
    "gridengine-8.1.9",
    {cell.HOSTS: "qhost", cell.QUEUES: "queues", cell.COMPLEXES: "complexes"},
)


def past_jobs(accounting: PastAccounting) -> Reader:
    """Return the reader of all jobs, which gets lines with their ends."""
    return lambda text: accounting.read_past(text.splitlines(keepends=True))


READERS: dict[str, Reader] = {
    "slurm-22.05-node.txt": cluster.parse_nodes,
    "slurm-25.05-node.txt": cluster.parse_nodes,
    "slurm-22.05-partition.txt": cluster.parse_partitions,
    "slurm-25.05-partition.txt": cluster.parse_partitions,
    "slurm-22.05-squeue.txt": cluster.parse_squeue_jobs,
    "slurm-22.05-config.txt": lambda _: cluster.slurm_cluster_limits(SLURM_TEXTS),
    "slurm-22.05-squeue-elements.txt": slurm.COMMANDS.parse_queue,
    "slurm-22.05-sacct-ended.txt": slurm.COMMANDS.parse_ended,
    "slurm-22.05-scontrol-job.txt": script.parse_scontrol_job,
    "slurm-22.05-sacct-past.txt": past_jobs(sacct.ACCOUNTING),
    "gridengine-8.1.9-qhost.txt": lambda _: tuple(
        cell.node_of_host(host, TOTALS) for host in HOSTS
    ),
    "gridengine-8.1.9-queues.txt": lambda text: cell.with_states(
        cell.parse_queues(text), HOSTS
    ),
    "gridengine-8.1.9-complexes.txt": lambda _: cell.gridengine_cluster_limits(
        CELL_TEXTS, {"rig": TOTALS}
    ),
    "gridengine-8.1.9-qstat.xml": cell.parse_qstat_jobs,
    "gridengine-8.1.9-qstat-states.xml": gridengine.COMMANDS.parse_queue,
    "gridengine-8.1.9-qstat-job.txt": gridengine.parse_qstat_job,
    "gridengine-8.1.9-qacct.txt": past_jobs(qacct.ACCOUNTING),
    "htcondor-23.9-queue.json": htcondor.COMMANDS.parse_queue,
    "htcondor-23.9-history.json": htcondor.COMMANDS.parse_ended,
    "htcondor-23.9-history.json, the account of job 23": lambda text: (
        htcondor.ACCOUNTING.parse(
            json.dumps([ad for ad in json.loads(text) if ad["ClusterId"] == 23])
        )
    ),
    "htcondor-23.9-status.json": htcondor.nodes_of_slots,
}


def test_each_captured_answer_reads_as_it_was_reviewed() -> None:
    texts = {
        name: written(read(captured(name.partition(",")[0]))).replace("; ", "\n")
        for name, read in READERS.items()
    }

    check_texts(Path(__file__).with_name("captured_texts.txt"), texts)
