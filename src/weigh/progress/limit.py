"""Will the run end before its time limit, and what to ask for if it will not."""

import math
from typing import Literal, TypeAlias

from weigh.model.progress import Forecast
from weigh.units import MINUTE, Seconds

Outlook: TypeAlias = Literal["fits", "doubtful", "too late"]

MARGIN = 0.15
_ROUND_TO = 5 * MINUTE
_BEGUN = 0.02
_YOUNG = 10 * MINUTE


def outlook(
    forecast: Forecast | None, *, now: Seconds, limit: Seconds
) -> Outlook | None:
    """Say whether the run ends before *limit*; None while nobody can know.

    *now* and *limit* are seconds since the run began. "too late" is said only when
    even the early end of the interval lies past the limit, "fits" when the late end
    lies before it. Nothing is said in the first 2 % of the steps of a run younger than
    ten minutes: those are often slow, and what is said too early is said wrong.
    """
    if forecast is None or forecast.low is None or forecast.high is None:
        return None
    is_begun = forecast.done >= _BEGUN * (forecast.total or 0.0)
    if not is_begun and now < _YOUNG:
        return None
    passed = now - forecast.time
    if now + max(0.0, forecast.low - passed) > limit:
        return "too late"
    return "fits" if now + max(0.0, forecast.high - passed) <= limit else "doubtful"


def limit_to_ask(forecast: Forecast | None) -> Seconds | None:
    """Give the time limit to ask for next, for a whole run like this one.

    The late end of the interval and 15 % more, rounded up to five minutes.
    """
    if forecast is None or forecast.high is None:
        return None
    whole = (forecast.time + forecast.high) * (1 + MARGIN)
    return float(math.ceil(whole / _ROUND_TO) * _ROUND_TO)
