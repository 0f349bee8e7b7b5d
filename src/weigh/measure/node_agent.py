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

from weigh.measure.memory.holding import material_change
from weigh.measure.watcher import (
    TreeWatcher,
    WatchedRun,
    kernel_measurement,
    start_gpu_sampler,
)
from weigh.model.record import RecordedNode, RunMeasurement, SampleSeries, Usage
from weigh.probe.job_members import OWN, JobMembers, MemberSigns
from weigh.probe.proc import ProcTree
from weigh.units import Bytes, Seconds

if TYPE_CHECKING:
    from weigh.measure.gpu_sampler import TreeGpuAccounts

# glibc's, for an agent and what starts it: no more memory from the kernel than needed
ENVIRONMENT = {"MALLOC_TOP_PAD_": "0"}

_NICE = 10  # as of nice(1)
_FIRST_TO_GO = b"1000"  # of the processes that the kernel may kill for memory
_FIRST = 0.3  # seconds: a job may be cancelled early
# seconds between two parts; a reader that is slow may take the final one as long
_SHORTEST, _LONGEST = 1.0, 10.0
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


def watch_node(
    node: str, tree: ProcTree, interval: Seconds, gpus: "TreeGpuAccounts | None" = None
) -> TreeWatcher:
    """Watch a job's processes on one node: as its agent, or as a rank of it."""
    # the ranks are not launched from here, so no memory can be a launcher's
    run = WatchedRun(gpus=gpus, is_alone=is_own_machine(node), is_brief=True)
    return TreeWatcher(tree, interval, run)


def node_part(node: str, watcher: TreeWatcher, *, final: bool) -> RunMeasurement:
    """Return all that is known of a node, in seconds since its watch began.

    The last part of a node is *final*.
    """
    if final:
        watcher.finish()
    known = kernel_measurement(Usage(watcher.elapsed()), watcher.started)
    seen = watcher.joined(known)
    recorded_node = RecordedNode(
        name=node,
        peak_memory=seen.usage.peak_memory,
        series=seen.series,
        final=final,
        gpus=seen.usage.gpus,
    )
    return replace(
        seen,
        nodes=(recorded_node,),
        ranks=tuple(replace(rank, host=node) for rank in seen.ranks),
        # they are the node's
        usage=replace(seen.usage, peak_memory=None, gpus=()),
        series=SampleSeries(),
    )


def part_lines(part: RunMeasurement, number: int) -> Iterator[bytes]:
    """Return the lines of a node's part; *number* grows with each part."""
    packed = binascii.b2a_base64(
        zlib.compress(msgspec.json.encode(part)), newline=False
    )
    pieces = -(-len(packed) // _PIECE)
    name = part.nodes[0].name.encode()
    for turn in range(pieces):
        piece = packed[turn * _PIECE : (turn + 1) * _PIECE]
        yield b"%s %d %d %d %s\n" % (name, number, turn, pieces, piece)


def is_own_machine(node: str) -> bool:
    """Return whether a node is a machine of its own, with a tmpfs of its own.

    Several nodes on one machine, as for tests, have names that are not the machine's.
    """
    return os.uname().nodename.partition(".")[0] == node.partition(".")[0]


class NodeAgent:
    """The watcher of this node, and what it has reported."""

    def __init__(self, options: AgentOptions, env: Mapping[str, str]) -> None:
        self._node = node = env.get(options.node) or os.uname().nodename
        same = options.same
        if is_own_machine(node):  # MPICH hands its first node's variable to all
            same = tuple(name for name in same if name != options.node)
        signs = MemberSigns(same=same, prefix=options.prefix, mark=OWN)
        members = JobMembers(env, signs)
        if options.host == os.uname().nodename:
            members.excluded = frozenset(options.excluded)
        gpus = start_gpu_sampler(options.interval, members.pids)
        self.watcher = watch_node(node, members, options.interval, gpus)
        self.watcher.call_at(self._report_news, _FIRST)
        self._number = 0
        # of the last part: when it was sent, the peak and the ranks in it
        self._reported = (0.0, 0, 0)

    def _report_news(self) -> Seconds:
        """Report a new peak or rank soon, everything else seldom."""
        now, peak, ranks = self._news()
        sent, sent_peak, sent_ranks = self._reported
        has_grown = peak > sent_peak + material_change(sent_peak)
        has_news = has_grown or ranks > sent_ranks
        if has_news or now - sent >= _LONGEST:
            self.report()
        return _SHORTEST

    def _news(self) -> tuple[Seconds, Bytes, int]:
        watcher = self.watcher
        return watcher.elapsed(), watcher.tracker.best, watcher.rank_count()

    def report(self, *, final: bool = False) -> None:
        """Write a part to standard output."""
        self._reported = self._news()
        self._number += 1
        part = node_part(self._node, self.watcher, final=final)
        until = time.monotonic() + (_SHORTEST if final else 0.0)
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
            return os.write(1, line) > 0
        except BlockingIOError:
            if time.monotonic() >= until:
                return False
            time.sleep(0.01)
        except OSError:  # its reader has gone
            return False


def _step_back() -> None:
    """Leave the processor and the memory of this node to the job."""
    with suppress(OSError):
        os.nice(_NICE)
    with suppress(OSError), open("/proc/self/oom_score_adj", "wb", 0) as file:
        file.write(_FIRST_TO_GO)


def run_node_agent(argv: list[str], env: Mapping[str, str]) -> int:
    """Watch until standard input is closed; return the exit code."""
    terms: list[int] = []
    # a signal to the job may end it, or ask it for a checkpoint: it is watched on
    others = signal.valid_signals() - {signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, others)
    signal.signal(signal.SIGTERM, lambda number, _: terms.append(number))
    _step_back()
    # a reader that stands still must not stop the watch
    os.set_blocking(1, False)
    agent = NodeAgent(msgspec.json.decode(argv[0], type=AgentOptions), env)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    watcher, reported = agent.watcher, 0
    watcher.look_if_due()
    while not _is_input_closed(poll, max(0.0, watcher.pause())):
        watcher.look_if_due()
        # TERM may be for the job's processes: go on while one of them lives
        if terms and not watcher.is_any_rank_left():
            break
        if len(terms) > reported:  # KILL may follow
            reported = len(terms)
            agent.report()
    watcher.look()
    agent.report(final=True)
    return 0


def _is_input_closed(poll: select.poll, wait: Seconds) -> bool:
    """Sleep; return whether standard input was closed meanwhile."""
    return any(not os.read(fd, 4096) for fd, _event in poll.poll(wait * 1000))


if __name__ == "__main__":
    sys.exit(run_node_agent(sys.argv[1:], os.environ))
