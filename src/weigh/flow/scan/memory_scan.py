"""``weigh scan memory=auto -- COMMAND``: the least memory that a command works with.

The limit is that of the program itself: it holds for trees of processes, and needs no
leave. A program that has none needs what it used. Runs go to a folder that is removed
afterwards: what a program does when it is squeezed is nothing to learn from.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.estimate.scaling import SqueezeResult, SqueezeRun, next_limit, outcome_of
from weigh.flow.here import Here
from weigh.flow.run.run_measured import error_in, run_measured
from weigh.model.record import Record, Request, Usage
from weigh.probe.host import read_host
from weigh.request import COMPLETED, from_usages
from weigh.sweep import variables
from weigh.sweep.tasks import bash_command_line
from weigh.units import (
    GIB,
    MIB,
    Seconds,
    format_duration,
    size_or_dash,
)

AUTO = "memory=auto"
MOST_RUNS = 4  # in addition to the plain one
_GRACE: Seconds = 2.0  # beyond twice the best time, until a run is stopped
_TIMEOUT = 124  # timeout(1)
# what limits a program without a word in its command: the variable, and its value
_KNOBS = {
    "java": ("JAVA_TOOL_OPTIONS", "-Xmx{}m"),
    "go": ("GOMEMLIMIT", "{}MiB"),
    "node": ("NODE_OPTIONS", "--max-old-space-size={}"),
}
# fewer arenas of malloc keep less freed memory
_ARENAS = ("MALLOC_ARENA_MAX", "2")
_OVER_LIVE = 1.25  # of what was alive in Java's heap: the first limit

Say = Callable[[str], None]


class MemoryScan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished scan: the kind, each run, and the request with its knob."""

    kind: str  # what kind of program it is, with respect to memory
    squeeze: SqueezeResult | None  # None: it has no limit to be set
    request: Request | None
    runs: int  # runs with a limit


class ProgramLimit(msgspec.Struct, frozen=True):
    """How a program is limited: a variable, and its value for so many MiB.

    ``is_switch``: it is on or off, so that one run shows what it does.
    """

    name: str
    form: str = "{}"
    is_switch: bool = False

    def words(self, limit: int) -> str:
        """Write the limit as it is given, in MiB."""
        return self.form.format(limit)


def scan_memory(
    here: Here, command: Sequence[str], *, dry_run: bool, say: Say
) -> MemoryScan:
    """Run *command* without a limit and with up to four; *say* gets a line per run.

    Raises:
        UsageError: no command, or its plain run did not complete.
        CommandNotFoundError: no such command.
        WeighError: weigh itself failed.
    """
    if not command:
        raise UsageError("no command: put it after --")
    if dry_run:
        say("1 plain run, and at most 4 with a limit")
        return MemoryScan(kind="not run", squeeze=None, request=None, runs=0)
    with tempfile.TemporaryDirectory(prefix="weigh-") as store:
        return LimitedRuns(
            command, say, here.cwd, {**here.env, "WEIGH_DIR": store}, store
        ).all()


class LimitedRuns:
    """The runs of one scan."""

    def __init__(
        self,
        command: Sequence[str],
        say: Say,
        cwd: str,
        env: Mapping[str, str],
        store_folder: str,
    ) -> None:
        self._command = list(command)
        self._has_field = any("{memory" in word for word in command)
        if self._has_field:
            # a placeholder is expanded by a shell
            self._command = ["bash", "-c", bash_command_line(command)]
        self._say, self._cwd, self._env, self._store = say, cwd, dict(env), store_folder
        self._records: dict[int, Record] = {}  # by limit; 0: none
        self._runs: list[SqueezeRun] = []  # the plain one first

    def all(self) -> MemoryScan:
        """Run it plainly, choose a limit, and search."""
        env = dict(self._env)
        if self._has_field:  # as much as it may ever take
            # half of the machine: a program may take all that it is allowed
            env |= variables.memory_and_cpu_variables(
                (read_host().memory or GIB) // 2, None
            )
        plain = self._records[0] = self.run("plain", env, self._command)
        usage = plain.usage
        if plain.state != COMPLETED or usage is None or usage.peak_memory is None:
            why = plain.outcome.reason if plain.outcome else plain.state
            printed = error_in(os.path.join(self._store, "log"))
            why = f"{why}: {printed}" if printed else why
            raise UsageError(f"its plain run did not complete: {why}")
        way = self._program_limit(usage)
        if way is None:
            return MemoryScan(
                kind="rigid as far as known: no limit to set ({memory} gives one)",
                squeeze=None,
                request=from_usages([plain]),
                runs=0,
            )
        self._runs.append(_limited_run(0, usage, works=True))
        self.search(usage, way)
        found = outcome_of(self._runs[0], self._runs[1:])
        chosen = found.knee.limit
        request = from_usages([self._records[chosen]])
        if chosen:
            knob = f"{way.name}={way.words(chosen)}"
            knob = f"{{memory}}={chosen}M" if self._has_field else knob
            request = msgspec.structs.replace(request, knob=knob)
        return MemoryScan(
            kind=found.kind, squeeze=found, request=request, runs=len(self._runs) - 1
        )

    def search(self, usage: Usage, way: ProgramLimit) -> None:
        """Run it with the limits that the search needs, at most four."""
        plain = self._runs[0]
        # half of what it took first
        limit: int | None = max(1, round(plain.memory / MIB / 2))
        if usage.jvm is not None and usage.jvm.live is not None:
            limit = max(2, round(_OVER_LIVE * usage.jvm.live / MIB))
        # a switch has two states, and the plain run showed one
        most = 1 if way.is_switch else MOST_RUNS
        while limit is not None and len(self._runs) <= most:
            self._runs.append(self.limited(limit, way))
            limit = next_limit(plain, self._runs[1:])

    def limited(self, limit: int, way: ProgramLimit) -> SqueezeRun:
        """Run it with a limit of so many MiB."""
        plain, best = self._runs[0], min(one.time for one in self._runs if one.works)
        # on a busy machine the clock runs ahead of the program's own time
        slow = plain.wall / plain.time if plain.time else 1.0
        patience = 2 * best * max(1.0, slow) + _GRACE
        # KILL after 5 s: a program out of memory may not react to TERM
        timeout = ["timeout", "-k", "5", f"{patience:.1f}"]
        # Java's and node's variables hold options: keep those that are set
        value = " ".join([self._env.get(way.name, ""), way.words(limit)]).strip()
        env = {**self._env, way.name: value}
        record = self.run(way.words(limit), env, [*timeout, *self._command])
        self._records[limit] = record
        usage = record.usage or Usage(wall_time=patience)
        made = _limited_run(limit, usage, works=record.state == COMPLETED)
        return msgspec.structs.replace(made, works=made.works and made.time <= 2 * best)

    def run(self, name: str, env: Mapping[str, str], words: Sequence[str]) -> Record:
        """Run *words*, print a line of it, and return its record."""
        record = run_measured(
            words,
            label="squeeze",
            texts={},
            log=os.path.join(self._store, "log"),
            root=self._store,
            cwd=self._cwd,
            env=env,
        )
        usage, peak = record.usage, None
        if usage is not None and usage.peak_memory is not None:
            peak = usage.peak_memory.value
        size = size_or_dash(peak)
        time = format_duration(usage.wall_time) if usage is not None else "-"
        state = "" if record.state == COMPLETED else f"  {record.state}"
        if record.exit_code == _TIMEOUT:
            state = "  stopped: more than twice the best time"
        self._say(f"{name:<12} {size:>9}  {time:>7}{state}")
        return record

    def _program_limit(self, usage: Usage) -> ProgramLimit | None:
        """Return what limits the program's memory; None if it has nothing."""
        if self._has_field:
            return ProgramLimit(variables.MEMORY)
        sign = usage.sign
        name = "java" if usage.jvm is not None else sign and sign.name
        # flags on the command line override the variable
        if name in _KNOBS and not (usage.jvm is not None and usage.jvm.flags):
            return ProgramLimit(*_KNOBS[name])
        if name == "malloc arenas":
            return ProgramLimit(*_ARENAS, is_switch=True)
        return None


def _limited_run(limit: int, usage: Usage, *, works: bool) -> SqueezeRun:
    """Return a run as the search sees it: its memory, and its time without waits."""
    wait, peak = usage.cpu_wait, usage.peak_memory
    return SqueezeRun(
        limit=limit,
        memory=0 if peak is None else peak.value,
        time=usage.wall_time if wait is None else wait.alone,
        wall=usage.wall_time,
        works=works,
    )
