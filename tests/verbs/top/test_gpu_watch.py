import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from weigh.errors import GpuError, NoGpuError
from weigh.flow.records.records import open_store
from weigh.flow.watch.gpus import GpuLook, GpuWatch, list_gpus
from weigh.flow.watch.top import TopWatcher
from weigh.probe.gpu import GpuDevice, GpuProbe, GpuReading

DEVICE = GpuDevice(0, "GPU-1", "V100", memory_total=32 << 30)


class FakeGpu(GpuProbe):
    """A card whose memory rises by a GiB a look, and that hangs when told to."""

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()
        self.absence: str | None = None
        self.used = 0
        self.holders: dict[int, int] | None = None
        self.answers = threading.Event()
        self.answers.set()
        self.closed = threading.Event()

    def close(self) -> None:
        assert self.answers.is_set(), "closed during a call"
        self.closed.set()

    def devices(self) -> tuple[GpuDevice, ...]:
        return (DEVICE,)

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        del activity
        self.answers.wait()
        self.used += 1 << 30
        return (
            GpuReading(
                "GPU-1", self.used, self.holders, processes=tuple(self.holders or ())
            ),
        )


@pytest.fixture
def fake_gpu() -> Iterator[FakeGpu]:
    fake_gpu = FakeGpu()
    yield fake_gpu
    fake_gpu.answers.set()


def _watch(fake_gpu: FakeGpu, patience: float = 10) -> GpuWatch:
    return GpuWatch(lambda: fake_gpu, patience)


def test_each_look_reads_the_gpu_anew(fake_gpu: FakeGpu) -> None:
    watch = _watch(fake_gpu)
    looks = [watch.look(), watch.look()]
    watch.close()
    assert [one.readings[0].memory_used for one in looks] == [1 << 30, 2 << 30]
    assert looks[0].devices == (DEVICE,)


def test_a_driver_that_hangs_leaves_the_last_reading_and_is_reported(
    fake_gpu: FakeGpu,
) -> None:
    watch = _watch(fake_gpu, patience=0.05)
    while not watch.look().readings:
        pass
    fake_gpu.answers.clear()
    watch.look()  # an answer may have been on its way
    late = watch.look()
    watch.close()
    assert late.note == "the GPU driver does not answer"
    assert late.readings


def test_a_driver_is_closed_after_its_last_call_and_not_during_it(
    fake_gpu: FakeGpu,
) -> None:
    fake_gpu.answers.clear()
    with pytest.raises(GpuError, match="does not answer"):
        list_gpus({}, factory=lambda _: fake_gpu, patience=0.05)
    assert not fake_gpu.closed.is_set()
    fake_gpu.answers.set()
    assert fake_gpu.closed.wait(60)


def test_a_gpu_names_my_processes_and_counts_the_others(tmp_path: Path) -> None:
    fake_gpu = FakeGpu()
    fake_gpu.holders = {os.getpid(): 5 << 30, 1 << 23: 1 << 30}  # no pid is that large
    store = open_store(str(tmp_path), {"WEIGH_DIR": str(tmp_path)})
    watcher = TopWatcher(store, lambda: fake_gpu)
    while not (gpus := watcher.look().gpus):
        pass
    watcher.close()
    (gpu,) = gpus
    held = {one.pid: (one.mine, one.memory) for one in gpu.occupants or ()}
    assert held == {os.getpid(): (True, 5 << 30), 1 << 23: (None, 1 << 30)}


def test_no_driver_is_no_gpu_and_no_complaint() -> None:
    assert GpuWatch(lambda: None).look() == GpuLook()


@pytest.mark.parametrize(
    ("error", "note"),
    [(NoGpuError("none"), None), (GpuError("versions differ"), "versions differ")],
)
def test_a_driver_in_trouble_is_named_once_there_is_one(
    error: GpuError, note: str | None
) -> None:
    def refuse() -> GpuProbe | None:
        raise error

    watch = GpuWatch(refuse, patience=10)
    assert [watch.look().note, watch.look().note] == [note, note]


def test_what_is_in_doubt_about_the_gpus_is_reported(fake_gpu: FakeGpu) -> None:
    fake_gpu.notes, fake_gpu.absence = ("one is broken",), "none is yours"
    assert _watch(fake_gpu).look().note == "one is broken; none is yours"


def test_a_gpu_that_breaks_keeps_its_last_reading_and_the_screen(
    fake_gpu: FakeGpu,
) -> None:
    watch = _watch(fake_gpu)
    before = watch.look()
    fake_gpu.used = "odd"  # type: ignore[assignment] # what no driver should give
    after = watch.look()
    assert after.readings == before.readings
    assert "GPUs cannot be read: TypeError" in (after.note or "")
