"""Measure a job's processes on one node: ``python -m weigh.measure.node_agent``.

``weigh run`` has the scheduler start one such process per node of the job. It samples
all of the job's processes there, and writes what it found to its standard output until
its standard input is closed. It must be the first to go when memory is short, and never
a reason for the job to wait.

The lines of several nodes arrive on one stream, in any order, and a scheduler may cut
and mix longer ones. A part is therefore compressed and sent in pieces of some 700
characters, each one line and one write: ``node number piece pieces text``.
"""

import binascii
import os
import select
import signal
import sys
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if __name__ == "__main__":
    # msgspec tries to import it, and it takes 1.4 MiB of each node
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]

import msgspec
from msgspec.structs import replace

from weigh.measure.async_command import OWN
from weigh.measure.ranks import RankTracker
from weigh.measure.watcher import TreeWatcher, start_gpu_sampler
from weigh.model.gpu import GpuUsage
from weigh.model.record import PeakMemory, RecordedRank, SampleSeries
from weigh.probe.job_members import JobMembers
from weigh.probe.proc import ProcTree
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.gpu_sampler import GpuSampler

# what starts an agent, and the agent itself, have in their environment; the second is
# glibc's: no more memory from the kernel than is needed
ENVIRONMENT = {OWN: "1", "MALLOC_TOP_PAD_": "0"}

_NICE = 10  # as of nice(1)
_FIRST_TO_GO = b"1000"  # of the processes that the kernel may kill for memory
_RISE = 1.02  # of the peak, worth a part
_FIRST = 0.3  # seconds: a job may be cancelled early
_SHORTEST, _LONGEST = 1.0, 10.0  # seconds between two parts
_LAST_WORDS = 1.0  # seconds for the final part where its reader is slow
_POINTS = 200  # of a node's series
_PIECE = 700  # characters of a line, which stays below the smallest buffer on the way


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is started with, as JSON in its first argument.

    ``node`` is the variable with the node's name; ``same`` and ``prefix`` identify the
    job's processes (see JobMembers). ``excluded`` are process ids of weigh on the node
    with the host name ``host``.
    """

    node: str
    same: tuple[str, ...]  # variables that are the same in all processes of the job
    prefix: str
    interval: Seconds = 0.05  # seconds
    host: str = ""
    excluded: tuple[int, ...] = ()


class NodePart(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a job on one node, as seen for ``elapsed`` seconds.

    ``final`` is set on the last part of a node. ``largest`` is the peak of its largest
    process, ``virtual`` the largest address space mapped at once. ``agent_time`` and
    ``agent_memory`` are the cost of watching, in CPU seconds and bytes.
    """

    node: str
    elapsed: Seconds
    final: bool = False
    peak: PeakMemory | None = None
    series: SampleSeries = SampleSeries()
    ranks: tuple[RecordedRank, ...] = ()
    gpus: tuple[GpuUsage, ...] = ()
    largest: Bytes | None = None
    virtual: Bytes | None = None
    looks: int = 0
    processes: int = 0
    agent_time: Seconds = 0.0
    agent_memory: Bytes | None = None


def part_lines(node_part: NodePart, number: int) -> Iterator[bytes]:
    """Return the lines of a node's part; *number* grows with each part."""
    packed = binascii.b2a_base64(
        zlib.compress(msgspec.json.encode(node_part)), newline=False
    )
    pieces = -(-len(packed) // _PIECE)
    name = node_part.node.encode()
    for turn in range(pieces):
        piece = packed[turn * _PIECE : (turn + 1) * _PIECE]
        yield b"%s %d %d %d %s\n" % (name, number, turn, pieces, piece)


def is_own_machine(node: str) -> bool:
    """Return whether a node is a machine of its own, with a tmpfs of its own.

    Several nodes on one machine, as for tests, have names that are not the machine's.
    """
    return os.uname().nodename.partition(".")[0] == node.partition(".")[0]


class NodeWatcher:
    """Watches a job's processes on one node: as its agent, or as a rank of it."""

    def __init__(
        self,
        node: str,
        tree: ProcTree,
        interval: Seconds,
        gpus: "GpuSampler | None" = None,
    ) -> None:
        self.node = node
        self.ranks = RankTracker(tree)
        # the ranks are not launched from here, so no memory can be a launcher's
        self.tree = TreeWatcher(
            tree,
            interval,
            ranks=self.ranks,
            gpus=gpus,
            is_alone=is_own_machine(node),
            is_brief=True,
        )

    def part(self, *, final: bool) -> NodePart:
        """Return all that is known of this node."""
        if final:
            self.tree.finish()
        usage = self.tree.usage(self.tree.elapsed(), None)
        return NodePart(
            node=self.node,
            elapsed=usage.wall_time,
            final=final,
            peak=usage.peak_memory,
            # which of the job's GPUs its columns would be is not known elsewhere
            series=replace(self.tree.series(_POINTS), gpu_memory=()),
            ranks=tuple(replace(rank, host=self.node) for rank in self.tree.ranks()),
            largest=usage.max_process_memory,
            virtual=usage.virtual_memory,
            gpus=usage.gpus,
            looks=self.tree.looks,
            processes=self.tree.tree.seen,
            agent_time=time.process_time(),
            agent_memory=self.tree.cost().memory,
        )


class NodeAgent:
    """The watcher of this node, and what it has reported."""

    def __init__(self, options: AgentOptions, env: Mapping[str, str]) -> None:
        node = env.get(options.node) or os.uname().nodename
        same = options.same
        if is_own_machine(node):  # MPICH hands its first node's variable to all
            same = tuple(name for name in same if name != options.node)
        members = JobMembers(
            os.getpid(), env, same=same, prefix=options.prefix, mark=OWN
        )
        if options.host == os.uname().nodename:
            members.excluded = frozenset(options.excluded)
        gpus = start_gpu_sampler(options.interval, members.pids)
        self._watcher = NodeWatcher(node, members, options.interval, gpus)
        self._number = 0
        # so that the first part is due after _FIRST
        self._reported: Seconds = _FIRST - _SHORTEST
        self._reported_peak = self._reported_ranks = 0

    def look(self) -> Seconds:
        """Take a sample; return the seconds until the next one."""
        return self._watcher.tree.look()

    def is_idle(self) -> bool:
        """Return whether no rank of the job is left on this node."""
        return not self._watcher.ranks.is_any_left()

    def is_due(self) -> bool:
        """Return whether there is something new to report."""
        tree = self._watcher.tree
        rose = tree.tracker.best > self._reported_peak * _RISE
        came = self._watcher.ranks.count() > self._reported_ranks
        # a new peak or rank is sent soon, everything else seldom
        pause = _SHORTEST if rose or came else _LONGEST
        return tree.elapsed() - self._reported >= pause

    def report(self, *, final: bool = False) -> None:
        """Write a part to standard output."""
        part = self._watcher.part(final=final)
        self._reported = part.elapsed
        self._reported_peak = self._watcher.tree.tracker.best
        self._reported_ranks = self._watcher.ranks.count()
        self._number += 1
        until = time.monotonic() + (_LAST_WORDS if final else 0.0)
        # if one line fails, the others are of no use: a reader needs all pieces
        for line in part_lines(part, self._number):
            if not _write_whole_line(line, until):
                return


def _write_whole_line(line: bytes, until: Seconds) -> bool:
    """Write one line as a whole; False if nobody reads it in time."""
    while True:
        try:
            # one write per line: a scheduler mixes the lines of nodes, but not within a
            # write
            os.write(1, line)
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        except OSError:  # its reader has gone
            return False
        else:
            return True


def _step_back() -> None:
    """Leave the processor and the memory of this node to the job."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:
        file.write(_FIRST_TO_GO)


def run_node_agent(argv: list[str], env: Mapping[str, str]) -> int:
    """Watch until standard input is closed; return the exit code."""
    terms: list[int] = []
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    # with an inherited SIG_IGN the kernel would discard exit statuses
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # a signal to the job may end it, or ask it for a checkpoint: it is watched on
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    _step_back()
    # a reader that stands still must not stop the watch
    os.set_blocking(1, False)
    agent = NodeAgent(msgspec.json.decode(argv[0], type=AgentOptions), env)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    reported = 0
    wait = agent.look()
    while not _is_input_closed(poll, wait):
        wait = agent.look()
        # TERM may be for the job's processes: go on while one of them lives
        if terms and agent.is_idle():
            break
        if agent.is_due() or len(terms) > reported:  # KILL may follow
            reported = len(terms)
            agent.report()
    agent.look()
    agent.report(final=True)
    return 0


def _is_input_closed(poll: select.poll, wait: Seconds) -> bool:
    """Sleep; return whether standard input was closed meanwhile."""
    return any(not os.read(fd, 4096) for fd, _event in poll.poll(wait * 1000))


if __name__ == "__main__":
    sys.exit(run_node_agent(sys.argv[1:], os.environ))
