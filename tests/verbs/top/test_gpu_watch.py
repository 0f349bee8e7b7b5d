import threading
from pathlib import Path

from sessions import check_session

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


def test_worked_examples_of_looks(tmp_path: Path) -> None:
    names = {"FakeGpu": FakeGpu, "DEVICE": DEVICE, "folder": str(tmp_path)}
    check_session(Path(__file__).with_name("gpu_watch.session"), names)
