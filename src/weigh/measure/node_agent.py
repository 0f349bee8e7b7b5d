"""Measure a job's processes on one node: ``python -m weigh.measure.node_agent``.

``weigh run`` has the scheduler start one such process per node of the job. It samples
all of the job's processes there, and writes what it found to its standard output until
its standard input is closed. It must be the first to go when memory is short, and never
a reason for the job to wait.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

if __name__ == "__main__":
    # msgspec tries to import it, and it takes 1.4 MiB of each node
    sys.modules.setdefault("typing_extensions", None)  # type: ignore[arg-type]

import msgspec

from weigh.measure.async_command import OWN
from weigh.measure.node_part import NodePart, is_own_machine, part_lines
from weigh.measure.peak import PeakTracker
from weigh.measure.ranks import RankTracker
from weigh.measure.sampler import (
    RunSampler,
    peak_in_samples,
    start_gpu_sampler,
    thin_series,
)
from weigh.probe.job_members import JobMembers
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh.model.gpu import GpuUsage

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


class NodeAgent:
    """Samples the job's processes on this node."""

    def __init__(self, options: AgentOptions, env: Mapping[str, str]) -> None:
        self._node = env.get(options.node) or os.uname().nodename
        same = options.same
        if is_own_machine(self._node):  # MPICH hands its first node's variable to all
            same = tuple(name for name in same if name != options.node)
        self._tree = JobMembers(
            os.getpid(), env, same=same, prefix=options.prefix, mark=OWN
        )
        if options.host == os.uname().nodename:
            self._tree.excluded = frozenset(options.excluded)
        # an agent launches nothing, so no memory can be a launcher's
        self._tracker = PeakTracker(0)
        self._ranks = RankTracker(self._tree)
        self._sampler = RunSampler(
            self._tree,
            self._tracker,
            None,
            options.interval,
            ranks=self._ranks,
            is_alone=is_own_machine(self._node),
            is_brief=True,
        )
        self._gpus = start_gpu_sampler(options.interval, self._tree.pids)
        self._number = 0
        # so that the first part is due after _FIRST
        self._reported: Seconds = _FIRST - _SHORTEST
        self._reported_peak = self._reported_ranks = 0

    def look(self) -> Seconds:
        """Take a sample; return the seconds until the next one."""
        return self._sampler.look()

    def is_idle(self) -> bool:
        """Return whether no rank of the job is left on this node."""
        return not self._ranks.is_any_left()

    def is_due(self) -> bool:
        """Return whether there is something new to report."""
        since = self._sampler.elapsed() - self._reported
        rose = self._tracker.best > self._reported_peak * _RISE
        came = self._ranks.count() > self._reported_ranks
        # a new peak or rank is sent soon, everything else seldom
        return since >= (_SHORTEST if rose or came else _LONGEST)

    def report(self, *, final: bool = False) -> None:
        """Write a part to standard output."""
        if final:
            self._sampler.finish()
        self._reported = self._sampler.elapsed()
        self._reported_peak = self._tracker.best
        self._reported_ranks = self._ranks.count()
        self._number += 1
        until = time.monotonic() + (_LAST_WORDS if final else 0.0)
        # if one line fails, the others are of no use: a reader needs all pieces
        for line in part_lines(self.part(final=final), self._number):
            if not _write_whole_line(line, until):
                return

    def part(self, *, final: bool) -> NodePart:
        """Return all that is known of this node."""
        own = self._tree.reading(os.getpid())
        gpus: tuple[GpuUsage, ...] = ()
        if self._gpus is not None:
            gpus = self._gpus.stop() if final else self._gpus.usages()
        peak = self._tracker.peak(self._sampler.method)
        samples = peak_in_samples(self._sampler.samples, peak)
        return NodePart(
            node=self._node,
            elapsed=self._sampler.elapsed(),
            final=final,
            peak=peak,
            series=thin_series(samples, _POINTS),
            ranks=tuple(
                msgspec.structs.replace(rank, host=self._node)
                for rank in self._sampler.ranks(gpus)
            ),
            largest=self._tracker.max_process(),
            virtual=self._tracker.virtual or None,
            gpus=gpus,
            looks=self._sampler.looks,
            processes=self._tree.seen,
            agent_time=time.process_time(),
            agent_memory=None if own is None else own.peak,
        )


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
