"""How memory moved towards the end of a run, and what that comes to in a longer one."""

import msgspec

from weigh.units import Bytes, Seconds


class Trend(msgspec.Struct, frozen=True):
    """A line through what was held: *level* bytes at *time*, and *rate* bytes a second.

    ``low`` and ``high`` hold the true rate between them; ``scatter`` is how far the
    memory lay above the line at most, in bytes, ``surge`` the same as a factor, and
    ``sag`` how far it may lie below it.
    """

    time: Seconds
    level: float
    rate: float
    low: float
    high: float
    scatter: float = 0.0
    surge: float = 1.0
    sag: float = 0.0


class Growth(msgspec.Struct, frozen=True):
    """Whether memory still rose when the run ended, by how much, and since when.

    ``growing`` is None for a run too short to tell. ``trend`` is there where a rise is
    certain, also one too small to matter in a run of this length. ``since`` is when
    memory that does not grow had found its level.
    """

    growing: bool | None
    peak: Bytes
    end: Seconds
    trend: Trend | None = None
    since: Seconds | None = None


class Extrapolation(msgspec.Struct, frozen=True):
    """The peak memory of a longer run, if it goes on as it did, in bytes.

    ``low`` and ``high`` hold it between them at *level*; ``time`` is the length of
    that run in seconds, ``factor`` how many times the measured one that is.
    """

    value: Bytes
    low: Bytes
    high: Bytes
    time: Seconds
    factor: float
    level: float = 0.95


class Progress(msgspec.Struct, frozen=True):
    """How far a run came: *done* steps, of *total* where that is known.

    ``step_time`` is what one more takes, in seconds; ``source`` says who counted.
    """

    done: float
    total: float | None
    step_time: Seconds
    source: str
