"""How far a run says it is, and when it will end."""

import msgspec

from weigh.units import Seconds


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends, by what it printed or told of its own steps.

    ``done`` of ``total`` steps, as known at ``time``, seconds since the run began. From
    then on it takes ``remaining`` seconds, between ``low`` and ``high`` at 90 %. These
    are None until enough steps were seen, and where the total is not known: not
    printed, or of a counter that begins again and again. ``step_time`` is the recent
    pace in seconds a step; the step under way counts as a fraction in ``done``.
    ``source`` says who counted: tqdm, rich, Keras, Trainer, epoch lines, step lines,
    percentages, your pattern, or what told it (weigh.batches).
    """

    done: float
    total: float | None
    time: Seconds
    source: str
    step_time: Seconds | None = None
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None
