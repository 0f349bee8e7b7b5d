"""Since when no GPU was busy: what a warning of an idle one goes by."""

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


def idle(*accounts: GpuAccount, now: float) -> float | None:
    return idle_for(accounts, now)


def test_a_gpu_is_idle_since_it_was_last_busy() -> None:
    assert idle(account(0.0, 0.0, 70.0, 0.0, 0.0), now=10.0) == 8.0


def test_a_gpu_that_never_was_busy_is_idle_since_the_first_look() -> None:
    assert idle(account(0.0, 0.0, 0.0), now=10.0) == 9.0


def test_a_gpu_that_does_not_report_is_not_called_idle() -> None:
    assert idle(account(None, None, None), now=10.0) is None


def test_one_busy_gpu_of_two_is_enough() -> None:
    busy = account(0.0, 0.0, 0.0, 90.0, gpu=OTHER)
    assert idle(account(0.0, 0.0, 0.0), busy, now=10.0) == 7.0
