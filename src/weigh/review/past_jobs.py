"""Jobs of one kind from accounting, in a few numbers: what their request follows from.

No job is kept.
"""

from collections import Counter

from weigh.estimate.history import ENOUGH, MOST_SEEN, HistoryPrediction, HistoryReplay
from weigh.estimate.sampled import SampledHistory, SampledMemory
from weigh.model.report import PastJob
from weigh.request import COMPLETED, LEAST_MEMORY, round_memory
from weigh.units import Bytes, Seconds

OUT_OF_MEMORY, TIMEOUT = "OUT_OF_MEMORY", "TIMEOUT"
_DOUBLED = 2
# less than for memory: elapsed times are not sampled
_TIME_MARGIN = 0.1


class JobsOfKind:
    """Jobs of one kind, in a few numbers: enough to work out their request."""

    def __init__(self, kind_name: str) -> None:
        self.name = kind_name
        self.memory = SampledHistory()
        self.states: Counter[str] = Counter()
        self.longest: Seconds = 0.0
        self.stopped: Seconds = 0.0  # by the time limit
        self.time_limit = self.gpus = self.cpus = 0
        self.nodes = 1
        self.requested: Bytes = 0
        self.most: Bytes = 0

    def add(self, past_job: PastJob, interval: Seconds, *, by_addresses: bool) -> None:
        """Learn from one more job, sampled *interval* so many seconds."""
        figures = past_job.accounted
        wall_time = figures.wall_time or 0.0
        self.states[figures.state] += 1
        size = figures.virtual_memory if by_addresses else figures.max_rss
        if figures.state == COMPLETED:
            # samples that fit into the job: few of them miss a short peak
            looks = int(wall_time / interval)
            self.memory.add(
                SampledMemory(size or 0, looks, figures.memory_asked, wall_time)
            )
            self.most = max(self.most, size or 0)
            self.longest = max(self.longest, wall_time)
            self.time_limit = max(self.time_limit, figures.time_limit or 0)
        elif figures.state == OUT_OF_MEMORY:
            # its last sample or its limit, whichever is more, was too small
            self.memory.add_kill(max(size or 0, figures.memory_asked or 0))
        elif figures.state == TIMEOUT:
            self.stopped = max(self.stopped, wall_time)
        self.cpus = max(self.cpus, figures.cpus or 1)
        self.nodes = max(self.nodes, figures.nodes or 1)
        self.requested = max(self.requested, figures.memory_asked or 0)
        self.gpus = max(self.gpus, figures.gpus or 0)

    def time(self) -> HistoryPrediction:
        """Return the time to request: elapsed times are exact."""
        value = self.longest * (1 + _TIME_MARGIN)
        # jobs that were stopped earlier than others completed are outliers or had a
        # shorter limit
        is_cut = self.stopped > self.longest
        if is_cut:
            value = self.stopped * _DOUBLED
        # all completed within a limit below the value: more than it was never needed
        is_proven = not is_cut and 0 < self.time_limit < value
        return HistoryPrediction(
            value=float(self.time_limit) if is_proven else value,
            risk="low",
            by=MOST_SEEN,
            margin=_TIME_MARGIN,
            runs=self.states[COMPLETED],
            replay=HistoryReplay(),
            after_kill=value if is_cut else None,
            is_proven=is_proven,
        )

    def memory_request(self) -> Bytes | None:
        """Return the memory to request in bytes, rounded; None if nothing is known."""
        said = self.memory.predict()
        proven = self.memory.proven
        if said is None or said.runs < ENOUGH:
            return None if proven is None else round(proven)
        rounded = max(LEAST_MEMORY, round_memory(said.value))
        return rounded if proven is None else min(rounded, round(proven))
