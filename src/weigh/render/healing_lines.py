"""Text on healing: what each round sent again and why, and what comes next."""

from collections.abc import Iterable, Iterator

import msgspec

from weigh.model.record import State
from weigh.render.printable import count

_ACTIVE: frozenset[State] = frozenset({"PENDING", "RUNNING"})


class HealingRound(msgspec.Struct, frozen=True):
    """A job of a later round: how many tasks run again, and why."""

    round: int
    tasks: int
    reason: str
    jobs: tuple[str, ...]


class Healing(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds that healing has sent, and what it does next.

    ``healer`` is the last healer, in this ``state``. ``stopped`` is why there is no
    further round, with the tasks ``left`` by cause. ``goes_on``: elements wait or run.
    ``blocked`` are commands that free held elements, ``words`` the last line that the
    healer printed.
    """

    rounds: tuple[HealingRound, ...] = ()
    healer: str | None = None
    state: State | None = None
    stopped: str | None = None
    left: dict[str, int] = {}
    goes_on: bool = False
    blocked: tuple[str, ...] = ()
    words: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether a healer will still decide on a further round."""
        return self.stopped is None and self.state in _ACTIVE


def round_words(rounds: Iterable[HealingRound]) -> Iterator[str]:
    """Yield how many tasks each job runs again, and why."""
    for sent in rounds:
        noun = "task" if sent.tasks == 1 else "tasks"
        yield f"{count(sent.tasks)} {noun} {sent.reason}"


def healing_rows(one: Healing, job: str) -> Iterator[tuple[str, str]]:
    """Yield titles and texts; *job* is the last one of the plan."""
    for number in dict.fromkeys(sent.round for sent in one.rounds):
        ours = (sent for sent in one.rounds if sent.round == number)
        yield f"round {number}", "; ".join(round_words(ours))
    for command in one.blocked:
        yield "blocked", f"healing waits for held elements: {command}"
    if one.stopped is not None:
        causes = ", ".join(f"{cause} ({count(n)})" for cause, n in one.left.items())
        yield "healed", f"{one.stopped}: {causes}" if causes else one.stopped
    elif one.state == "RUNNING":
        yield "heals", f"job {one.healer} decides on the next round"
    elif one.state == "PENDING" and one.healer is not None:
        yield "heals", f"job {one.healer} follows when all elements have ended"
    elif one.state == "CANCELLED":
        yield "heals", f"job {one.healer} was cancelled"
    else:
        what = "no healer follows" if one.goes_on else "no healer sent the next round"
        was = f" (job {one.healer}: {one.words or 'ended'})" if one.healer else ""
        yield "heals", f"{what}{was}: weigh resume --heal {job}"
