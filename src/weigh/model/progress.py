"""The progress that a run reports, and the forecast of its end."""

import msgspec

from weigh.units import Seconds


class EndForecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends, according to the steps that it prints or reports.

    ``done`` of ``total`` steps were known at ``time``, in seconds since the run began.
    From then on it takes ``remaining`` seconds, between ``low`` and ``high`` at 90 %.
    These are None until enough steps were counted, and if the total is unknown: not
    printed, or that of a counter that starts over. ``step_time`` is the recent time per
    step in seconds; the current step counts as a fraction in ``done``. ``source`` is
    what counted: tqdm, rich, Keras, Trainer, epoch lines, step lines, percentages,
    figures (of an unknown program), its own estimate (the remaining time that it
    prints), your pattern, or what reported it (weigh.batches).
    """

    done: float
    total: float | None
    time: Seconds
    source: str
    step_time: Seconds | None = None
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None


class FailedTask(msgspec.Struct, frozen=True):
    """A task that failed finally; ``output`` is its output file, if it has any."""

    task: int  # the number that users know it by
    reason: str
    output: str | None = None
