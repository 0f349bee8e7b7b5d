"""Measure a job on all of its nodes: start an agent on each, and read its figures.

The agents' figures come as lines over the output of the command that started them, so
no folder has to be shared. The newest part of each node counts; a node that is lost
keeps its last one.
"""

import os
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from weigh.measure.node_part import Part, PartReader
from weigh.measure.ranks import step_order
from weigh.model.gpu import GpuUsage
from weigh.model.record import Measurement, Node, PeakMemory, Rank, Series, Usage
from weigh.units import KIB, Seconds, format_duration

_Number = TypeVar("_Number", int, float)
_CHUNK = 64 * KIB
_MOST_WORDS = 4 * KIB
_SHORTEST_MEAN = 0.1  # seconds, as in the measurement of one node
_WORTH_ASKING = 20  # samples


class HeardPart(msgspec.Struct, frozen=True):
    """A node's newest part, when it came and when its watch began.

    Both are seconds since the run began, by this machine's clock alone.
    """

    part: Part
    heard: Seconds
    began: Seconds


class NodeAgents:
    """The agents of a job's nodes, and the process ``pid`` that has started them."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start them. Raises OSError."""
        self.heard: dict[str, HeardPart] = {}
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

    def read(self, now: Seconds) -> None:
        """Take what has arrived; *now* is the time since the run began."""
        self._words = (self._words + _received(self._stderr))[:_MOST_WORDS]
        for part in self._reader.feed(_received(self._stdout)):
            began = now - part.elapsed
            before = self.heard.get(part.node)
            if before is not None:
                began = min(began, before.began)
            self.heard[part.node] = HeardPart(part, now, max(0.0, began))

    def finish(self, now: Seconds, patience: Seconds) -> None:
        """Let the agents end; wait for their last parts for *patience* at most."""
        os.close(self._stdin)
        self._stdin = -1
        until = time.monotonic() + patience
        came = select.poll()
        came.register(self._stdout, select.POLLIN)
        while not self._has_ended() and time.monotonic() < until:
            came.poll(20)
            self.read(now)
        self.read(now)
        with suppress(ProcessLookupError):
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


def _received(fd: int) -> bytes:
    """Return all that can be read without waiting."""
    text = b""
    with suppress(BlockingIOError):
        while chunk := os.read(fd, _CHUNK):
            text += chunk
    return text


def with_nodes(
    measured: Measurement, heard: Sequence[HeardPart], own: str | None
) -> Measurement:
    """Join a run's own measurement with what its nodes reported.

    *own* is the node that the run's own processes are on; None if it is none of the
    job's, as on a login node. There, the agent has seen the run's own processes too.
    """
    nodes = {one.part.node: _node(one) for one in heard}
    if own is not None:
        nodes[own] = _with_own(nodes.get(own) or Node(name=own), measured)
    ranks = _joined_ranks(measured.ranks, heard, own)
    for name, node in nodes.items():
        count = sum(rank.host == name for rank in ranks)
        nodes[name] = msgspec.structs.replace(node, ranks=count)
    ordered = tuple(nodes[name] for name in sorted(nodes, key=_natural))
    largest = max(ordered, key=_peak, default=None)
    if largest is None:
        return measured
    return msgspec.structs.replace(
        measured,
        nodes=ordered,
        ranks=ranks,
        series=largest.series or Series(),
        usage=_joined_usage(measured, heard, own, ordered, ranks),
        monitor=msgspec.structs.replace(
            measured.monitor,
            cpu_time=(measured.monitor.cpu_time or 0.0)
            + sum(one.part.agent_time for one in heard),
        ),
    )


def unheard(
    heard: Sequence[HeardPart], ranks: Sequence[Rank], expected: int, now: Seconds
) -> tuple[str, ...]:
    """Return in words what was not measured of a job on *expected* nodes."""
    missing = []
    if len(heard) < expected:
        missing.append(f"{expected - len(heard)} of {expected} nodes sent no figures")
    for one in sorted(heard, key=lambda one: _natural(one.part.node)):
        if not one.part.final:
            ago = format_duration(max(0.0, now - one.heard))
            missing.append(f"{one.part.node} was last heard {ago} before the end")
    return (*missing, *unseen_ranks(ranks))


def unseen_ranks(ranks: Sequence[Rank]) -> tuple[str, ...]:
    """Return in words which ranks were started and not seen, for each step."""
    seen: dict[str | None, int] = {}
    sizes: dict[str | None, int] = {}
    for rank in ranks:
        seen[rank.step] = seen.get(rank.step, 0) + 1
        sizes[rank.step] = max(sizes.get(rank.step, 0), rank.size or 0)
    return tuple(
        f"{sizes[step] - seen[step]} of {sizes[step]} ranks were not seen"
        + (f" (step {step})" if len(seen) > 1 and step is not None else "")
        for step in sorted(seen, key=step_order)
        if seen[step] < sizes[step]
    )


def _node(one: HeardPart) -> Node:
    part = one.part
    return Node(
        name=part.node,
        peak_memory=_later(part.peak, one.began),
        series=msgspec.structs.replace(
            part.series, t=tuple(at + one.began for at in part.series.t)
        ),
        final=part.final,
        heard=one.heard,
        gpus=part.gpus,
    )


def _later(peak: PeakMemory | None, began: Seconds) -> PeakMemory | None:
    if peak is None or peak.time is None:
        return peak
    return msgspec.structs.replace(peak, time=peak.time + began)


def _with_own(node: Node, measured: Measurement) -> Node:
    """Add what the run itself saw on this node before the agent came."""
    series, own = node.series or Series(), measured.series
    began = series.t[0] if series.t else float("inf")
    early = sum(at < began for at in own.t)
    peak = measured.usage.peak_memory
    if peak is not None and peak.value <= _peak(node):
        peak = node.peak_memory
    return msgspec.structs.replace(
        node,
        peak_memory=peak,
        series=Series(
            t=(*own.t[:early], *series.t),
            memory=(*own.memory[:early], *series.memory),
            cpu=(*own.cpu[:early], *series.cpu),
        ),
    )


def _joined_ranks(
    own: Sequence[Rank], heard: Sequence[HeardPart], host: str | None
) -> tuple[Rank, ...]:
    """Return each rank once, with the larger of two figures."""
    found: dict[tuple[str | None, int], Rank] = {}
    mine = [msgspec.structs.replace(one, host=host or one.host) for one in own]
    theirs = (_later_rank(rank, one.began) for one in heard for rank in one.part.ranks)
    for rank in (*mine, *theirs):
        key = rank.step, rank.rank
        before = found.get(key)
        if before is not None:
            rank = msgspec.structs.replace(  # noqa: PLW2901 - the same rank
                rank,
                peak_memory=max(rank.peak_memory or 0, before.peak_memory or 0) or None,
                cpu_time=_most(rank.cpu_time, before.cpu_time),
                start=_least(rank.start, before.start),
                wall_time=_most(rank.wall_time, before.wall_time),
            )
        found[key] = rank
    return tuple(found[key] for key in sorted(found, key=_rank_order))


def _later_rank(rank: Rank, began: Seconds) -> Rank:
    return msgspec.structs.replace(rank, start=(rank.start or 0.0) + began)


def _rank_order(key: tuple[str | None, int]) -> tuple[tuple[bool, int, str], int]:
    return step_order(key[0]), key[1]


def _joined_usage(
    measured: Measurement,
    heard: Sequence[HeardPart],
    own: str | None,
    nodes: Sequence[Node],
    ranks: Sequence[Rank],
) -> Usage:
    usage = measured.usage
    largest = max(nodes, key=_peak)
    processes = {one.part.node: one.part.processes for one in heard}
    processes[own or ""] = max(usage.processes or 0, processes.get(own or "", 0))
    counted = {rank.pid for rank in measured.ranks}
    elsewhere = [rank.cpu_time for rank in ranks if rank.pid not in counted]
    known = [seconds for seconds in (usage.cpu_time, *elsewhere) if seconds is not None]
    cpu_time = sum(known) if known else None
    wall = usage.wall_time
    total = sum(map(_peak, nodes))
    return msgspec.structs.replace(
        usage,
        peak_memory=largest.peak_memory,
        total_memory=total if len(nodes) > 1 and total else None,
        max_process_memory=_most(
            usage.max_process_memory, *(one.part.largest for one in heard)
        ),
        virtual_memory=_most(
            usage.virtual_memory, *(one.part.virtual for one in heard)
        ),
        cpu_time=cpu_time,
        user_time=None,
        system_time=None,
        cpus_used=None
        if cpu_time is None or wall < _SHORTEST_MEAN
        else cpu_time / wall,
        processes=sum(processes.values()),
        growing=_is_growing(largest.series),
        gpus=_joined_gpus((usage.gpus, *(node.gpus for node in nodes))),
    )


def _is_growing(series: Series | None) -> bool | None:
    if series is None or len(series.t) < _WORTH_ASKING:
        return None
    from weigh.estimate import growth  # noqa: PLC0415 - not for the shortest runs

    return growth.is_growing(series.t, series.memory)


def _joined_gpus(seen: Sequence[tuple[GpuUsage, ...]]) -> tuple[GpuUsage, ...]:
    """Return each GPU once, as who saw more of the job on it."""
    found: dict[str, GpuUsage] = {}
    for gpu in (gpu for gpus in seen for gpu in gpus):
        before = found.get(gpu.uuid)
        if before is None or (gpu.job_peak or 0) > (before.job_peak or 0):
            found[gpu.uuid] = gpu
    return tuple(found.values())


def _peak(node: Node) -> int:
    return node.peak_memory.value if node.peak_memory else 0


def _natural(name: str) -> tuple[int, str]:
    """Return a key that sorts cn9 before cn10."""
    digits = "".join(c for c in name if c.isdecimal() and c.isascii())[:18]
    return int(digits or 0), name


def _least(*values: _Number | None) -> _Number | None:
    return min((value for value in values if value is not None), default=None)


def _most(*values: _Number | None) -> _Number | None:
    return max((value for value in values if value is not None), default=None)
