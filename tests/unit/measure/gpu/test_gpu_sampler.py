import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from nvml_script import GIB, MIB, Script
from processes import until
from run_captured import run_captured

from weigh.measure.gpu_sampler import GpuSampler, ReadingSchedule
from weigh.model.gpu import GpuUsage
from weigh.probe.gpu import GpuProbe
from weigh.probe.nvml import NvmlProbe

JOB = (71,)
INTERVAL = 0.005
DEADLINE = 20.0
LOST, MISMATCH, NOT_LOADED = 15, 18, 9
HANGS = """
import os, sys, time
from weigh.measure.gpu_sampler import GpuSampler
from weigh.probe.nvml import NvmlProbe
sampler = GpuSampler(lambda: NvmlProbe(os.environ), 0.005, pids=lambda: (71,))
sampler.start(wait=60)
while not any(usage.peak_memory for usage in sampler.usages()):
    time.sleep(0.01)
with open(sys.argv[1], "a") as script:
    script.write("hang.%s=600\\n" % sys.argv[2])
time.sleep(0.5)
usages = sampler.stop(timeout=0.2)
while not (warnings := sampler.warnings()):  # on a busy machine the call comes later
    time.sleep(0.01)
print([usage.peak_memory for usage in usages], warnings)
"""


@contextmanager
def sampling(
    environment: Mapping[str, str] | None = None,
    factory: Callable[[], GpuProbe] | None = None,
) -> Iterator[GpuSampler]:
    made = factory or (lambda: NvmlProbe(environment or {}))
    sampler = GpuSampler(made, INTERVAL, pids=lambda: JOB)
    sampler.start(wait=DEADLINE)
    try:
        yield sampler
    finally:
        sampler.stop(DEADLINE)


def let_look(sampler: GpuSampler, times: int = 3) -> None:
    """Wait for so many whole looks from now on."""
    target = sampler.looks + times + 1
    until(lambda: sampler.looks >= target)


def is_sampling(thread: threading.Thread) -> bool:
    return thread.name == "weigh-gpu"


def only(sampler: GpuSampler) -> GpuUsage:
    (usage,) = sampler.stop(DEADLINE)
    return usage


def test_a_gpu_lost_midway_keeps_its_figures_and_is_reported(nvml: Script) -> None:
    nvml.gpus(2, procs=f"71:{GIB}", energy=5_000)
    with sampling() as sampler:
        let_look(sampler)
        nvml.set("0.lost", LOST)
        let_look(sampler)
        nvml.lines["1.procs"] = f"71:{2 * GIB}"
        nvml.set("1.used", 2 * GIB)
        let_look(sampler)
        first, second = sampler.stop(DEADLINE)
        assert (first.peak_memory, second.peak_memory) == (GIB, 2 * GIB)
        assert "GPU 0 fell off the bus" in sampler.warnings()[0]


def test_counters_are_read_at_the_start_and_the_end(nvml: Script) -> None:
    nvml.gpus(1, energy=1_000_000, ecc=2, xid=0)
    with sampling() as sampler:
        nvml.lines |= {"0.ecc": "3", "0.xid": "79"}
        nvml.set("0.energy", 1_500_000)
        usage = only(sampler)
    assert (usage.energy, usage.ecc_errors, usage.xids) == (500.0, 1, (79,))
    assert usage.health == "failing: XID 79"


def test_memory_is_looked_at_more_often_than_the_bus(
    nvml: Script, shorten: Callable[[str, float], None]
) -> None:
    nvml.gpus(1, rx="1;2;3;4;5;6;7;8;9", tx=1)
    shorten("measure.gpu_sampler._FIRST_BUS", 0)
    # its 10 s may pass meanwhile on a busy machine
    shorten("measure.gpu_sampler._BUS_INTERVAL", 600)
    with sampling() as sampler:
        until(lambda: sampler.usages()[0].pcie_rx is not None)
        let_look(sampler, 50)
        usage = only(sampler)
    assert (usage.pcie_rx, usage.pcie_tx) == (1000, 1000)  # asked once


def test_a_slow_driver_is_queried_for_the_bus_seldom(
    nvml: Script,
    monkeypatch: pytest.MonkeyPatch,
    shorten: Callable[[str, float], None],
) -> None:
    nvml.gpus(8, rx=1, tx=1)
    asked = []

    def slow(_probe: NvmlProbe, uuid: str) -> tuple[int, int]:
        asked.append(uuid)
        time.sleep(0.5)
        return 1, 1

    monkeypatch.setattr(NvmlProbe, "bus_traffic", slow)
    for name in ("_FIRST_BUS", "_BUS_INTERVAL"):
        shorten(f"measure.gpu_sampler.{name}", 0)
    with sampling() as sampler:
        until(lambda: bool(asked))
        let_look(sampler, 8)
        assert len(asked) == 1  # and not seven more GPUs meanwhile


def readings_in(minute: ReadingSchedule, memory: float, activity: float) -> list[bool]:
    """Read for a minute; each takes so many CPU seconds. Return which were of all."""
    now, done = 0.0, list[bool]()
    while now < 60:
        done.append(minute.is_activity_due(now))
        now += activity if done[-1] else memory
        spent = activity if done[-1] else memory
        now += minute.rest_after(spent, now, activity=done[-1])
    return done


def test_where_reading_is_dear_memory_is_read_before_the_rest() -> None:
    cheap = readings_in(ReadingSchedule(0.05), 1e-6, 1e-6)
    assert len(cheap) == 1200
    assert 275 <= sum(cheap) <= 300
    dear = readings_in(ReadingSchedule(0.05), 1e-6, 0.4)
    # two until the credit is used up, then one per 160 s
    assert (len(dear) > 1150, sum(dear)) == (True, 2)
    # however dear, memory is read once per second
    assert 58 <= len(readings_in(ReadingSchedule(0.05), 0.1, 0.4)) <= 70


def test_a_driver_that_was_busy_once_is_read_again_at_once() -> None:
    schedule = ReadingSchedule(0.05)
    # as long as an H100's driver spun while a process made its context; it was 2.7 s
    assert schedule.rest_after(0.1, 1.0, activity=False) == 0.05


def broken() -> GpuProbe:
    raise RuntimeError("no such luck")


@pytest.mark.parametrize(
    ("init", "visible", "factory", "words"),
    [
        (NOT_LOADED, None, None, None),  # most machines have no driver: no warning
        (MISMATCH, None, None, "GPUs not measured: NVIDIA's kernel driver"),
        (0, "", None, None),
        (0, "0,0", None, "CUDA_VISIBLE_DEVICES=0,0: a GPU twice"),
        # trouble of any kind stays in the thread
        (0, None, broken, "GPUs not measured: no such luck"),
    ],
)
def test_where_no_gpu_can_be_sampled_the_thread_ends_and_doubts_are_reported(
    nvml: Script,
    init: int,
    visible: str | None,
    factory: Callable[[], GpuProbe] | None,
    words: str | None,
) -> None:
    nvml.gpus(2)
    nvml.set("init", init)
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    with sampling(environment, factory) as sampler:
        until(lambda: not any(is_sampling(t) for t in threading.enumerate()))
        assert sampler.stop(DEADLINE) == ()
        warnings = sampler.warnings()
    assert len(warnings) == (words is not None)
    assert "".join(warnings).startswith(words or "")


def test_it_can_be_stopped_before_the_driver_has_started() -> None:
    let_go = threading.Event()

    def slow() -> NvmlProbe:
        let_go.wait(DEADLINE)
        raise RuntimeError("too late")

    sampler = GpuSampler(slow, INTERVAL)
    sampler.start(wait=0.01)
    assert sampler.stop(timeout=0.01) == ()
    assert "has not answered" in sampler.warnings()[0]
    # who asks again is not kept waiting again
    before = time.monotonic()
    sampler.stop(timeout=DEADLINE)
    assert time.monotonic() - before < DEADLINE
    let_go.set()


@pytest.mark.parametrize("function", ["nvmlDeviceGetMemoryInfo", "nvmlShutdown"])
def test_a_call_that_hangs_keeps_neither_figures_nor_the_exit(
    script: Script, function: str
) -> None:
    script.gpus(1, procs=f"71:{MIB}", energy=1)
    # it hangs for ten minutes; the process has to end long before
    done = run_captured(
        [sys.executable, "-c", HANGS, str(script.path), function],
        env=script.environment(),
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"[{MIB}]" in done.stdout
    assert "has not answered" in done.stdout


def test_signals_are_left_to_the_main_thread(nvml: Script) -> None:
    nvml.gpus(1)
    with sampling():
        (thread,) = filter(is_sampling, threading.enumerate())
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGUSR1):
        assert blocked & 1 << number - 1
