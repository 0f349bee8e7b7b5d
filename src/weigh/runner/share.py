"""What a task is to find free before it starts: pure."""

import msgspec

from weigh.units import Bytes


class Share(msgspec.Struct, frozen=True, gc=False):
    """Memory kept for one task while it runs; 0 for no more than any other has."""

    memory: Bytes = 0
    gpu_memory: Bytes = 0


NO_SHARE = Share()
