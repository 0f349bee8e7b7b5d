"""What the tests of ``weigh plan`` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from weigh.model.gpu import GpuUsage
from weigh.model.plan import Plan
from weigh.model.record import PeakMemory, Record, Usage
from weigh.store import identity, shards
from weigh.units import GIB, MIB

Weigh = Callable[..., tuple[int, str, str]]

HUNDRED = "".join(f"python ppo.py --seed {seed}\n" for seed in range(1, 101))


def read_plan(folder: Path) -> Plan:
    return msgspec.json.decode((folder / "plan.json").read_bytes(), type=Plan)


def a_run(command: str, *held: int, busy: float | None = None, **fields: Any) -> Record:
    """Return a record of a command that held so much on each of its V100s."""
    gpus = tuple(
        GpuUsage(
            f"GPU-{at}",
            "Tesla V100-SXM2-32GB",
            32768 * MIB,
            peak_memory=one,
            utilization_mean=busy,
        )
        for at, one in enumerate(held)
    )
    peak = PeakMemory(GIB, GIB, GIB, None, None, None, "test")
    usual: dict[str, Any] = {
        "id": command.encode().hex(),
        "started": "2026-11-21T10:00:00Z",
        "state": "COMPLETED",
        "exit_code": 0,
        "usage": Usage(wall_time=3000.0, peak_memory=peak, gpus=gpus),
    }
    return Record(command=tuple(command.split()), **usual | fields)


def keep_run(folder: Path, record: Record) -> None:
    """Store a record in the store of *folder*."""
    shards.append_record(str(folder / ".weigh"), record, identity.this_machine())
