"""A batch too large for the card, in micro-batches of the same effective size."""

import msgspec


class Accumulation(msgspec.Struct, frozen=True):
    """``micro_batch * steps`` is the effective batch, exactly."""

    batch: int
    micro_batch: int
    steps: int


def accumulate(batch: int, largest: int) -> Accumulation | None:
    """Split *batch* into the fewest equal micro-batches of at most *largest*.

    None where one already holds it, or where nothing fits. Equal ones only: their
    gradients can be averaged without weights.
    """
    if largest < 1 or batch <= largest:
        return None
    steps = next(
        steps for steps in range(-(-batch // largest), batch + 1) if batch % steps == 0
    )
    return Accumulation(batch, batch // steps, steps)
