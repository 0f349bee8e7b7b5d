"""GPUs shared out and watched, on simulated GPUs."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from processes import until

from weigh.errors import UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.runner.attempt import TaskAttempt
from weigh.runner.gpus import GpuClaims, SlotGpuMeter
from weigh.runner.slots import RunSlot
from weigh.units import GIB, MIB

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

    def hold(self, at: int, **held: int) -> None:
        """Have processes hold memory on a GPU."""
        with self.lock:
            self.held[at].update({int(pid[1:]): size for pid, size in held.items()})
            looks = self.looks
        until(lambda: self.looks > looks + 1)


def scope(folder: Path) -> str:
    """Return a word that no other test has, short enough for the name of a socket."""
    return str(folder.stat().st_ino)


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[GpuClaims]:
    claims = GpuClaims(scope(tmp_path))
    yield claims
    claims.release()


NAMED = {"CUDA_VISIBLE_DEVICES": "1,3"}


@pytest.mark.parametrize(
    ("given", "held", "chosen"),
    [
        (({}, None, None), ({}, {9: MIB}), ("0", "1")),  # all of a workstation
        ((NAMED, None, None), (), ("1", "3")),  # no driver is needed
        (({}, GRID_ENGINE, 1), ({9: GIB}, {}, {}), ("1",)),  # an idle one
    ],
)
def test_gpus_are_chosen(
    claims: GpuClaims, given: Any, held: Any, chosen: tuple[str, ...]
) -> None:
    env, granted, count = given
    found = claims.choose(env, granted, lambda: FakeGpus(*held), gpu_count=count)
    assert found == chosen


@pytest.mark.parametrize(
    ("env", "granted", "count", "why"),
    [
        (NAMED, None, 4, "--gpus 4: only 2 GPUs are named for this job"),
        ({}, GRID_ENGINE, None, "--gpus N"),  # a grant of unknown size
    ],
)
def test_a_number_of_gpus_is_refused(
    claims: GpuClaims, env: Any, granted: Any, count: Any, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        claims.choose(env, granted, lambda: FakeGpus({}), gpu_count=count)


def test_too_few_idle_gpus_are_refused_and_none_is_kept(
    claims: GpuClaims, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="only 1 GPU is idle and not claimed"):
        claims.choose({}, GRID_ENGINE, lambda: FakeGpus({}, {9: GIB}), gpu_count=2)
    other = GpuClaims(scope(tmp_path))
    assert other.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1) == ("0",)
    other.release()


def test_of_many_concurrent_claims_no_two_get_the_same_gpu(tmp_path: Path) -> None:
    gpus = FakeGpus({}, {}, {}, {})
    taken: list[str] = []
    jobs = [GpuClaims(scope(tmp_path)) for _ in range(4)]

    def claim(job: GpuClaims) -> None:
        with suppress(UsageError):
            taken.extend(job.choose({}, GRID_ENGINE, lambda: gpus, gpu_count=1))

    threads = [threading.Thread(target=claim, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in jobs:
        job.release()
    assert sorted(taken) == ["0", "1", "2", "3"]


def test_a_claim_ends_with_the_process_that_has_it(
    claims: GpuClaims, tmp_path: Path
) -> None:
    program = (
        "import sys, time\nsys.path[:0] = sys.argv[2:]\n"
        "from test_runner_gpus import *\n"
        "own = GpuClaims(sys.argv[1])\n"
        "own.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1)\n"
        "print('claimed', flush=True)\ntime.sleep(600)"
    )
    argv = [sys.executable, "-c", program, scope(tmp_path), *sys.path]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"claimed\n"
        with pytest.raises(UsageError, match="no GPU is idle"):
            claims.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1)
        other.kill()
    assert claims.choose({}, GRID_ENGINE, lambda: FakeGpus({}), gpu_count=1) == ("0",)


def _attempt(gpu: str | None) -> TaskAttempt:
    return TaskAttempt(1, 1, b"", RunSlot(1, gpu=gpu))


MeterOf = Callable[..., SlotGpuMeter]


@pytest.fixture
def meter() -> Iterator[MeterOf]:
    """Return what measures GPUs, of which some may be named, once it has read them."""
    made: list[SlotGpuMeter] = []

    def meter_of(gpus: FakeGpus, names: str = "") -> SlotGpuMeter:
        env = {"CUDA_VISIBLE_DEVICES": names} if names else {}
        chosen = names.split(",") if names else ()
        watch = SlotGpuMeter(lambda: gpus, list, names=chosen, env=env, interval=0.01)
        until(lambda: gpus.looks > 1)
        made.append(watch)
        return watch

    yield meter_of
    for watch in made:
        watch.stop()


def test_each_task_gets_what_it_held_on_its_own_gpu(meter: MeterOf) -> None:
    gpus = FakeGpus({}, {})
    watch = meter(gpus, names="3,5")
    mine = os.getpid()  # the driver names processes that exist
    first = watch.begin(_attempt("3"), lambda: [1])
    second = watch.begin(_attempt("3"), lambda: [mine])
    other = watch.begin(_attempt("5"), lambda: [33])
    gpus.hold(0, p1=GIB, **{f"p{mine}": 2 * GIB})
    gpus.hold(1, p33=3 * GIB)
    gpus.hold(0, p1=0)
    peaks = [
        [(gpu.uuid, gpu.peak_memory) for gpu in watch.end(task)[0]]
        for task in (first, second, other)
    ]
    assert peaks == [[("GPU-0", GIB)], [("GPU-0", 2 * GIB)], [("GPU-1", 3 * GIB)]]


def test_a_task_with_several_gpus_has_an_account_for_each(meter: MeterOf) -> None:
    gpus = FakeGpus({}, {})
    watch = meter(gpus, names="3,5")
    task = watch.begin(_attempt("3,5"), lambda: [11])
    gpus.hold(0, p11=GIB)
    gpus.hold(1, p11=2 * GIB)
    peaks = [(gpu.uuid, gpu.peak_memory) for gpu in watch.end(task)[0]]
    assert peaks == [("GPU-0", GIB), ("GPU-1", 2 * GIB)]


def test_a_slots_gpu_is_read_with_the_memory_of_all_processes(meter: MeterOf) -> None:
    gpus = FakeGpus({}, {7: GIB})
    watch = meter(gpus, names="3,5")
    gpu = watch.room_of("5")
    assert gpu is not None
    assert (gpu.room.used, gpu.room.limit, gpu.label) == (GIB, 8 * GIB, "left on GPU 1")


def test_what_a_driver_names_no_process_for_is_taken_for_no_tasks_own(
    meter: MeterOf,
) -> None:
    gpus = FakeGpus({7: GIB})
    watch = meter(gpus)
    tasks = [watch.begin(_attempt(None), lambda: [11]) for _ in range(2)]
    gpus.hold(0, p0=4 * GIB)  # a process of another namespace
    ends = [watch.end(task) for task in tasks]
    for (usage,), moments in ends:
        assert (usage.peak_memory, usage.device_peak_memory) == (None, 5 * GIB)
        assert moments == [[]]


def test_tasks_one_after_the_other_have_the_rise_of_a_hidden_gpu_each(
    meter: MeterOf,
) -> None:
    gpus = FakeGpus({7: GIB})
    watch = meter(gpus)
    for size in (2 * GIB, 3 * GIB):
        task = watch.begin(_attempt(None), lambda: [11])
        gpus.hold(0, p0=size)
        ((usage,), _) = watch.end(task)
        assert (usage.peak_memory, usage.process_peak_memory) == (size, None)
        gpus.hold(0, p0=0)


def test_gpus_are_numbers_for_programs_unless_cuda_may_count_otherwise(
    claims: GpuClaims,
) -> None:
    class Mixed(FakeGpus):
        def devices(self) -> tuple[GpuDevice, ...]:
            slow, fast = super().devices()
            return slow, msgspec.structs.replace(fast, name="Another")

    def chosen(**env: str) -> tuple[str, ...]:
        return claims.choose(env, None, lambda: Mixed({}, {}))

    assert chosen() == ("GPU-0", "GPU-1")
    assert chosen(CUDA_DEVICE_ORDER="PCI_BUS_ID") == ("0", "1")


def test_a_task_that_began_before_the_driver_answered_is_measured() -> None:
    gpus, answers = FakeGpus({}), threading.Event()

    def slow() -> FakeGpus:
        answers.wait()
        return gpus

    watch = SlotGpuMeter(slow, list, names=(), env={}, interval=0.01)
    task = watch.begin(_attempt(None), lambda: [11])
    answers.set()
    until(lambda: gpus.looks > 1)
    gpus.hold(0, p11=GIB)
    usages, _ = watch.end(task)
    watch.stop()
    assert [gpu.peak_memory for gpu in usages] == [GIB]
