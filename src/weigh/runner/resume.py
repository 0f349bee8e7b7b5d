"""Which tasks are left to run, by the joblog of runs before: pure.

A task is the same one as before if its text is the same. Its number only tells tasks
of equal text apart, so that lines put in or taken out shift nothing.
"""

from collections.abc import Iterable, Sequence

import msgspec

WAITING, DONE, FAILED = 0, 1, 2


class Settled(msgspec.Struct, frozen=True):
    """What earlier runs settled.

    ``states`` has one of WAITING, DONE, FAILED for each task in order; ``known`` is how
    many lines of the joblog are about tasks of this file, ``strange`` about others;
    ``moved`` how many tasks were found under another number.
    """

    states: bytearray
    known: int = 0
    strange: int = 0
    moved: int = 0

    @property
    def done(self) -> int:
        """Count the tasks that succeeded."""
        return self.states.count(DONE)

    @property
    def failed(self) -> int:
        """Count the tasks that ended otherwise."""
        return self.states.count(FAILED)


def settle(keys: Sequence[int], ends: Iterable[tuple[int, bool, int]]) -> Settled:
    """Match *ends*, (seq, whether it succeeded, key of its text), to tasks.

    *keys* are those of the tasks' texts, in order. Of several ends of one task the
    last counts.
    """
    states = bytearray(len(keys))
    strangers: dict[int, dict[int, bool]] = {}
    known = strange = 0
    for seq, succeeded, key in ends:
        if 0 < seq <= len(keys) and keys[seq - 1] == key:
            states[seq - 1] = DONE if succeeded else FAILED
            known += 1
        else:
            strangers.setdefault(key, {})[seq] = succeeded
            strange += 1
    moved = _adopt(states, keys, strangers) if strangers else 0
    return Settled(states, known + moved, max(0, strange - moved), moved)


def _adopt(
    states: bytearray, keys: Sequence[int], strangers: dict[int, dict[int, bool]]
) -> int:
    """Give ends under other numbers to tasks of the same text that have none."""
    moved = 0
    for at, key in enumerate(keys):
        if states[at] == WAITING and strangers.get(key):
            _, succeeded = strangers[key].popitem()
            states[at] = DONE if succeeded else FAILED
            moved += 1
    return moved
