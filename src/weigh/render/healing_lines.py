"""Text on healing: what each round sent again and why, and what comes next."""

from collections.abc import Iterable, Iterator

import msgspec

from weigh.model.record import State
from weigh.render.printable import count_with_commas

_ACTIVE: frozenset[State] = frozenset({"PENDING", "RUNNING"})


class HealingRound(msgspec.Struct, frozen=True):
    """A job of a later round: how many tasks run again, and why."""

    round: int
    tasks: int
    reason: str
    jobs: tuple[str, ...]  # ids


class HealingState(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds that healing has sent, and what it does next.

    ``healer`` is the last healer, in this ``state``. ``stopped`` is why there is no
    further round, with the tasks ``left`` by cause. ``goes_on``: elements wait or run.
    ``blocked`` are commands that free held elements, ``words`` the last line that the
    healer printed.
    """

    rounds: tuple[HealingRound, ...] = ()
    healer: str | None = None  # id of its job; None: there is none
    state: State | None = None  # None: no healer
    stopped: str | None = None  # None: healing may go on
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
        yield f"{count_with_commas(sent.tasks)} {noun} {sent.reason}"


def healing_rows(healing_state: HealingState, job_id: str) -> Iterator[tuple[str, str]]:
    """Yield titles and texts; *job_id* is the last one of the plan."""
    for number in dict.fromkeys(sent.round for sent in healing_state.rounds):
        ours = (sent for sent in healing_state.rounds if sent.round == number)
        yield f"round {number}", "; ".join(round_words(ours))
    for command in healing_state.blocked:
        yield "blocked", f"healing waits for held elements: {command}"
    if healing_state.stopped is not None:
        causes = ", ".join(
            f"{cause} ({count_with_commas(n)})"
            for cause, n in healing_state.left.items()
        )
        yield (
            "healed",
            f"{healing_state.stopped}: {causes}" if causes else healing_state.stopped,
        )
    # in this state the job runs weigh resume --heal just now
    elif healing_state.state == "RUNNING":
        yield "heals", f"job {healing_state.healer} decides on the next round"
    elif healing_state.state == "PENDING" and healing_state.healer is not None:
        yield (
            "heals",
            f"job {healing_state.healer} follows when all elements have ended",
        )
    elif healing_state.state == "CANCELLED":
        yield "heals", f"job {healing_state.healer} was cancelled"
    else:
        what = (
            "no healer follows"
            if healing_state.goes_on
            else "no healer sent the next round"
        )
        was = (
            f" (job {healing_state.healer}: {healing_state.words or 'ended'})"
            if healing_state.healer
            else ""
        )
        yield "heals", f"{what}{was}: weigh resume --heal {job_id}"
