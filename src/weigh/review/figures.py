"""Figures of the scheduler next to weigh's own, and which of the two to trust."""

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from weigh.model.job import ACTIVE
from weigh.model.report import AccountedElement, GpuTable, OtherFigure, ReportMeasure
from weigh.review.elements import measure_of
from weigh.review.runs import ElementRequest
from weigh.schedulers import kind_or_first
from weigh.schedulers.kind import AccountingWords
from weigh.units import Seconds

# sources differ by some per cent in what they count, which is no news to a reader
_SAME = 0.05  # a smaller relative difference counts as the same
_SAME_CPUS = 0.1  # of a CPU


_WHOLE_SECONDS = 2.0  # accounting has whole seconds, weigh milliseconds


# written by a site's epilogue from NVIDIA's DCGM
_TABLE = "the job log's GPU table"


def request_with_accounting(
    requested: ElementRequest, accounted: Sequence[AccountedElement]
) -> ElementRequest:
    """Return *requested*, completed by what only accounting knows."""
    if not accounted:
        return requested
    first = accounted[0]
    return msgspec.structs.replace(
        requested,
        cpus=requested.cpus or first.cpus,
        memory=requested.memory or first.memory_asked,
        time_limit=requested.time_limit or first.time_limit,
        gpus=requested.gpus or first.gpus or 0,
        nodes=max(one.nodes or 1 for one in accounted),
    )


def with_other_figures(
    measures: Sequence[ReportMeasure],
    accounted: Sequence[AccountedElement],
    tables: Sequence[GpuTable],
    *,
    scheduler: str | None,
    killed: bool = False,
) -> tuple[ReportMeasure, ...]:
    """Return measures with the figures of other sources that differ from weigh's.

    *killed*: a task was killed for memory, even if accounting reports another state.
    """
    # figures of a job that runs are those so far, and would contradict ours
    over = tuple(one for one in accounted if one.state not in ACTIVE)
    if not over and not tables:
        return tuple(measures)
    walls = (one.most for one in measures if one.name == "time")
    # in a killed job a figure below the limit is a sample from before the kill
    killed = killed or any(one.state == "OUT_OF_MEMORY" for one in accounted)
    others = _OtherFigures(
        over,
        tuple(tables),
        kind_or_first(scheduler).accounting.WORDS,
        killed,
        next(walls, None),
    )
    return tuple(
        msgspec.structs.replace(one, others=tuple(others.of(one))) for one in measures
    )


def filled_measures(
    measures: Sequence[ReportMeasure],
    accounted: Sequence[AccountedElement],
    requested: ElementRequest,
    *,
    scheduler: str | None,
) -> tuple[tuple[ReportMeasure, ...], str]:
    """Return measures with accounting's figures where nothing was measured.

    Also return where the memory is from, as words; empty if it is weigh's. A limit on
    address space (h_vmem) is what counts as requested memory, if nothing else does.
    """
    over = [one for one in accounted if one.state not in ACTIVE]
    kind = kind_or_first(scheduler)
    limits_addresses = kind.traits.address_space is not None
    # what is compared with the request is what the scheduler limits
    sizes = [one.virtual_memory if limits_addresses else one.max_rss for one in over]
    values: dict[str, list[float | None]] = {
        "memory": [size or None for size in sizes],  # 0: there was no sample
        "gpu_memory": [one.gpu_memory for one in over],
        "gpu_utilization": [one.gpu_utilization for one in over],
        "time": [one.wall_time for one in over],
        "cpus": [
            None
            if one.cpu_time is None or not one.wall_time
            else one.cpu_time / one.wall_time
            for one in over
        ],
    }
    found, source = [], ""
    for one in measures:
        if one.name == "memory" and one.requested is None:
            asked = requested.virtual_memory or requested.memory
            one = measure_of(one, one.values, asked)  # noqa: PLW2901
        known = tuple(value for value in values[one.name] if value is not None)
        if one.median is None and known:
            if one.name == "memory":
                source = _memory_source(kind.accounting.WORDS, over, limits_addresses)
            one = measure_of(one, known, one.requested)  # noqa: PLW2901
            one = msgspec.structs.replace(one, others=(), source=kind.accounts)  # noqa: PLW2901
        found.append(one)
    return tuple(found), source


def _memory_source(
    words: AccountingWords,
    accounted: Sequence[AccountedElement],
    limits_addresses: bool,  # noqa: FBT001
) -> str:
    if limits_addresses:
        return f"{words.virtual}: {words.virtual_word}"
    often, _ = _sampling_interval_text(accounted)
    return f"{words.memory}: {words.unmeasured.format(often=often)}"


class _OtherFigures(msgspec.Struct, frozen=True):
    """The figures of accounting and GPU tables; ``wall_time`` is weigh's largest."""

    accounted: tuple[AccountedElement, ...]
    tables: tuple[GpuTable, ...]
    words: AccountingWords
    killed: bool
    wall_time: Seconds | None

    def of(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        """Yield their figures of one measure that differ from weigh's."""
        readers = {
            "memory": self._memory,
            "gpu_memory": self._gpu_memory,
            "gpu_utilization": self._gpu_utilization,
            "cpus": self._cpus,
            "time": self._time,
        }
        return readers[measure.name](measure)

    def _known(self, field: str) -> list[float]:
        values = [getattr(one, field) for one in self.accounted]
        return [value for value in values if value is not None]

    def _in_tables(self, field: str) -> list[float]:
        values = [getattr(one, field) for one in self.tables]
        return [value for value in values if value is not None]

    def _memory(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        ours, words = measure.most, self.words
        theirs = max(self._known("max_rss"), default=None)
        # some schedulers leave the field empty where no sample was taken
        if theirs is None and words.zero and self.accounted and ours is not None:
            theirs = 0
        if theirs is not None and not _is_nearly_equal(ours, theirs):
            often, is_known = _sampling_interval_text(self.accounted)
            word = _word_on_memory(ours, theirs, words, killed=self.killed)
            # a lower figure is explained by rare samples only where the interval is
            # known
            if word == words.below and words.unsure and not is_known:
                word = words.unsure
            word = word.format(often=often)
            yield OtherFigure(source=words.memory, value=theirs, word=word)
        virtual = max(self._known("virtual_memory"), default=0)
        if virtual and words.virtual:
            word = words.virtual_word
            yield OtherFigure(source=words.virtual, value=virtual, word=word)

    def _gpu_memory(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        ours = measure.most
        held = max(self._in_tables("gpu_memory"), default=None)
        if held is not None and not _is_nearly_equal(ours, held):
            word = "the site's sampler (DCGM) over the whole job"
            if ours is not None and held < ours:
                once = all(table.one_look for table in self.tables)
                single = "a single sample (mean = largest = smallest)"
                word = f"{single if once else 'sampled'}: trust weigh's"
            yield OtherFigure(source=_TABLE, value=held, word=word)
        seen = max(self._known("gpu_memory"), default=0)
        if seen and not _is_nearly_equal(ours, seen):
            often, is_known = _sampling_interval_text(self.accounted)
            word = self.words.sampled.format(often=often)
            if ours is not None and seen < ours and is_known:
                word += ": trust weigh's"
            yield OtherFigure(source=self.words.gpu_memory, value=seen, word=word)

    def _gpu_utilization(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        shares = self._in_tables("utilization")
        if shares and not _is_nearly_equal(measure.median, statistics.median(shares)):
            once = all(table.one_look for table in self.tables)
            word = "a single sample" if once else "mean of its samples"
            own = self._in_tables("process_utilization")
            if own:
                word += f"; of this job's process {100 * statistics.median(own):.0f} %"
            yield OtherFigure(source=_TABLE, value=statistics.median(shares), word=word)
        theirs = self._known("gpu_utilization")
        if theirs and not _is_nearly_equal(measure.median, statistics.median(theirs)):
            yield OtherFigure(
                source=self.words.gpu_utilization,
                value=statistics.median(theirs),
                word="the maximum of its samples, not the mean",
            )

    def _cpus(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        shares = [
            one.cpu_time / one.wall_time
            for one in self.accounted
            if one.cpu_time is not None and one.wall_time
        ]
        if not shares:
            return
        ours, theirs = measure.median, statistics.median(shares)
        if _is_nearly_equal(ours, theirs) or (
            ours is not None and abs(theirs - ours) < _SAME_CPUS
        ):
            return
        word = "over the whole job, including its set-up"
        is_longer = _is_longer(self.wall_time, max(self._known("wall_time")))
        # a longer job has a lower mean: only in the same time less CPU time is missing
        if ours is not None and theirs < ours and not is_longer:
            word = "misses what was killed or left the job: trust weigh's"
        source = f"{self.words.cpu_time} / time"
        yield OtherFigure(source=source, value=theirs, word=word)

    def _time(self, measure: ReportMeasure) -> Iterator[OtherFigure]:
        ours, theirs = measure.most, max(self._known("wall_time"), default=None)
        if theirs is None:
            return
        if _is_longer(ours, theirs) or _is_longer(theirs, ours):
            word = "the whole job, to which the time limit applies: use this"
            yield OtherFigure(source=self.words.wall_time, value=theirs, word=word)


def _sampling_interval_text(accounted: Sequence[AccountedElement]) -> tuple[str, bool]:
    """Return how often the site samples, and whether that is known."""
    for one in accounted:
        if one.sampled is not None:
            often = f"sampled every {one.sampled:g} s"
            return (often if one.sampled else "sampled at the end only"), True
    return "sampled at unknown intervals", False


def _word_on_memory(
    ours: float | None, theirs: float, words: AccountingWords, *, killed: bool
) -> str:
    if ours is None:
        return words.unmeasured if theirs else words.zero or words.unmeasured
    if theirs < ours:
        if killed:
            return words.below_killed or words.below
        return words.below if theirs else words.zero or words.below
    return (words.above_killed if killed else "") or words.above


def _is_longer(compared_time: Seconds | None, other_time: Seconds | None) -> bool:
    """Return whether *other_time* is longer by more than rounding explains."""
    if compared_time is None or other_time is None:
        return other_time is not None
    return (
        not _is_nearly_equal(compared_time, other_time)
        and other_time - compared_time >= _WHOLE_SECONDS
    )


def _is_nearly_equal(ours: float | None, theirs: float) -> bool:
    return ours is not None and abs(ours - theirs) <= _SAME * max(ours, theirs)
