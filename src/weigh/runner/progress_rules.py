"""How a run reads along with its tasks, and what it warns of."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.measure.checkpoint_signal import CheckpointSignal

FIRST_LOOK = 2.0  # seconds; what ends before has nothing to forecast


class ProgressRules(msgspec.Struct, frozen=True, kw_only=True):
    """How to read along, and what to warn of.

    ``path`` is the file to write, ``channels`` the event files by slot; ``ends_at`` is
    on the monotonic clock; ``ask`` writes a time limit as the scheduler is asked for
    one. ``gpus``: how many were granted to each task.
    """

    path: str
    run: str
    slots: int
    say: Callable[[str], None]
    ask: Callable[[Seconds], str]
    channels: Mapping[int, str] = {}
    patterns: tuple[str, ...] = ()
    ends_at: Seconds | None = None
    timeout: Seconds | None = None
    checkpoint_signal: "CheckpointSignal | None" = None
    stalled_after: Seconds = 600.0
    gpus: int = 0
