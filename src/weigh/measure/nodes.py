"""Measure a job on all of its nodes: start an agent on each, and read its figures.

The agents' figures come as lines over the output of the command that started them, so
no folder has to be shared. The newest part of each node counts; a node that is lost
keeps its last one.
"""

import binascii
import os
import select
import signal
import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from weigh.joined_ranks import (
    counted_ranks,
    joined_nodes,
    joined_ranks,
    largest_known,
    largest_node,
    name_order,
    node_later,
    sum_of_known,
    unseen_ranks,
    with_node_figures,
)
from weigh.measure.node_agent import NodePart
from weigh.measure.series import is_series_growing
from weigh.model.record import (
    RecordedNode,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
)
from weigh.units import KIB, Seconds, format_duration

_CHUNK = 64 * KIB  # bytes per read
# bytes of what starting the agents printed; only its last line is shown
_MOST_WORDS = 4 * KIB
_MOST_WAITING = 3  # unfinished parts of one node: an older one lost a line
_DECODER = msgspec.json.Decoder(NodePart)


class PartReader:
    """Puts parts together from the lines of all nodes; damaged ones are skipped."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[int, dict[int, bytes]]] = {}
        self._rest = b""

    def feed(self, text: bytes) -> list[NodePart]:
        """Return the parts that *text* completes."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        # the last piece is not a whole line yet
        found = (self._take(line) for line in lines)
        return [part for part in found if part is not None]

    def _take(self, line: bytes) -> NodePart | None:
        words = line.split(b" ")
        # a line that a scheduler wrote, or a damaged one
        if len(words) != 5 or not all(word.isdigit() for word in words[1:4]):  # noqa: PLR2004 - see part_lines
            return None
        number, turn, count = map(int, words[1:4])
        waiting = self._waiting.setdefault(words[0], {})
        pieces = waiting.setdefault(number, {})
        pieces[turn] = words[4]
        if len(pieces) < count:
            # a part that lost a line will never be complete
            for old in sorted(waiting)[:-_MOST_WAITING]:
                del waiting[old]
            return None
        del waiting[number]
        try:
            packed = binascii.a2b_base64(b"".join(pieces[i] for i in range(count)))
            return _DECODER.decode(zlib.decompress(packed))
        except (ValueError, KeyError, zlib.error, msgspec.MsgspecError):
            return None


class ReceivedPart(msgspec.Struct, frozen=True):
    """A node's newest part, when it came and when its watch began.

    Both are seconds since the run began, by this machine's clock alone.
    """

    part: NodePart
    heard: Seconds
    began: Seconds


class NodeAgents:
    """The agents of a job's nodes, and the process ``pid`` that has started them."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start them. Raises OSError."""
        # the newest part of each node, by its name
        self.heard: dict[str, ReceivedPart] = {}
        self._reader = PartReader()
        self._words = b""
        stdin, self._stdin = os.pipe()
        self._stdout, stdout = os.pipe()
        self._stderr, stderr = os.pipe()
        os.set_blocking(self._stdout, False)
        os.set_blocking(self._stderr, False)
        try:
            self.pid = os.posix_spawnp(
                argv[0],
                list(argv),
                env,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, stdin, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                ],
                setsid=True,  # Ctrl-C and signals to the job's group are not for it
                setsigmask=(),
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            self._close()
            raise
        finally:
            for fd in (stdin, stdout, stderr):
                os.close(fd)

    def read(self, current_time: Seconds) -> None:
        """Take what has arrived; *current_time* is the time since the run began."""
        self._words = (self._words + _received(self._stderr))[:_MOST_WORDS]
        for part in self._reader.feed(_received(self._stdout)):
            began = current_time - part.measured.usage.wall_time
            before = self.heard.get(part.node)
            if before is not None:
                # a part may come late but never early: the earliest of the starts is
                # the nearest
                began = min(began, before.began)
            self.heard[part.node] = ReceivedPart(part, current_time, max(0.0, began))

    def finish(self, current_time: Seconds, patience: Seconds) -> None:
        """Let the agents end; wait for their last parts for *patience* at most."""
        # the agents end when their standard input is closed
        os.close(self._stdin)
        self._stdin = -1
        until = time.monotonic() + patience
        came = select.poll()
        came.register(self._stdout, select.POLLIN)
        while not self._has_ended() and time.monotonic() < until:
            came.poll(20)
            self.read(current_time)
        self.read(current_time)
        if not self._has_ended():  # once it is reaped, the id may be another's
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # the run's loop may have reaped it
            os.waitpid(self.pid, 0)
        self._close()

    def complaint(self) -> str | None:
        """Return the last line that starting them printed, if any."""
        lines = self._words.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), None)

    def _has_ended(self) -> bool:
        try:
            flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
            return os.waitid(os.P_PID, self.pid, flags) is not None
        except ChildProcessError:
            return True

    def _close(self) -> None:
        for fd in (self._stdin, self._stdout, self._stderr):
            if fd >= 0:
                os.close(fd)


def _received(descriptor: int) -> bytes:
    """Return all that can be read without waiting."""
    text = b""
    with suppress(BlockingIOError):
        while chunk := os.read(descriptor, _CHUNK):
            text += chunk
    return text


def with_nodes(
    measurement: RunMeasurement, heard: Sequence[ReceivedPart], own: str | None
) -> RunMeasurement:
    """Join a run's own measurement with what its nodes reported.

    *own* is the node that the run's own processes are on; None if it is none of the
    job's, as on a login node. There, the agent has seen the run's own processes too.
    """
    found = [recorded_node(one) for one in heard]
    if own is not None:
        found.append(_node_before_agent(own, measurement, found))
    mine = (replace(rank, host=own or rank.host) for rank in measurement.ranks)
    # an agent's times are since its own start
    theirs = (
        replace(rank, start=(rank.start or 0.0) + one.began)
        for one in heard
        for rank in one.part.measured.ranks
    )
    ranks = joined_ranks((*mine, *theirs))
    nodes = counted_ranks(joined_nodes(found), ranks)
    top = largest_node(nodes)
    if top is None:
        return measurement
    costs = (measurement, *(one.part.measured for one in heard))
    cost = sum_of_known(one.monitor.cpu_time for one in costs)
    return replace(
        measurement,
        nodes=nodes,
        ranks=ranks,
        series=top.series or SampleSeries(),
        usage=_usage_over_nodes(measurement, heard, own, nodes, ranks),
        monitor=replace(measurement.monitor, cpu_time=cost),
    )


def _node_before_agent(
    name: str, measurement: RunMeasurement, found: Sequence[RecordedNode]
) -> RecordedNode:
    """Return a run's own node with its peak, and its curve until the agent came."""
    starts = [one.series.t[:1] for one in found if one.name == name and one.series]
    began = min((at for start in starts for at in start), default=float("inf"))
    own = measurement.series
    early = sum(at < began for at in own.t)
    return RecordedNode(
        name=name,
        peak_memory=measurement.usage.peak_memory,
        series=SampleSeries(
            t=own.t[:early], memory=own.memory[:early], cpu=own.cpu[:early]
        ),
    )


def unheard(
    heard: Sequence[ReceivedPart],
    ranks: Sequence[RecordedRank],
    expected: int,
    current_time: Seconds,
) -> tuple[str, ...]:
    """Return in words what was not measured of a job on *expected* nodes."""
    missing = []
    if len(heard) < expected:
        missing.append(f"{expected - len(heard)} of {expected} nodes sent no figures")
    for one in sorted(heard, key=lambda one: name_order(one.part.node)):
        if not one.part.final:
            ago = format_duration(max(0.0, current_time - one.heard))
            missing.append(f"{one.part.node} was last heard {ago} before the end")
    return (*missing, *unseen_ranks(ranks))


def recorded_node(one: ReceivedPart) -> RecordedNode:
    """Return a node as its newest part shows it, in the times of the run."""
    usage = one.part.measured.usage
    node = RecordedNode(
        name=one.part.node,
        peak_memory=usage.peak_memory,
        series=one.part.measured.series,
        final=one.part.final,
        gpus=usage.gpus,
    )
    return replace(node_later(node, one.began), heard=one.heard)


def _usage_over_nodes(
    measurement: RunMeasurement,
    heard: Sequence[ReceivedPart],
    own: str | None,
    recorded_nodes: Sequence[RecordedNode],
    ranks: Sequence[RecordedRank],
) -> Usage:
    usage = measurement.usage
    usages = [usage, *(one.part.measured.usage for one in heard)]
    # the run's own processes are seen by the agent too: the larger number has all
    processes: Counter[str] = Counter()
    for name, one in zip(
        (own or "", *(h.part.node for h in heard)), usages, strict=True
    ):
        processes[name] = max(processes[name], one.processes or 0)
    counted = {rank.pid for rank in measurement.ranks}
    # CPU time of ranks on this node is in the run's own already
    elsewhere = (rank.cpu_time for rank in ranks if rank.pid not in counted)
    top = largest_node(recorded_nodes)
    series = (top and top.series) or SampleSeries()
    joined = replace(
        usage,
        max_process_memory=largest_known(one.max_process_memory for one in usages),
        virtual_memory=largest_known(one.virtual_memory for one in usages),
        user_time=None,
        system_time=None,
        processes=processes.total(),
        growing=is_series_growing(series.t, series.memory),
    )
    return with_node_figures(
        joined, recorded_nodes, sum_of_known((usage.cpu_time, *elsewhere))
    )
