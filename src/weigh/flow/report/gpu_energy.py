"""Time and energy of the cards themselves, however many runs shared each."""

from collections.abc import Iterable, Sequence

import msgspec

from weigh.flow.report.runs import Run
from weigh.measure.gpu.account import was_used
from weigh.model.gpu import GpuUsage
from weigh.units import Seconds


class Cards(msgspec.Struct, frozen=True):
    """How long cards were in use, and joules over the runs that measured them.

    None where no run had a card, or where none measured its energy; ``measured`` is
    how many runs did.
    """

    time: Seconds | None = None
    energy: float | None = None
    measured: int = 0


def cards_of(runs: Sequence[Run]) -> Cards:
    """Add up over cards; what runs did on one at the same time counts once.

    The counter of a card is of all that run on it. While runs share one, its mean
    power over them stands for each.
    """
    spans: dict[str, list[tuple[Seconds, Seconds]]] = {}
    powers: dict[str, list[tuple[float, Seconds, Seconds]]] = {}
    measured = 0
    for run in runs:
        start, wall = run.row.started, run.row.wall_time
        if start is None or not wall:
            continue
        cards = held_cards(run)
        measured += any(gpu.energy is not None for gpu in cards)
        for gpu in cards:
            spans.setdefault(gpu.uuid, []).append((start, start + wall))
            if gpu.energy is not None:
                known = gpu.energy, start, start + wall
                powers.setdefault(gpu.uuid, []).append(known)
    return Cards(
        time=sum(map(covered, spans.values())) if spans else None,
        energy=sum(map(_energy, powers.values())) if powers else None,
        measured=measured,
    )


def held_cards(run: Run) -> tuple[GpuUsage, ...]:
    """Give the cards that a run used, or was granted: not all that a machine has."""
    record = run.record
    if record is None or record.usage is None:
        return ()
    cards = record.usage.gpus
    if record.allocation is not None:
        return cards
    return tuple(card for card in cards if was_used(card) is not False)


def covered(spans: Iterable[tuple[Seconds, Seconds]]) -> Seconds:
    """Give how much time spans cover, where several overlap once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _energy(known: Sequence[tuple[float, Seconds, Seconds]]) -> float:
    joules = sum(energy for energy, _, _ in known)
    long = sum(end - start for _, start, end in known)
    once = covered((start, end) for _, start, end in known)
    return joules * once / long
