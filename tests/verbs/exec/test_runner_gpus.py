"""GPUs shared out and watched, on simulated GPUs."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from processes import until
from sessions import check_session

from weigh.errors import UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.runner.gpus import GpuClaims
from weigh.units import GIB

GRID_ENGINE = Allocation("gridengine", cpus=4)


class FakeGpus(GpuProbe):
    """So many gpus of 8 GiB, and what is held on each: {process: bytes}."""

    def __init__(self, *held: dict[int, int]) -> None:
        self.held = list(held)
        self.lock = threading.Lock()
        self.looks = 0

    def devices(self) -> tuple[GpuDevice, ...]:
        return tuple(
            GpuDevice(at, f"GPU-{at}", "A GPU", 8 * GIB) for at in range(len(self.held))
        )

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        del activity
        with self.lock:
            self.looks += 1
            return tuple(
                GpuReading(
                    f"GPU-{at}",
                    memory_used=sum(held.values()),
                    process_memory=dict(held),
                    processes=tuple(held),
                )
                for at, held in enumerate(self.held)
            )

    def hold(self, at: int, held: dict[int, int]) -> None:
        """Have processes hold memory on a GPU."""
        with self.lock:
            self.held[at].update(held)
            looks = self.looks
        until(lambda: self.looks > looks + 1)


def scope(folder: Path) -> str:
    """Return a word that no other test has, short enough for the name of a socket."""
    return str(folder.stat().st_ino)


def test_worked_examples_of_gpus_of_runs_and_tasks(tmp_path: Path) -> None:
    names = {"FakeGpus": FakeGpus, "until": until, "scope": scope(tmp_path)}
    check_session(Path(__file__).with_name("runner_gpus.session"), names)


def test_a_claim_ends_with_the_process_that_has_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\nsys.path[:0] = sys.argv[2:]\n"
        "from test_runner_gpus import *\n"
        "own = GpuClaims(sys.argv[1])\n"
        "own.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1)\n"
        "print('claimed', flush=True)\ntime.sleep(600)"
    )
    argv = [sys.executable, "-c", program, scope(tmp_path), *sys.path]
    claims = GpuClaims(scope(tmp_path))
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(UsageError, match="no GPU is idle"):
            claims.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1)
        other.kill()
    assert claims.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1) == ("0",)
    claims.release()
