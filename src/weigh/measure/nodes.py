"""Measure a job on all of its nodes: start an agent on each, and read its figures.

The agents' figures come as lines over the output of the command that started them, so
no folder has to be shared. The newest part of each node counts; a node that is lost
keeps its last one.
"""

import binascii
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from weigh.joined_ranks import (
    joined_places,
    largest_known,
    largest_node,
    part_later,
    sum_of_known,
    unseen_ranks,
    with_node_figures,
)
from weigh.measure.async_command import AsyncProcess
from weigh.measure.series import is_series_growing
from weigh.model.record import (
    RecordedNode,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
)
from weigh.units import KIB, Seconds, format_duration

# bytes of what starting the agents printed; only its last line is shown
_MOST_WORDS = 4 * KIB
_TICK = 0.02  # seconds between looks whether the agents have ended
_DECODER = msgspec.json.Decoder(RunMeasurement)


class PartReader:
    """Puts parts together from the lines of all nodes; damaged ones are skipped."""

    def __init__(self) -> None:
        # by node, the number of its newest part and the pieces that have come
        self._waiting: dict[bytes, tuple[int, dict[int, bytes]]] = {}
        self._rest = b""

    def feed(self, text: bytes) -> list[RunMeasurement]:
        """Return the parts that *text* completes."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        # the last piece is not a whole line yet
        found = (self._take(line) for line in lines)
        return [part for part in found if part is not None]

    def _take(self, line: bytes) -> RunMeasurement | None:
        words = line.split(b" ")
        # a line that a scheduler wrote, or a damaged one
        if len(words) != 5 or not all(word.isdigit() for word in words[1:4]):  # noqa: PLR2004 - see part_lines
            return None
        number, turn, count = map(int, words[1:4])
        newest, pieces = self._waiting.get(words[0], (number, {}))
        # one that lost a line will never be complete, and a newer one has all it had
        if number != newest:
            pieces = {}
        if number >= newest:
            self._waiting[words[0]] = number, pieces
        pieces[turn] = words[4]
        if len(pieces) < count:
            return None
        try:
            packed = binascii.a2b_base64(b"".join(pieces[i] for i in range(count)))
            return _DECODER.decode(zlib.decompress(packed))
        except (ValueError, KeyError, zlib.error, msgspec.MsgspecError):
            return None


class NodeAgents(AsyncProcess):
    """The agents of a job's nodes: the process that has started them is ours."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start them. Raises OSError."""
        # by node, its newest part and when its watch began, in seconds since the run
        # began, by this machine's clock alone
        self.parts: dict[str, RunMeasurement] = {}
        self.began: dict[str, Seconds] = {}
        self._reader = PartReader()
        self._words = b""
        super().__init__(argv, env)

    def read(self, current_time: Seconds) -> None:
        """Take what has arrived; *current_time* is the time since the run began."""
        lines, words = self.received()
        self._words = (self._words + words)[:_MOST_WORDS]
        for part in self._reader.feed(lines):
            name = part.nodes[0].name
            began = max(0.0, current_time - part.usage.wall_time)
            # a part may come late but never early: the earliest of the starts is the
            # nearest
            began = self.began[name] = min(began, self.began.get(name, began))
            self.parts[name] = part_later(part, began, heard=current_time)

    def finish(self, current_time: Seconds, patience: Seconds) -> None:
        """Let the agents end; wait for their last parts for *patience* at most."""
        # the agents end when their standard input is closed
        self.close_input()
        until = time.monotonic() + patience
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(_TICK)
            self.read(current_time)
        self.read(current_time)
        self.end()

    def complaint(self) -> str | None:
        """Return the last line that starting them printed, if any."""
        lines = self._words.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), None)


def with_nodes(
    measurement: RunMeasurement, parts: Sequence[RunMeasurement], own: str | None
) -> RunMeasurement:
    """Join a run's own measurement with the *parts* of its nodes.

    *own* is the node that the run's own processes are on; None if it is none of the
    job's, as on a login node. There, the agent has seen the run's own processes too.
    """
    ranks = tuple(replace(rank, host=own or rank.host) for rank in measurement.ranks)
    mine = replace(measurement, ranks=ranks)
    if own is not None:
        # its peak may have been before the agent came
        curve = replace(measurement.series, gpu_memory=())
        peak = measurement.usage.peak_memory
        node = RecordedNode(name=own, peak_memory=peak, series=curve)
        mine = replace(mine, nodes=(node,))
    nodes, ranks = joined_places((mine, *parts))
    top = largest_node(nodes)
    if top is None:
        return measurement
    cost = sum_of_known(one.monitor.cpu_time for one in (measurement, *parts))
    series = top.series or SampleSeries()
    usage = _usage_over_nodes(measurement, parts, own, nodes, ranks)
    return replace(
        measurement,
        nodes=nodes,
        ranks=ranks,
        series=series,
        usage=replace(usage, growing=is_series_growing(series.t, series.memory)),
        monitor=replace(measurement.monitor, cpu_time=cost),
    )


def unheard(
    joined: RunMeasurement, agents: NodeAgents, expected: int, current_time: Seconds
) -> tuple[str, ...]:
    """Return in words what was not measured of a job on *expected* nodes."""
    missing = []
    count = len(agents.parts)
    if count < expected:
        missing.append(f"{expected - count} of {expected} nodes sent no figures")
    for node in joined.nodes:
        if node.heard is not None and not node.final:
            ago = format_duration(max(0.0, current_time - node.heard))
            missing.append(f"{node.name} was last heard {ago} before the end")
    return (*missing, *unseen_ranks(joined.ranks))


def _usage_over_nodes(
    measurement: RunMeasurement,
    parts: Sequence[RunMeasurement],
    own: str | None,
    recorded_nodes: Sequence[RecordedNode],
    ranks: Sequence[RecordedRank],
) -> Usage:
    usage = measurement.usage
    usages = [usage, *(part.usage for part in parts)]
    # the run's own processes are seen by the agent too: the larger number has all
    processes: Counter[str] = Counter()
    names = (own or "", *(part.nodes[0].name for part in parts))
    for name, one in zip(names, usages, strict=True):
        processes[name] = max(processes[name], one.processes or 0)
    counted = {rank.pid for rank in measurement.ranks}
    # CPU time of ranks on this node is in the run's own already
    elsewhere = (rank.cpu_time for rank in ranks if rank.pid not in counted)
    joined = replace(
        usage,
        max_process_memory=largest_known(one.max_process_memory for one in usages),
        virtual_memory=largest_known(one.virtual_memory for one in usages),
        user_time=None,
        system_time=None,
        processes=processes.total(),
    )
    return with_node_figures(
        joined, recorded_nodes, sum_of_known((usage.cpu_time, *elsewhere))
    )
