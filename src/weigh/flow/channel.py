"""The event file of one run: made before the job, read after it, removed."""

import os
import time

import msgspec

from weigh.model.record import Measurement, PeakMemory, Usage
from weigh.units import Bytes

VARIABLE = "WEIGH_CHANNEL"


class Channel:
    """A file that a program with ``import weigh`` tells its phases to.

    It lies in the machine's own temporary folder, not in the store: a program may
    write to it often. Where it cannot be made, the job does without.
    """

    def __init__(self, name: str) -> None:
        self._path: str | None = _path(name)
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        try:
            os.close(os.open(self._path, flags, 0o600))
        except OSError:
            self._path = None

    def environment(self) -> dict[str, str]:
        """Give what the job's environment has to name."""
        return {} if self._path is None else {VARIABLE: self._path}

    def take(self, measured: Measurement) -> Measurement:
        """Add what the job told, and empty the file for a next run."""
        if self._path is None or not _size(self._path):
            return measured
        from weigh.measure.channel import clock, read_channel  # noqa: PLC0415 - rare

        started = clock() - (time.time() - measured.started)
        ended = started + measured.usage.wall_time
        regions = read_channel(self._path, started=started, ended=ended)
        try:
            os.truncate(self._path, 0)
        except OSError:  # the job did away with its temporary folder
            self._path = None
        usage = with_told_peak(measured.usage, regions.peak_memory)
        return msgspec.structs.replace(measured, regions=regions, usage=usage)

    def close(self) -> None:
        """Remove the file."""
        if self._path is not None:
            _remove(self._path)


def forget(name: str) -> None:
    """Remove the file of a run whose weigh was killed, if it lies here."""
    _remove(_path(name))


def with_told_peak(usage: Usage, told: Bytes | None) -> Usage:
    """Correct the peak by what a process said that it held at most.

    A phase that measures its own peak resets the kernel's high-water mark, so a spike
    between two samples is known to that process alone.
    """
    seen = usage.max_process_memory or 0
    if told is None or told <= seen:
        return usage
    peak = usage.peak_memory
    if peak is not None:
        more = told - seen if seen else max(0, told - peak.value)
        peak = _raised(peak, more)
    return msgspec.structs.replace(usage, max_process_memory=told, peak_memory=peak)


def _raised(peak: PeakMemory, more: Bytes) -> PeakMemory:
    anonymous = None if peak.anonymous is None else peak.anonymous + more
    value = peak.value + more
    return msgspec.structs.replace(
        peak,
        value=value,
        low=max(peak.low, value if peak.low == peak.value else peak.low),
        high=max(peak.high, value),
        anonymous=anonymous,
    )


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _path(name: str) -> str:
    folder = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - opened exclusively
    return os.path.join(folder, f"weigh-{name}.events")


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
