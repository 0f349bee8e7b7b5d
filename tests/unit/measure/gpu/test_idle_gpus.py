"""Since when no GPU was busy: what a warning of an idle one goes by."""

import pytest

from weigh.measure.gpu_account import GpuAccount, idle_for
from weigh.probe.gpu import GpuDevice, GpuReading
from weigh.units import GIB

GPU = GpuDevice(0, "GPU-a", "V100", 32 * GIB)
OTHER = GpuDevice(1, "GPU-b", "V100", 32 * GIB)


def account(*looks: float | None, gpu: GpuDevice = GPU) -> GpuAccount:
    """Look once a second; the first look is what was before the job."""
    one = GpuAccount(gpu, 0.0, exists=lambda _pid: True)
    for now, utilization in enumerate(looks):
        reading = GpuReading(gpu.uuid, memory_used=0, utilization=utilization)
        one.take(float(now), reading, ())
    return one


@pytest.mark.parametrize(
    ("looks", "since"),
    [
        ([0.0, 0.0, 70.0, 0.0, 0.0], 8.0),  # since it was last busy
        ([0.0, 0.0, 0.0], 9.0),  # never busy: since the first look
        ([None, None, None], None),  # it does not report
    ],
)
def test_a_gpu_is_idle_since(looks: list[float | None], since: float | None) -> None:
    assert idle_for([account(*looks)], 10.0) == since


def test_one_busy_gpu_of_two_is_enough() -> None:
    busy = account(0.0, 0.0, 0.0, 90.0, gpu=OTHER)
    assert idle_for([account(0.0, 0.0, 0.0), busy], 10.0) == 7.0
