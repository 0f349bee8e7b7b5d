"""Recognise memory that a framework took of a GPU at once, whatever it needs.

JAX takes 75 % of a GPU with its first operation, TensorFlow nearly all that is free
(their pages on GPU memory). Such a peak is no measure of the need.
"""

from collections.abc import Sequence

from weigh.units import Bytes, Seconds

_LEAST, _BEFORE = 0.7, 0.1  # of the GPU: taken at once, and held before
_AT_ONCE: Seconds = 0.5  # some samples; the CUDA context comes just before
_KEPT = 0.97  # of the peak: what comes later is little


def preallocated(
    held: Sequence[tuple[Seconds, Bytes]], total: Bytes | None
) -> Bytes | None:
    """Return what a job took at once, if that is most of a GPU and of its peak.

    *held* is the job's memory on the GPU over time, *total* the GPU's.
    """
    peak = max((size for _, size in held), default=0)
    if not total or peak < _LEAST * total:
        return None
    reached = next(at for at, (_, size) in enumerate(held) if size >= _KEPT * peak)
    since = held[reached][0] - _AT_ONCE
    earlier = [size for time, size in held[:reached] if time < since]
    lately = [size for time, size in held[:reached] if time >= since]
    # of a sparse series, the sample before the step is older than that
    before = earlier[-1] if earlier else min(lately, default=None)
    if before is None or before > _BEFORE * total:
        return None
    taken = held[reached][1] - before
    return taken if taken >= _LEAST * total else None
