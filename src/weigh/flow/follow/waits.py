"""How long jobs like one that waits have waited lately, from accounting.

Accounting is asked only about a job that has waited for some minutes, and the answer is
kept: whoever looks each minute asks no more often.
"""

import os
import statistics
import time
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from weigh.errors import WeighError
from weigh.flow.records.imported import past_accounting
from weigh.flow.site.schedulers import current_user, kind_of, reaching
from weigh.render.status_lines import Standing, Waits
from weigh.schedulers import find_kind
from weigh.schedulers.command import lines_of
from weigh.store.location import make_folder, private
from weigh.units import DAY, MINUTE, Seconds

_LONG: Seconds = 5 * MINUTE
_KEPT: Seconds = 30 * MINUTE
_SPAN: Seconds = 7 * DAY
_FEW, _MOST = 3, 200


class _Answer(msgspec.Struct, frozen=True):
    """The waits of the user's jobs by queue, the latest last, and when it was asked."""

    asked: Seconds
    waits: dict[str, list[Seconds]] = {}


def with_waits(one: Standing, *, root: str, env: Mapping[str, str]) -> Standing:
    """Return a standing with the recent waits, if the job has waited for minutes."""
    now = time.time()
    if not any(
        wait.since is not None and now - wait.since >= _LONG and not wait.hopeless
        for wait in one.waiting
    ):
        return one
    waits = _known(one.job.scheduler, root=root, env=env, now=now)
    queue = one.job.request.queue or max(
        waits, key=lambda name: len(waits[name]), default=""
    )
    times = sorted(waits.get(queue, ())[-_MOST:])
    if len(times) < _FEW:
        return one
    found = Waits(
        queue=queue,
        jobs=len(times),
        median=statistics.median(times),
        most=times[min(len(times) - 1, round(0.9 * len(times)))],
    )
    return msgspec.structs.replace(one, waits=found)


def _known(
    name: str, *, root: str, env: Mapping[str, str], now: Seconds
) -> dict[str, list[Seconds]]:
    path = os.path.join(root, "queue", f"{name}.waits.json")
    with suppress(OSError, msgspec.DecodeError):
        with open(path, "rb") as file:
            kept = msgspec.json.decode(file.read(), type=_Answer)
        if 0 <= now - kept.asked < _KEPT:
            return kept.waits
    waits: dict[str, list[Seconds]] = {}
    with suppress(WeighError):  # a failing accounting is reported elsewhere
        waits = _asked(name, env)
    make_folder(root, "queue")
    fresh = f"{path}.{os.getpid()}"
    with suppress(OSError):
        with open(fresh, "wb", opener=private) as file:
            file.write(msgspec.json.encode(_Answer(now, waits)))
        os.replace(fresh, path)
    return waits


def _asked(name: str, env: Mapping[str, str]) -> dict[str, list[Seconds]]:
    kind = find_kind(kind_of(name))
    if kind is None:
        return {}
    source = past_accounting(kind)
    argv = source.past_argv(current_user(), _SPAN)
    waits: dict[str, list[Seconds]] = {}
    for job in source.read_past(lines_of(argv, env=reaching(name, env))):
        if job is None or job.started is None:
            continue
        since = job.submitted if job.eligible is None else job.eligible
        if since is not None and job.started >= since:
            waits.setdefault(job.queue or "", []).append(job.started - since)
    return {queue: times[-_MOST:] for queue, times in waits.items()}
