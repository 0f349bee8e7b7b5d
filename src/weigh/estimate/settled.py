"""Memory that stays level after the start of a run: how far a limit can fall, and when.

Slurm 26.05's ``--mem-update=MARGIN@DELAY`` looks once, DELAY minutes after the start of
the job. The limit falls to the memory in use then plus MARGIN percent, and never rises
again: a later peak above it is killed.

Slurm does not count files as in use, mapped or in the page cache. So a run counts with
all of its memory as need, and without the mapped files as in use. The moment of the
look is uncertain, as a node may be slower or a start-up longer: all between half of the
delay and twice the delay has to be level.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weigh.model.growth import Fall, Lowered
from weigh.model.record import PeakMemory, Record, Series, Usage
from weigh.units import MINUTE, Bytes, Seconds, format_duration, format_size

FEWEST = 3  # runs of a kind: fewer do not show how far it varies
_EARLY, _LATE = 0.5, 2.0  # times the delay, between which the look may be
_END = 0.95  # of a run; after that it may release its memory
_LEVEL = 1.5  # the highest need, over the least that is in use
_WORTH = 0.9  # of the request: a limit above it is not worth a risk
_LEAST = 0.1  # of the request: Slurm lowers no limit further
_MOST_DELAY = 65535  # minutes: 16 bits
_STEP = 1.15  # from one delay that is tried to the next
_FEWEST_ROWS = 2  # of a curve
_COMPLETED = "COMPLETED"
_GROWS = frozenset({"elastic", "spills"})


class _Course(NamedTuple):
    """The memory of one run over time; ``lows`` are equal stretches of it.

    ``files`` is what does not count as in use, ``raised`` how far the true need may be
    above a sample.
    """

    times: tuple[Seconds, ...]
    memory: tuple[Bytes, ...]
    lows: tuple[Bytes, ...]
    files: Bytes
    raised: float

    @property
    def end(self) -> Seconds:
        return self.times[-1]

    def need_from(self, at: Seconds) -> float:
        """Return the largest need from *at* on."""
        first = max(0, bisect_right(self.times, at) - 1)
        return max(self.memory[first:]) * self.raised

    def in_use(self, begin: Seconds, end: Seconds) -> Bytes:
        """Return the least that counted as in use between two moments; 0 is possible.

        A stretch counts if any of it is in between.
        """
        width = (self.end - self.times[0]) / len(self.lows)
        first = min(max(0, int((begin - self.times[0]) / width)), len(self.lows) - 1)
        last = max(first + 1, math.ceil((end - self.times[0]) / width))
        return max(0, min(self.lows[first:last]) - self.files)

    def most_in_use(self, begin: Seconds, end: Seconds) -> Bytes:
        """Return the most that may have counted as in use between two moments."""
        first = max(0, bisect_right(self.times, begin) - 1)
        return max(self.memory[first : max(first + 1, bisect_right(self.times, end))])


def lowered(
    kinds: Sequence[Sequence[Record]], request: Bytes, headroom: float, together: int
) -> Lowered | str:
    """Return how a job's limit can fall, or why it should not.

    *kinds* are the runs of each kind of task in it; *together* of the tasks run at once
    with the *request*. The limit leaves *headroom* (0.2: 20 %) above each later peak.
    """
    courses: list[_Course] = []
    for runs in kinds:
        done = [run for run in runs if run.state == _COMPLETED]
        if len(done) < FEWEST:
            return (
                f"{len(done)} completed {'run' if len(done) == 1 else 'runs'} of it "
                f"{'is' if len(done) == 1 else 'are'} known, and {FEWEST} show how far "
                "it varies"
            )
        for run in done:
            found = _course(run)
            if isinstance(found, str):
                return found
            courses.append(found)
    tried = [(delay, _margin(courses, delay, headroom)) for delay in _delays(courses)]
    level = [(delay, margin) for delay, margin in tried if margin is not None]
    if not level:
        return _why_not(courses)
    share = request / together
    best: Lowered | None = None
    most_saved = 0.0
    for delay, margin in level:
        after = delay * MINUTE
        held = max(
            course.most_in_use(_EARLY * after, _LATE * after)
            for course in courses
            if _EARLY * after < course.end
        )
        limit = math.ceil(max(held * (1 + margin / 100), _LEAST * share)) * together
        left = max(course.end for course in courses) - after
        saved = (request - limit) * left
        if limit <= _WORTH * request and saved > most_saved:
            most_saved = saved
            best = Lowered(margin=margin, delay=delay, limit=limit, runs=len(courses))
    if best is not None:
        return best
    peak = max(max(course.memory) for course in courses) * together
    return (
        f"there is little to release: these runs hold up to {format_size(peak)} of the "
        f"{format_size(request)} requested"
    )


def fall(run: Record, margin: int, delay: int, share: Bytes | None) -> Fall | None:
    """Return how a limit that falls so would have killed *run*; None if it would not.

    *share* of the job's memory was requested for it. The run counts at its best: with
    all it may have held at the look, and later without what the kernel can drop.
    """
    series = run.series
    peak = None if run.usage is None else run.usage.peak_memory
    at = delay * MINUTE
    if series is None or peak is None or not series.t or series.t[-1] <= at:
        return None
    if peak.file is None:
        return None  # all of it may be mapped files
    place = bisect_right(series.t, at)
    used = max(series.memory[max(0, place - 1) : place + 1])
    limit = math.ceil(max(used * (1 + margin / 100), _LEAST * (share or 0)))
    if share is not None and limit >= share:
        return None  # it does not fall
    need, when = max(
        (size - (peak.file or 0), -time)
        for time, size in zip(series.t[place:], series.memory[place:], strict=True)
    )
    if need <= limit:
        return None
    return Fall(_name(run), at, used, limit, need, -when)


def needed_margin(runs: Sequence[Record], delay: int, headroom: float) -> int | None:
    """Return the margin in percent that covers each later peak of *runs* with room.

    None where their memory is not level at that time, or not known well enough.
    """
    courses = [_course(run) for run in runs]
    known = [one for one in courses if not isinstance(one, str)]
    return _margin(known, delay, headroom) if len(known) == len(courses) else None


def longest(runs: Sequence[Record]) -> Seconds | None:
    """Return the wall time of the longest of *runs*; None if one did not end by itself.

    A run that was stopped may have needed longer.
    """
    times = [run.usage.wall_time for run in runs if run.usage is not None]
    is_whole = all(run.state == _COMPLETED for run in runs)
    return max(times) if times and is_whole else None


def _delays(courses: Sequence[_Course]) -> Iterator[int]:
    """Yield delays in minutes, up to the end of the longest run."""
    longest = max(course.end for course in courses)
    delay = 1
    while delay * MINUTE < longest and delay <= _MOST_DELAY:
        yield delay
        delay = max(delay + 1, int(delay * _STEP))


class _Gap(NamedTuple):
    """The run whose later need is most above what is in use around the look."""

    course: _Course
    in_use: Bytes
    need: float

    @property
    def ratio(self) -> float:
        return self.need / self.in_use if self.in_use else math.inf


def _gap(courses: Sequence[_Course], delay: int) -> _Gap | None:
    """Return the largest gap with a *delay* in minutes; None if all runs end before."""
    begin, late = _EARLY * delay * MINUTE, _LATE * delay * MINUTE
    gaps = [
        _Gap(course, course.in_use(begin, end), course.need_from(begin))
        for course in courses
        if begin < (end := min(late, _END * course.end))
    ]
    return max(gaps, key=lambda gap: gap.ratio, default=None)


def _margin(courses: Sequence[_Course], delay: int, headroom: float) -> int | None:
    """Return the margin in percent that covers each later peak; None if not level."""
    gap = _gap(courses, delay)
    if gap is None or gap.ratio > _LEVEL:
        return None
    return max(1, math.ceil((gap.ratio * (1 + headroom) - 1) * 100))


def _why_not(courses: Sequence[_Course]) -> str:
    """Return why no delay is possible: what is wrong with the best one."""
    gaps = [gap for delay in _delays(courses) if (gap := _gap(courses, delay))]
    if not gaps:
        longest = max(course.end for course in courses)
        return (
            f"the longest run took {format_duration(longest)}: the limit falls a "
            "minute after the start at the earliest"
        )
    gap = min(gaps, key=lambda one: one.ratio)
    course = gap.course
    if course.files > gap.in_use:
        return (
            f"{format_size(course.files)} of {format_size(max(course.memory))} is "
            "mapped files, which do not count as in use"
        )
    most = max(course.memory)
    return (
        f"memory is not level: at times {format_size(gap.in_use)} is in use, and later "
        f"{format_size(round(gap.need))} (the peak is {format_size(most)} at "
        f"{format_duration(course.times[course.memory.index(most)])})"
    )


def _course(run: Record) -> _Course | str:
    """Return the memory of a run over time, or why it cannot be judged."""
    series = run.series or Series()
    peak = None if run.usage is None else run.usage.peak_memory
    if peak is None or len(series.t) < _FEWEST_ROWS:
        return f"run {_name(run)} has no curve of its memory (weigh run records one)"
    doubt = next(_doubts(run, peak), None)
    if doubt is not None:
        return doubt
    return _Course(
        times=series.t,
        memory=series.memory,
        lows=series.low,
        files=peak.file or 0,
        raised=max(1.0, peak.high / peak.value) if peak.value else 1.0,
    )


def _doubts(run: Record, peak: PeakMemory) -> Iterator[str]:
    """Yield why the curve of a run does not show what a limit would do to it."""
    name, usage = _name(run), run.usage or Usage(wall_time=0.0)
    if run.nodes or run.missing:
        yield f"run {name} has parts on other nodes, which may peak later"
    if usage.growing:
        yield f"memory still rises at the end of run {name}"
    if usage.growing is None:
        yield f"run {name} is too short to show whether its memory settles"
    if peak.file is None:
        yield f"how much of the memory of run {name} is mapped files is not known"
    if run.series is None or not run.series.low:
        yield f"the least memory of run {name} was not recorded (measure it again)"
    if usage.jvm is not None or (usage.sign is not None and usage.sign.kind in _GROWS):
        yield f"run {name} may take all memory that it is given, at any time"
    if usage.cache is not None:
        yield f"run {name} reads its files again, from memory that would be released"


def _name(run: Record) -> str:
    return run.label or run.id
