"""One attempt at one task, from its start until all its processes have ended."""

from typing import TYPE_CHECKING, Literal

from weigh.runner.slots import NO_RESERVATION, Reservation, Slot

if TYPE_CHECKING:
    from weigh.runner.output import Stream
    from weigh.units import Bytes, Seconds

# why weigh stopped a task before its end
Stop = Literal["timeout", "signal", "halt", "memory", "gpu_memory"]


class Attempt:
    """What is known of a try at a task; the loop fills it in as it goes.

    ``started`` is seconds since the epoch, ``began`` and ``ended`` on the monotonic
    clock. ``status`` is the wait status of the leader once that has ended, and
    ``orphans`` are processes it left behind. ``now`` and ``peak`` are what the watcher
    has seen it hold last and at most, ``gpu_now`` and ``gpu_peak`` the same of its
    GPU; ``share`` is kept free for it, ``plan`` is what its plan says it needs.
    ``channel`` is the file with its regions; ``refused`` is why it could not be run.
    ``again``: its task has another turn in this run.
    """

    __slots__ = (
        "again",
        "alone",
        "began",
        "channel",
        "ended",
        "floor",
        "gpu_now",
        "gpu_peak",
        "kill_at",
        "max_rss",
        "now",
        "number",
        "orphans",
        "output",
        "peak",
        "pid",
        "plan",
        "read_bytes",
        "reaped",
        "record",
        "refused",
        "reservation",
        "seq",
        "slot",
        "start_time",
        "started",
        "status",
        "stop",
        "system",
        "text",
        "user",
        "write_bytes",
    )

    def __init__(self, seq: int, number: int, text: bytes, slot: Slot) -> None:
        self.seq = seq
        self.number = number
        self.text = text
        self.slot = slot
        self.pid = 0
        self.start_time: int | None = None
        self.record = ""
        self.refused: str | None = None
        self.started: Seconds = 0.0
        self.began: Seconds = 0.0
        self.ended: Seconds = 0.0
        self.status: int | None = None
        self.user: Seconds = 0.0
        self.system: Seconds = 0.0
        self.max_rss: Bytes = 0
        self.floor: Bytes = 0
        self.read_bytes: Bytes = 0
        self.write_bytes: Bytes = 0
        self.reaped = 0
        self.orphans: set[int] = set()
        self.output: Stream | None = None
        self.channel: str | None = None
        self.now: Bytes = 0
        self.peak: Bytes = 0
        self.gpu_now: Bytes = 0
        self.gpu_peak: Bytes = 0
        self.reservation: Reservation = NO_RESERVATION
        self.plan: Reservation = NO_RESERVATION
        self.stop: Stop | None = None
        self.kill_at: Seconds | None = None
        self.alone = False
        self.again = False
