"""How far a run says it is, and when it will end."""

import msgspec

from weigh.units import Seconds


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When a run ends, by what it printed or told of its own steps.

    ``done`` of ``total`` steps at ``time`` seconds since the run began; ``remaining``
    seconds lie between ``low`` and ``high`` at 90 %. They are None until enough steps
    were seen, or where the total is not known. ``step_time`` is the recent pace in
    seconds a step; ``source`` says who counted: tqdm, Keras, a pattern, weigh.batches.
    """

    done: float
    total: float | None
    time: Seconds
    source: str
    step_time: Seconds | None = None
    remaining: Seconds | None = None
    low: Seconds | None = None
    high: Seconds | None = None
