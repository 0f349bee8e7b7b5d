"""Programs whose memory moves in a known way: KIND and SECONDS are their arguments.

Each holds tens of MiB beside an interpreter's ten, and takes as many steps a second as
it is told to, whatever the machine does meanwhile.
"""

import mmap
import sys
import time
from collections.abc import Callable

MIB = 1 << 20
STEPS = 100

Step = Callable[[int], None]


def replay() -> Step:
    """Fill a buffer of transitions, and go on replacing them once it is full."""
    buffer: list[bytes] = []
    capacity = 40

    def step(turn: int) -> None:
        item = bytes([turn % 251 + 1]) * (MIB // 2)
        if len(buffer) < capacity:
            buffer.append(item)
        else:
            buffer[turn % capacity] = item

    return step


def touched() -> Step:
    """Write an array, reserved whole at the start, bit by bit."""
    array = mmap.mmap(-1, STEPS * MIB // 2)

    def step(turn: int) -> None:
        start = turn * MIB // 2
        array[start : start + MIB // 2] = bytes([1]) * (MIB // 2)

    return step


def leak() -> Step:
    """Keep something of each step beside what all of them need."""
    kept = [bytes([1]) * (20 * MIB)]
    return lambda turn: kept.append(bytes([turn % 251 + 1]) * (MIB // 4))


def teeth() -> Step:
    """Gather garbage and let go of it every tenth of the way."""
    garbage: list[bytes] = []

    def step(turn: int) -> None:
        garbage.append(bytes([turn % 251 + 1]) * (2 * MIB))
        if turn % 10 == 9:
            garbage.clear()

    return step


def flat() -> Step:
    """Hold what it holds; what it works on comes and goes."""
    held = bytes([1]) * (40 * MIB)

    def step(turn: int) -> None:
        bytearray(held[: (turn * 7 % 5) * MIB])

    return step


KINDS: dict[str, Callable[[], Step]] = {
    "replay": replay,
    "touched": touched,
    "leak": leak,
    "teeth": teeth,
    "flat": flat,
}


def main(kind: str, seconds: float) -> None:
    """Take the steps at an even pace."""
    import weigh  # noqa: PLC0415 - only for its events

    step = KINDS[kind]()
    started = time.monotonic()
    for turn in range(STEPS):
        step(turn)
        weigh.event("step", turn + 1)
        time.sleep(max(0.0, started + (turn + 1) * seconds / STEPS - time.monotonic()))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
