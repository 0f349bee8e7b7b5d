"""GPU memory in phases and loops, played by a probe of ours."""

import os
import sys
import threading
import types
from collections.abc import Callable

import pytest
from region_programs import TrackWith

from weigh.errors import GpuError, NoGpuError
from weigh.flow.run.regions import batches, measured, phase, timeit
from weigh.measure.region import loops, timing
from weigh.measure.region import tracker as region_tracker
from weigh.measure.region.gpu_meter import RegionGpuMeter
from weigh.measure.region.tracker import RegionTracker, current
from weigh.model.gpu import GpuMemory
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading
from weigh.render.region_lines import render_regions
from weigh.units import GIB, MIB, Bytes

CARD = GpuDevice(0, "GPU-a", "V100-SXM2-32GB", 32 * GIB)


class FakeGpu(GpuProbe):
    """A card whose memory the test sets."""

    def __init__(self, used: Bytes = 100 * MIB) -> None:
        self.used = used
        self.looks = 0

    def devices(self) -> tuple[GpuDevice, ...]:
        return (CARD,)

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        assert not activity
        self.looks += 1
        return (GpuReading("GPU-a", memory_used=self.used),)


@pytest.fixture
def fake_gpu(track_with: TrackWith, shorten: Callable[[str, float], None]) -> FakeGpu:
    """Give a card that this process's tracker reads."""
    # on a busy machine a few readings may take as long as hundreds elsewhere
    shorten("measure.region.gpu_meter._CREDIT", 600)
    fake_gpu = FakeGpu()
    track_with(RegionTracker({}, gpus=lambda: fake_gpu))
    return fake_gpu


def test_a_phase_knows_the_gpu_before_after_and_at_its_peak(fake_gpu: FakeGpu) -> None:
    with phase("load"):
        with phase("inner"):
            fake_gpu.used = 900 * MIB
        fake_gpu.used = 500 * MIB
    outer, inner = current().regions().phases
    assert outer.gpus == (GpuMemory("GPU-a", 100 * MIB, 500 * MIB, 900 * MIB),)
    assert inner.gpus == (GpuMemory("GPU-a", 100 * MIB, 900 * MIB, 900 * MIB),)


def test_a_driver_that_is_slow_to_read_takes_a_small_part_of_the_program() -> None:
    # as slow as where busy threads hold the interpreter at each call of it
    fake_gpu, took, now = FakeGpu(), 0.1, 0.0

    def read(**_: bool) -> tuple[GpuReading, ...]:
        nonlocal now
        now += took
        fake_gpu.looks += 1
        return (GpuReading("GPU-a", memory_used=fake_gpu.used),)

    fake_gpu.read = read  # type: ignore[method-assign]
    meter = RegionGpuMeter(lambda: fake_gpu, lambda: now, print)
    looks_until = []
    for _ in range(2000):
        meter.read()
        now += 0.05
        looks_until.append(fake_gpu.looks)
    assert looks_until[:5] == [1, 2, 3, 4, 5]
    assert fake_gpu.looks * took < 2.1 + 0.05 * now


class Torch(types.ModuleType):
    """A torch with one GPU in use: a launch costs nothing, and to wait for it 5 s."""

    LASTS = 5.0  # on a clock that only moves while somebody waits

    def __init__(self) -> None:
        super().__init__("torch")
        self.now = self.done = 0.0
        self.used = self.capturing = False
        self.waited = 0
        self.cuda = self
        self.is_initialized = lambda: self.used
        self.is_current_stream_capturing = lambda: self.capturing
        self.current_device = lambda: 0
        self.device_count = lambda: 2
        self.memory_reserved = lambda _index: 0
        self.max_memory_allocated = lambda index: (1000 * MIB, 0)[index]
        self.max_memory_reserved = lambda index: (1200 * MIB, 0)[index]

    def launch(self) -> None:
        self.used = True
        self.done = max(self.done, self.now) + self.LASTS

    def synchronize(self, index: int) -> None:
        assert index == 0, "another device would get a context"
        self.waited += 1
        self.now = max(self.now, self.done)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Torch:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    for module, clock in ((loops, "clock"), (timing, "perf_counter")):
        monkeypatch.setattr(module, clock, lambda: torch.now)
    monkeypatch.setattr(region_tracker, "clock", lambda: torch.now)
    return torch


def test_torchs_own_peaks_are_shown_once_it_has_used_cuda_and_the_rest_is_named(
    fake_gpu: FakeGpu, torch: Torch
) -> None:
    for used in (False, True):
        torch.used = used
        with phase("train"):
            fake_gpu.used = (100 + 1200 + 450) * MIB
        (seen,) = current().regions().phases[0].gpus
        expected = (1000 * MIB, 1200 * MIB) if used else (None, None)
        assert (seen.torch_allocated, seen.torch_reserved) == expected
    text = render_regions(current().regions())
    (rest,) = [line for line in text.splitlines() if "CUDA context" in line]
    assert rest.split()[-2:] == ["450", "MiB"]


def test_show_gpus_prints_one_line_per_gpu_after_each_call(
    fake_gpu: FakeGpu, capsys: pytest.CaptureFixture[str]
) -> None:
    @measured(name="epoch", show_gpus=True)
    def epoch() -> None:
        fake_gpu.used = 8 * GIB

    epoch()
    epoch()
    said = capsys.readouterr().err.splitlines()
    assert said == 2 * [
        "weigh  after epoch",
        f"  gpu 0    {'V100-SXM2-32GB':<37} 8.00 GiB of 32.0 GiB  25%",
    ]


def test_a_driver_that_hangs_is_queried_once_and_left_behind(fake_gpu: FakeGpu) -> None:
    released = threading.Event()

    def read(**_: bool) -> tuple[GpuReading, ...]:
        fake_gpu.looks += 1
        released.wait(5)
        return ()

    fake_gpu.read = read  # type: ignore[method-assign]
    warnings: list[str] = []
    meter = RegionGpuMeter(lambda: fake_gpu, lambda: 0.0, warnings.append, 0.05)
    assert (meter.read(), meter.read()) == ((), ())
    released.set()
    assert fake_gpu.looks == 1
    assert [one for one in warnings if "does not answer" in one] == warnings
    assert len(warnings) == 1


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (GpuError("they do not match"), "GPUs are not read: they do not match"),
        (ValueError("no number"), "GPUs are not read: ValueError: no number"),
        (NoGpuError("no GPU here"), None),
    ],
)
def test_a_driver_that_does_not_start_is_reported_once_and_the_rest_measured(
    error: Exception,
    trouble: str | None,
    track_with: TrackWith,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = []

    def counted() -> GpuProbe:
        asked.append(1)
        raise error

    tracker = RegionTracker({}, gpus=counted)
    track_with(tracker)
    for _ in range(2):
        with phase("load"):
            pass
    assert len(asked) == 1
    (seen,) = tracker.regions().phases
    assert (seen.calls, seen.gpus) == (2, ())
    assert capsys.readouterr().err == (f"weigh: {trouble}\n" if trouble else "")


def test_a_gpu_that_stops_reporting_keeps_the_peak_it_had(fake_gpu: FakeGpu) -> None:
    with phase("a"):
        fake_gpu.used = 700 * MIB
    fake_gpu.used = None  # type: ignore[assignment]
    with phase("a"):
        pass
    (seen,) = current().regions().phases[0].gpus
    assert (seen.before, seen.after, seen.peak) == (100 * MIB, None, 700 * MIB)


def test_of_a_gpu_whose_memory_has_not_changed_the_last_reading_counts() -> None:
    own = {os.getpid(): GIB}
    answers = iter(
        [
            (GpuReading("GPU-a", memory_used=100 * MIB, process_memory={}),),
            (GpuReading("GPU-a", memory_used=GIB, process_memory=own),),
            (),
        ]
    )
    fake_gpu = FakeGpu()
    fake_gpu.read = lambda **_: next(answers)  # type: ignore[method-assign]
    meter = RegionGpuMeter(lambda: fake_gpu, lambda: 0.0, print)
    found = [meter.read()[0].after for _ in range(3)]
    assert found == [100 * MIB, 100 * MIB + GIB, 100 * MIB + GIB]


@pytest.mark.usefixtures("tracker")
def test_timeit_counts_the_work_and_not_its_launch(torch: Torch) -> None:
    assert timeit(torch.launch, number=2, repeat=1).minimum == torch.LASTS
    assert timeit(torch.launch, number=2, repeat=1, sync=False).minimum == 0


@pytest.mark.usefixtures("tracker")
def test_with_sync_work_counts_in_the_phase_that_started_it(torch: Torch) -> None:
    @measured(sync=True)
    def step() -> None:
        torch.launch()

    torch.launch()
    with phase("only its own", sync=True) as region:
        pass
    step()
    for _ in batches([1], sync=True):
        torch.launch()
    regions = current().regions()
    walls = {one.name.split(".")[-1]: one.wall_time for one in regions.phases}
    assert (region.wall_time, walls["step"]) == (0, torch.LASTS)
    assert regions.batches[0].time_min == torch.LASTS


@pytest.mark.usefixtures("tracker")
def test_the_few_batches_that_stand_for_all_wait_for_their_work(
    torch: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_WORST_BATCH", "1")
    for _ in batches([["a"], ["ab"]]):
        torch.launch()
    assert current().regions().batches[0].time_min == torch.LASTS


@pytest.mark.usefixtures("tracker")
def test_nothing_is_waited_for_unless_requested_used_and_allowed(torch: Torch) -> None:
    timeit(lambda: None, number=1, repeat=1)
    with phase("unused", sync=True):
        torch.used = torch.capturing = True
    with phase("plain"):
        torch.capturing = False
    assert torch.waited == 0


def test_results_of_jax_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    jax = types.ModuleType("jax")
    seen: list[object] = []
    jax.block_until_ready = seen.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jax", jax)
    timeit(lambda: "an array", number=3, repeat=1)
    assert seen == ["an array"]


def test_a_rise_that_others_make_negative_is_unknown(fake_gpu: FakeGpu) -> None:
    with phase("load model"):
        fake_gpu.used = 9 * GIB
    fake_gpu.used = 50 * MIB
    for _ in batches([[1]] * 3, size=1):
        fake_gpu.used = 70 * MIB
    text = render_regions(current().regions(), "tag.py")
    (row,) = [line for line in text.splitlines() if "taken until" in line]
    assert row.split()[-1] == "-"
    assert "peaks as seen at batch edges" in text
