"""Measure what a launcher starts outside of weigh's own process tree.

A scheduler's own launcher has the daemons start the ranks, on this node too. Where a
process of its name stays below weigh, an agent is started on each node of the job.
What launchers start elsewhere by other means is reported as not measured.
"""

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from weigh.lazy_modules import lazy_module
from weigh.model.record import RunMeasurement
from weigh.regular_file import file_head
from weigh.units import Seconds

if TYPE_CHECKING:
    from weigh import joined_ranks, schedulers
    from weigh.estimate import growth
    from weigh.measure import async_command, node_agent
    from weigh.measure.async_command import AsyncCommand, NodeAgents
    from weigh.measure.watcher import TreeWatcher
    from weigh.probe import proc
else:  # each is imported when it is first used
    joined_ranks = lazy_module("weigh.joined_ranks")
    async_command = lazy_module("weigh.measure.async_command")
    node_agent = lazy_module("weigh.measure.node_agent")
    growth = lazy_module("weigh.estimate.growth")
    proc = lazy_module("weigh.probe.proc")
    schedulers = lazy_module("weigh.schedulers")


_TICK = 0.1  # seconds between looks for launchers in a job
_SLOW_TICK = 0.5  # elsewhere, and to read what agents send
_LAUNCHED_AFTER = 0.2  # seconds; a launcher that lives longer starts ranks
_MANY_LAUNCHERS = 3  # short ones, one after another
_PATIENCE = 2.0  # seconds for the agents' last figures
_SHORT_PATIENCE = 0.3  # where a signal asked weigh to end
_FIRST_QUERY, _LONGEST_PAUSE = 1.0, 60.0  # seconds between queries for the job
_QUERY_PATIENCE = 10.0
_MPI = frozenset(
    ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun", "prun", "hydra")
)
_REMOTE = frozenset(("ssh", "rsh"))  # as children of one of _MPI
_ALWAYS_REMOTE = frozenset(("pdsh", "clush"))


class NodeWatch:
    """Looks for launchers below weigh; starts the agents, and joins their figures."""

    def __init__(
        self, env: Mapping[str, str], interval: Seconds, notify: Callable[[str], None]
    ) -> None:
        self._env = env
        self._interval = interval
        self._notify = notify
        self._starters = schedulers.starters_of(env)
        self._starter = ""
        self._steps = schedulers.steps_of(env)
        self._nodes = self._steps.nodes_of(env) if self._steps else None
        # of live processes, as ids are used again: how many looks saw each
        self._seen: dict[int, int] = {}
        self._launchers: dict[int, Seconds] = {}  # process id: when it was met
        self._ended: list[Seconds] = []  # when a launcher was last seen
        self._looked_at: Seconds = 0.0
        self._met = 0
        self._agents: NodeAgents | None = None
        self._query: AsyncCommand | None = None
        self._query_at = _FIRST_QUERY
        self._remote: str | None = None
        self._trouble: str | None = None

    @property
    def has_launched(self) -> bool:
        """Return whether the task has started processes on other nodes, perhaps."""
        return bool(self._launchers or self._agents or self._remote)

    def look(self, run: "TreeWatcher") -> Seconds:
        """Look for launchers; return the seconds until the next call."""
        now = run.elapsed()
        if self._agents is not None:
            # agents that have all sent something see all launches that follow. Until
            # the last one has, a launcher that is there is no launch that was missed
            have_all_sent = len(self._agents.parts) >= (self._nodes or 1)
            self._agents.read(now)
            if have_all_sent:
                return _SLOW_TICK
        self._meet(run, now)
        if self._agents is not None:
            return _SLOW_TICK if self._agents.parts else _TICK
        lived = [now - met for met in self._launchers.values()]
        is_on = max(lived, default=0.0) >= _LAUNCHED_AFTER
        if (is_on or self._met >= _MANY_LAUNCHERS) and self._trouble is None:
            self._start(run, now)
        return _SLOW_TICK if self._nodes is None and not self._launchers else _TICK

    def joined(self, measurement: RunMeasurement) -> RunMeasurement:
        """Return the measurement so far, with the figures of all nodes so far."""
        if self._agents is None or not self._agents.parts:
            return measurement
        parts = tuple(self._agents.parts.values())
        joined = joined_ranks.with_nodes(measurement, parts, self._own())
        series = joined.series
        growing = growth.is_memory_growing(series.t, series.memory)
        return replace(joined, usage=replace(joined.usage, growing=growing))

    def finish(self, measurement: RunMeasurement) -> RunMeasurement:
        """Let the agents end; return the measurement of all nodes."""
        if self._query is not None:
            self._query.end()
        if self._agents is None:
            return replace(measurement, missing=self._alone())
        # after a signal, KILL may follow soon: the record has to be written before
        asked = measurement.end_signal is not None
        now = measurement.usage.wall_time
        self._agents.finish(now, _SHORT_PATIENCE if asked else _PATIENCE)
        if not self._agents.parts:
            why = self._agents.complaint() or "they sent nothing"
            self._notify(f"no figures of what {self._starter} started: {why}")
            return replace(measurement, missing=(self._not_measured(),))
        joined = self.joined(measurement)
        heard, expected = len(self._agents.parts), self._nodes or 1
        missing = joined_ranks.unmeasured_nodes(joined, heard, expected, now)
        ready = max(self._agents.began.values())
        ended = [*self._ended, *(self._looked_at for _ in self._launchers)]
        early = sum(at < ready for at in ended)
        if joined.ranks:  # of one launch at least, however late its figures came
            early = min(early, len(ended) - 1)
        if early:
            what = "1 launch" if early == 1 else f"{early} launches"
            by = f"{what} by {self._starter}"
            missing = (*missing, f"{by} ended before any could be measured")
        return replace(joined, missing=missing)

    def _meet(self, run: "TreeWatcher", current_time: Seconds) -> None:
        """Read the names of processes: of each as it is met, and later again.

        A process that was just forked has its parent's name until it executes its
        program, which a script may do late: it is read at looks 1, 2, 4, 8...
        """
        self._seen = {pid: self._seen.get(pid, 0) + 1 for pid in run.pids()}
        for pid in self._launchers.keys() - self._seen.keys():
            del self._launchers[pid]
            self._ended.append(self._looked_at)
        self._looked_at = current_time
        for pid, looks in self._seen.items():
            if pid in self._launchers or looks & (looks - 1):
                continue
            name = _process_command_name(pid)
            if (
                # a launcher that forks itself is one launch
                name in self._starters
                and _process_command_name(_parent_of(pid)) != name
            ):
                self._starter = name
                self._launchers[pid] = 0.0 if pid == run.leader() else current_time
                self._met += 1
            elif self._is_remote(pid, name):
                self._remote = name

    def _is_remote(self, pid: int, node_name: str) -> bool:
        if node_name in _ALWAYS_REMOTE:
            return True
        return node_name in _REMOTE and _process_command_name(_parent_of(pid)) in _MPI

    def _start(self, run: "TreeWatcher", current_time: Seconds) -> None:
        """Start the agents of this job, or of the one that a launcher allocated."""
        if self._steps is None:
            return
        job, nodes = None, self._nodes
        if nodes is None:
            found = self._allocated(run, current_time)
            if found is None:
                return
            job, nodes = found
            self._nodes = nodes
        options = node_agent.AgentOptions(
            node=self._steps.NODE,
            same=self._steps.SAME,
            prefix=self._steps.GROUP,
            interval=self._interval,
            host=os.uname().nodename,
            excluded=run.own_pids(),
        )
        words = msgspec.json.encode(options).decode()
        python = (sys.executable, "-P", "-m", "weigh.measure.node_agent", words)
        argv = self._steps.watch_argv(python, self._env, job=job, nodes=nodes)
        env = {**self._steps.watch_environment(self._env), **node_agent.ENVIRONMENT}
        try:
            self._agents = async_command.NodeAgents(argv, env)
        except OSError as error:
            self._trouble = f"{argv[0]}: {error.strerror}"
            self._notify(f"no figures of what {self._starter} started: {self._trouble}")
            return
        # weigh's own: it must not count as the task's, nor be waited for
        run.set_aside(self._agents.pid)

    def _allocated(
        self, run: "TreeWatcher", current_time: Seconds
    ) -> tuple[str, int] | None:
        """Query for the job that a launcher outside of any job has allocated."""
        if self._steps is None or not self._launchers:
            return None
        if self._query is None:
            if current_time >= self._query_at:
                # twice as late each time: a launcher may have to wait for its job
                self._query_at = current_time + min(current_time, _LONGEST_PAUSE)
                self._query = self._asked(run)
            return None
        answer = self._query.answer()
        if answer is None:
            return None
        self._query = None
        for pid in self._launchers:
            found = self._steps.parse_job(answer, _session_of(pid))
            if found is not None:
                return found
        return None

    def _asked(self, run: "TreeWatcher") -> "AsyncCommand | None":
        if self._steps is None:
            return None
        kinds = schedulers.KINDS.values()
        # the user's own defaults for the command, such as SQUEUE_STATES
        defaults = tuple(name for kind in kinds for name in kind.variables.unset)
        try:
            query = async_command.AsyncCommand(
                self._steps.job_query(),
                self._env,
                patience=_QUERY_PATIENCE,
                unset=defaults,
            )
        except OSError as error:
            self._trouble = error.strerror
            return None
        run.set_aside(query.pid)
        return query

    def _own(self) -> str | None:
        return self._env.get(self._steps.NODE) if self._steps else None

    def _alone(self) -> tuple[str, ...]:
        """Return what was not measured where no agent was started."""
        if self._remote is not None:
            return (f"processes started on other machines by {self._remote}",)
        if self._met and self._steps is not None and self._trouble is None:
            return (f"{self._starter} ended too soon to measure what it started",)
        return (self._not_measured(),) if self._met else ()

    def _not_measured(self) -> str:
        return f"what {self._starter} started was not measured"


def _process_command_name(pid: int | None) -> str:
    """Return the name of a process; empty if it has ended."""
    return os.fsdecode(file_head(f"/proc/{pid}/comm", 64).rstrip(b"\n"))


def _parent_of(pid: int) -> int | None:
    times = proc.parse_stat(file_head(f"/proc/{pid}/stat", 1024))
    return None if times is None else times.parent


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0
