"""`weigh run` against programs that know their own use; notes in programs.py.

At a quarter of the sizes: the interpreter's own 10 MiB weigh four times as much here.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from disks import is_on_a_disk
from run_captured import run_captured

from weigh.probe.perf import open_cpu_clock
from weigh.units import MIB

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the programs are for Linux"
)
PROGRAMS = Path(__file__).with_name("programs.py")
KINDS = ("a", "b", "c", "c2", "d", "e", "e2", "f", "f2", "k", "m")
PARTS = {"k": "anonymous", "e2": "shared", "m": "file"}  # what most of the peak is


def base_tolerance(truth: int) -> float:
    """Give what interpreters touch after they read what they hold: 0.2 MiB each."""
    return max(0.005 * truth, MIB / 2)


WEIGH = (sys.executable, "-m", "weigh", "run")


class Run:
    """One program run under weigh: its truth, and what weigh wrote."""

    def __init__(self, folder: Path, kind: str, *, seconds: float = 0.4) -> None:
        truth, output = folder / "truth.json", folder / "record.json"
        words = [
            kind,
            "--scale=0.25",
            f"--seconds={seconds}",
            f"--truth={truth}",
            f"--file={folder / 'file'}",
        ]
        subprocess.run(
            [*WEIGH, "-q", "-o", output, "--", sys.executable, PROGRAMS, *words],
            check=True,
            env={**os.environ, "WEIGH_DIR": str(folder / "store")},
        )
        self.truth: dict[str, Any] = json.loads(truth.read_text())
        self.record: dict[str, Any] = json.loads(output.read_text())
        self.usage: dict[str, Any] = self.record["usage"]

    def is_short(self) -> bool:
        """Return whether too little was seen: on a busy machine weigh looks late."""
        low = 0.95 * self.truth["peak_memory"]
        return bool(self.usage["peak_memory"]["value"] < low)


def run_of(folder: Path, kind: str) -> Run:
    """Run a program; once more, with ten times the patience, if too little was seen."""
    run = Run(folder, kind)
    return Run(folder, kind, seconds=4) if run.is_short() else run


@pytest.mark.parametrize("kind", KINDS)
def test_peak_memory_is_the_programs_own_and_within_the_bounds(
    kind: str, tmp_path: Path
) -> None:
    run = run_of(tmp_path, kind)
    truth, peak = run.truth["peak_memory"], run.usage["peak_memory"]
    assert peak["value"] == pytest.approx(truth, rel=0.05)
    # the truth is without page tables (1 / 512 of what a process maps, and other
    # processes map it too) and stacks, which weigh counts
    kernel = max(peak["kernel"] or 0, truth // 256)
    if "cgroup" in peak["source"]:  # version 1 counts caches that the kernel can drop
        kernel += MIB
    assert peak["low"] <= truth + kernel + base_tolerance(truth)
    assert truth - base_tolerance(truth) <= peak["high"]
    assert (
        sum(peak[part] for part in ("anonymous", "shared", "file", "kernel"))
        == (peak["value"])
    )
    if part := PARTS.get(kind):
        size = run.truth.get("file", truth)
        if peak[part] < 0.85 * size:  # weigh looked after the peak
            peak = Run(tmp_path, kind, seconds=4).usage["peak_memory"]
        assert peak[part] == pytest.approx(size, rel=0.15)  # the interpreter: 12 MiB


def test_cpu_time_of_100_short_children_is_counted(tmp_path: Path) -> None:
    run = Run(tmp_path, "cpu")
    assert run.usage["cpu_time"] == pytest.approx(run.truth["cpu_time"], rel=0.02)
    assert run.usage["processes"] > 1  # of 15 ms each: how many are met is chance


def test_cpu_time_of_children_that_nobody_waits_for_is_counted(tmp_path: Path) -> None:
    if open_cpu_clock(os.getpid()) is None:
        pytest.skip("the kernel lets this user open no perf event")
    run = Run(tmp_path, "nowait")
    used, told = run.usage["cpu_time"], run.truth["cpu_time"]
    ends = 0.002 * run.truth["processes"]  # what a child takes to end it cannot report
    assert 0.98 * told <= used <= 1.02 * told + ends


def test_bytes_written_are_counted(tmp_path: Path) -> None:
    if not is_on_a_disk(tmp_path):
        pytest.skip("the temporary folder is in memory: nothing reaches storage")
    run = Run(tmp_path, "writes")
    assert run.usage["write_bytes"] == pytest.approx(run.truth["write_bytes"], rel=0.01)


def test_a_run_is_timed_from_its_start_though_weigh_is_late(tmp_path: Path) -> None:
    """As where a GPU's driver takes a second to answer, or the machine is busy."""
    code = (
        "import sys, time; from weigh.__main__ import main;"
        "from weigh.measure import command; start = command.start_gpu_sampler;"
        "command.start_gpu_sampler = lambda *of: (time.sleep(1), start(*of))[1];"
        "sys.argv[0] = 'weigh'; main()"
    )
    words = ("run", "-q", "-o", str(tmp_path / "r.json"), "--", "sleep", "1.5")
    run_captured([sys.executable, "-c", code, *words], cwd=tmp_path)
    record = json.loads((tmp_path / "r.json").read_text())
    assert record["usage"]["wall_time"] >= 1.5


def test_a_record_states_what_measuring_cost(tmp_path: Path) -> None:
    run = Run(tmp_path, "tree10")
    monitor = run.record["monitor"]
    assert 1 < run.usage["processes"] <= run.truth["processes"]  # at one moment
    assert 0 < monitor["cpu_time"] < run.usage["wall_time"]
    assert 0 < monitor["memory"] < 30 * MIB
    assert monitor["samples"] > 1
    assert monitor["interval"] >= 0.05  # the one that was reached
