"""The memory that is reserved for a task: pure."""

import msgspec

from weigh.units import Bytes


class Share(msgspec.Struct, frozen=True, gc=False):
    """Memory for one task while it runs, in bytes; 0: as any other, or not known."""

    memory: Bytes = 0
    gpu_memory: Bytes = 0


NO_SHARE = Share()
