"""What the tests of ``weigh plan`` share."""

from pathlib import Path
from typing import Any

import msgspec
from some_runs import a_run

from weigh.model.gpu import GpuUsage
from weigh.model.plan import Plan
from weigh.model.record import Record
from weigh.units import GIB, MIB

HUNDRED = "".join(f"python ppo.py --seed {seed}\n" for seed in range(1, 101))
V100 = ("Tesla V100-SXM2-32GB", 32768 * MIB)


def read_plan(folder: Path) -> Plan:
    return msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)


def gpu_run(
    command: str, *held: int, busy: float | None = None, **known: Any
) -> Record:
    """Return a record of a command that held so much on each of its V100s."""
    gpus = tuple(
        GpuUsage(f"GPU-{at}", *V100, peak_memory=one, utilization_mean=busy)
        for at, one in enumerate(held)
    )
    usual: dict[str, Any] = {"id": command.encode().hex(), "wall_time": 3000.0}
    return a_run(command, GIB, gpus=gpus, **usual | known)
