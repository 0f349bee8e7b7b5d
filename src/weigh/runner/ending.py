"""How an attempt ended, and whether it is worth another: pure."""

import msgspec

from weigh.model.record import Measurement, Outcome, State
from weigh.outcome import judge, out_of_memory
from weigh.runner.attempt import Stop

_KILLED = 9
_KILLED_IN_A_SHELL = 137
_STOPPED: dict[Stop, tuple[State, str]] = {
    "timeout": ("TIMEOUT", "took longer than --timeout"),
    "told": ("INTERRUPTED", "weigh was told to end"),
    "halt": ("CANCELLED", "stopped by --halt"),
    "memory": ("PREEMPTED", "stopped to make room: memory was running out"),
    "gpu_memory": ("PREEMPTED", "stopped to make room: GPU memory was running out"),
}


class Ending(msgspec.Struct, frozen=True):
    """How an attempt ended.

    ``is_oom``: for want of memory, as far as one can tell; ``on_gpu``: of a GPU's.
    """

    state: State
    exit_code: int | None
    signal: int | None
    outcome: Outcome | None = None
    is_oom: bool = False
    on_gpu: bool = False

    @property
    def succeeded(self) -> bool:
        """Say whether the task is done."""
        return self.state == "COMPLETED"


def end(measured: Measurement, stop: Stop | None = None, tail: bytes = b"") -> Ending:
    """Judge an attempt by how it ended, why weigh stopped it, and its last words."""
    code, number = measured.exit_code, measured.signal
    if stop is not None:
        state, reason = _STOPPED[stop]
        return Ending(state, code, number, Outcome(reason))
    if code == 0:
        return Ending("COMPLETED", code, number)
    lacked = out_of_memory(tail.decode("utf-8", "replace"))
    if lacked is not None:
        outcome = Outcome("ran out of memory", (f"its output says {lacked.words!r}",))
        return Ending(
            "OUT_OF_MEMORY",
            code,
            number,
            outcome,
            is_oom=True,
            on_gpu=lacked.on_gpu,
        )
    state, why = judge(measured)
    killed = number == _KILLED or code == _KILLED_IN_A_SHELL
    is_oom = state == "OUT_OF_MEMORY" or killed
    return Ending(state, code, number, why, is_oom=is_oom)
