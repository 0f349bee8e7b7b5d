"""Which GPUs a job used at all, from what is kept of its run. Pure."""

from collections.abc import Sequence

from weigh.model.gpu import GpuUsage
from weigh.units import MIB, Bytes

UNTOUCHED: Bytes = 16 * MIB  # a CUDA context alone takes a hundred and more


def was_used(usage: GpuUsage) -> bool | None:
    """Tell whether the job held memory on this GPU; None where that was not seen."""
    if usage.job_peak is None:
        return None
    least = UNTOUCHED if usage.process_peak_memory is None else 0
    return usage.job_peak > least


def unused_gpus(usages: Sequence[GpuUsage]) -> tuple[GpuUsage, ...]:
    """Give the GPUs that the job had and never touched."""
    return tuple(usage for usage in usages if was_used(usage) is False)
