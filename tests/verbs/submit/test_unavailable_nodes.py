"""Nodes and queues that take no jobs now: the job is submitted, and waits."""

import os
import subprocess
from collections.abc import Iterator

import pytest
from following import Weigh

pytestmark = pytest.mark.alone


def scontrol(*words: str) -> None:
    subprocess.run(["scontrol", *words], check=True, timeout=20, capture_output=True)


@pytest.fixture
def real(real: Weigh) -> Iterator[Weigh]:
    """``weigh`` with a real Slurm; nodes and partitions are resumed at the end."""
    yield real
    subprocess.run(["scancel", "--user=root"], check=True, timeout=20)
    for name in ("cn1", "cn2", "cn3"):
        subprocess.run(
            ["scontrol", "update", f"NodeName={name}", "State=RESUME"],
            check=False,
            timeout=20,
            capture_output=True,
        )
    scontrol("update", "PartitionName=long", "State=UP")


def submit(real: Weigh, *words: str) -> tuple[int, str]:
    plan = real.plan("true", "true")
    code, out, err = real("submit", plan, "--on", real.scheduler, *words)
    return code, " ".join((out + err).split())


@pytest.mark.slurm
def test_a_reserved_node_is_no_reason_to_refuse(real: Weigh) -> None:
    made = ("ReservationName=maint", "Users=researcher", "StartTime=now")
    scontrol("create", "reservation", *made, "Duration=60", "Nodes=cn1", "Flags=MAINT")
    try:
        code, said = submit(real, "--gpus", "v100")
    finally:
        subprocess.run(["scancel", "--user=root"], check=True, timeout=20)
        scontrol("delete", "ReservationName=maint")

    assert code == 0, said


LONG, FIVE_GPUS = ("-p", "long"), ("--gpus", "v100:5")
REFUSED = "sbatch would reject the job: Required partition not available"
NO_NODE = "5 v100 GPUs on one node"


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("changed", "words", "code", "shown"),
    [
        ("NodeName=cn[1-3] State=DRAIN Reason=power", (), 0, "submitted 2 elements"),
        ("PartitionName=long State=DOWN", LONG, 0, "queue long starts no jobs now"),
        ("PartitionName=long State=DRAIN", LONG, 2, REFUSED),
        ("NodeName=cn1 State=DRAIN Reason=x", FIVE_GPUS, 2, NO_NODE),
    ],
)
def test_only_what_no_node_or_partition_will_take_is_refused(
    real: Weigh, changed: str, words: tuple[str, ...], code: int, shown: str
) -> None:
    scontrol("update", *changed.split())

    ended, said = submit(real, *words)

    assert (ended, shown in said) == (code, True), said
    assert shown == NO_NODE or "never" not in said
    if "DOWN" in changed:  # a queue that is closed has nothing free
        out = " ".join(real("cluster")[1].split())
        assert ("long (closed)" in out, "0 of 2" in out) == (True, True)


@pytest.fixture
def grid(cell: Weigh) -> Iterator[Weigh]:
    """``weigh`` with a real Grid Engine whose queues are opened again at the end."""
    yield cell
    subprocess.run(["qdel", "-u", "root"], check=False, timeout=20, capture_output=True)
    for flag in ("-e", "-us"):
        subprocess.run(["qmod", flag, "*"], check=False, timeout=20)


@pytest.mark.gridengine
def test_grid_engine_s_queue_that_is_disabled_is_named(grid: Weigh) -> None:
    command = ["qmod", "-d", f"short@{os.uname().nodename}"]
    subprocess.run(command, check=True, timeout=20, capture_output=True)

    code, said = submit(grid, "-p", "short")

    assert code == 0, said
    assert "queue short starts no jobs now" in said
