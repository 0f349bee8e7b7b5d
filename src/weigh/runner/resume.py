"""Which tasks are left to run, by the joblog of runs before: pure.

A task is the same one as before if its text is the same, so that lines inserted into
the task file or removed from it shift nothing. Its number only distinguishes tasks of
equal text.
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
    last counts. As many tasks of one text are done as have succeeded, whatever their
    numbers were then.
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
    """Assign ends under other numbers to tasks of the same text.

    A success goes to a task that failed under its present number first: it was this
    one's next attempt, under the number that it had meanwhile.
    """
    good: dict[int, int] = {}
    bad: dict[int, int] = {}
    for key, ends in strangers.items():
        good[key] = sum(ends.values())
        bad[key] = len(ends) - good[key]
    moved = 0
    for wanted in (FAILED, WAITING):
        for at, key in enumerate(keys):
            if states[at] != wanted:
                continue
            if good.get(key):
                good[key] -= 1
                states[at] = DONE
                moved += 1
            elif wanted == WAITING and bad.get(key):
                bad[key] -= 1
                states[at] = FAILED
                moved += 1
    return moved
