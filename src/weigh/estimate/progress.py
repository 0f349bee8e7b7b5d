"""How many steps a run did, and what one more takes: from what its record knows."""

from collections.abc import Iterator

from weigh.model.growth import Progress
from weigh.model.record import Batches, Event, Headway, Record
from weigh.units import Seconds

_STEP_NAMES = frozenset(
    f"{prefix}{name}"
    for name in ("step", "steps", "iteration", "iterations", "iters", "timesteps")
    for prefix in ("", "max_", "num_", "n_", "global_", "total_", "train_")
)


def progress_of(
    record: Record, *, total: float | None = None, done: float | None = None
) -> Progress | None:
    """Find how far *record*'s run came; None where nothing counted its steps.

    The first that is known counts: *done*, as the user says; the timed loop; events
    named like steps; what it printed of its steps; a parameter named like them. *total*
    overrules the loop's own, or what it printed.
    """
    found = next(_counts(record, done), None)
    if found is None:
        return None
    count, step_time, source = found
    if total is None and done is None:
        if record.batches is not None:
            total = record.batches.total
        elif record.progress is not None and source == _printed(record.progress):
            total = record.progress.total
    return Progress(count, total, step_time, source)


def time_needed(record: Record, progress: Progress) -> Seconds:
    """Give the seconds that the whole job takes, if each step takes as long."""
    wall = record.usage.wall_time if record.usage else 0.0
    ahead = max(0.0, (progress.total or 0.0) - progress.done)
    return wall + ahead * progress.step_time


def _counts(record: Record, done: float | None) -> Iterator[tuple[float, Seconds, str]]:
    wall = record.usage.wall_time if record.usage else 0.0
    timed = _loop(record.batches)
    marks = _marks(record.events)
    if done is not None:
        # a loop or events that count the same tell how long a step takes without
        # the start-up
        paces = [pace for count, pace, _ in (*timed, *marks) if count == done]
        yield done, paces[0] if paces else wall / done, "as given"
    yield from timed
    yield from marks
    told = record.progress
    if told is not None and told.done > 0 and told.step_time:
        yield told.done, told.step_time, _printed(told)
    for name, value in record.parameters.items():
        if name.lower() in _STEP_NAMES and not isinstance(value, str) and value > 0:
            yield value, wall / value, f"by the parameter {name}"


def _printed(told: Headway) -> str:
    return f"as printed ({told.source})"


def _loop(loop: Batches | None) -> list[tuple[float, Seconds, str]]:
    if loop is None or not loop.count or loop.time_mean is None:
        return []
    return [(loop.count, loop.time_mean, "by the timed loop")]


def _marks(events: tuple[Event, ...]) -> list[tuple[float, Seconds, str]]:
    """Find the last step told, and the mean time of one, by the first and the last."""
    told = [
        (event.time, float(event.value), event.name)
        for event in events
        if event.name.lower() in _STEP_NAMES and isinstance(event.value, (int, float))
    ]
    if not told:
        return []
    (begin, first, _), (end, last, name) = told[0], told[-1]
    if last <= first or end <= begin:
        return []
    return [(last, (end - begin) / (last - first), f"by the events {name!r}")]
