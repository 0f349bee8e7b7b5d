"""The time limit of an element of a plan, and how much of it its tasks may use.

Both directions stand here, so that what is granted and what is used cannot disagree.
"""

import math

from weigh.model.staging import StagingPlan
from weigh.units import Seconds

GRACE = 20  # seconds; Slurm and Grid Engine kill 30 or 60 s after their warning
NOT_STARTED = "not started:"  # in the line of an element that left tasks in the queue
_TO_BEGIN = 10  # seconds from the start of an element to that of its first task
_MOST_RESERVED = 4  # the part of a time limit that is reserved at most: a quarter


def reserved_time(staging: StagingPlan | None, *, requeue: bool) -> int:
    """Return the seconds before a time limit that tasks leave to their job script."""
    if staging is None and not requeue:
        return 0
    return (staging or StagingPlan()).warn_time


def reserved_of(limit: int, reserved: int) -> int:
    """Return how much of the time *limit* is reserved, of the seconds *reserved*."""
    return min(reserved, limit // _MOST_RESERVED)


def time_for_tasks(limit: int, reserved: int = 0) -> int:
    """Return how long the tasks of an element with the time *limit* may run.

    weigh exec stops them ``GRACE`` before the limit, or before what is *reserved* for
    copying results back.
    """
    return limit - reserved_of(limit, reserved) - GRACE - _TO_BEGIN


def limit_for_tasks(task_time: Seconds, reserved: int = 0) -> int:
    """Return a time limit in which the tasks of an element may run for *task_time*."""
    least = math.ceil(round(task_time, 3)) + GRACE + _TO_BEGIN  # no noise of a sum
    # a quarter of the limit is a third of the rest
    quarter = math.ceil(least / (_MOST_RESERVED - 1))
    return least + min(reserved, quarter)
