"""``weigh plan --probe``: run 1, 2, 3... tasks together and measure the throughput."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import truediv

import msgspec

from weigh.errors import UsageError
from weigh.flow.run.run_measured import MeasuredRun, last_line, wait_for_all
from weigh.model.plan import Together
from weigh.model.record import Record
from weigh.units import Seconds

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_WORSE = 2  # numbers of tasks in a row without a gain that end the probe


class Place(msgspec.Struct, frozen=True):
    """Where the tasks run: directory, environment, CPUs, and the GPU if any."""

    cwd: str
    env: Mapping[str, str]
    cpus: int
    gpu: str | None = None


def probe_one(line: str, place: Place) -> Together:
    """Run one task alone; its record is kept, and the plan uses it.

    Raises:
        UsageError: the task failed; the message has its last line of output.
        Interrupted: this process received a signal to stop and passed it to the task.
    """
    return _side_by_side([line], place, ())


def probe_more(
    lines: Sequence[str],
    alone: Sequence[Seconds],
    place: Place,
    *,
    notify: Callable[[str], None],
) -> Iterator[Together]:
    """Run 2, 3... tasks together while the throughput grows; no record is kept.

    *alone* holds the time of each task without the others. The probe ends early if
    tasks fail together or the throughput falls.
    """
    best, worse = 1.0, 0
    for count in range(2, len(lines) + 1):
        try:
            found = _side_by_side(lines[:count], place, alone[:count])
        except UsageError as error:
            notify(f"{count} together: {error}")
            return
        notify(f"{count} together: {found.speed_up:.2f} times the throughput of one")
        yield found
        worse = 0 if found.speed_up > best else worse + 1
        best = max(best, found.speed_up)
        if worse == _WORSE:
            return


def _side_by_side(
    lines: Sequence[str], place: Place, alone: Sequence[Seconds]
) -> Together:
    with tempfile.TemporaryDirectory(prefix="weigh-") as folder:
        runs = [
            _start(line, number, len(lines), place, folder)
            for number, line in enumerate(lines)
        ]
        wait_for_all(runs)
        records = [_completed(run) for run in runs]
    return _together(records, alone)


def _start(
    line: str, number: int, count: int, place: Place, folder: str
) -> MeasuredRun:
    env = dict(place.env)
    share = str(max(1, place.cpus // count))
    for name in _THREADS:
        env.setdefault(name, share)
    if place.gpu is not None:
        env["CUDA_VISIBLE_DEVICES"] = place.gpu
    if count > 1:  # the record would not show what the task uses alone
        env["WEIGH_DIR"] = os.path.join(folder, "records")
    return MeasuredRun(
        ["bash", "-c", line],
        os.path.join(folder, f"{number}.json"),
        log=os.path.join(folder, f"{number}.log"),
        cwd=place.cwd,
        env=env,
    )


def _completed(run: MeasuredRun) -> Record:
    """Return the record of a task that completed.

    Raises:
        UsageError: it did not complete.
    """
    record = run.record()
    if record is None or record.state != "COMPLETED":
        line = last_line(run.log or "")
        state = record.state if record else f"exit code {run.process.returncode}"
        raise UsageError(f"a task ended as {state}: {line or 'it printed nothing'}")
    return record


def _together(records: Sequence[Record], alone: Sequence[Seconds]) -> Together:
    usages = [record.usage for record in records if record.usage]
    times = [usage.wall_time for usage in usages]
    peaks = [usage.peak_memory.value for usage in usages if usage.peak_memory]
    gpus = [gpu for usage in usages for gpu in usage.gpus]
    busy = [g.utilization_mean for g in gpus if g.utilization_mean is not None]
    # the slowest counts: where tasks wait for one another the first ones are fast
    slow_down = max(map(truediv, times, alone or times))
    return Together(
        count=len(records),
        wall_time=max(times),
        slow_down=slow_down,
        speed_up=len(records) / slow_down,
        memory=sum(peaks) if peaks else None,
        gpu_memory=max((g.job_peak or 0 for g in gpus), default=0) or None,
        gpu_busy=max(busy, default=None),
    )
