"""``weigh scan memory=auto -- COMMAND``: the least memory that a command works with.

The limit is that of the program itself where it has one: it holds for trees of
processes, and needs no leave. Else a control group of its own; never a limit of the
process, which counts address space. Without a group, a step of a job has one. Runs go
to a folder that is removed afterwards: what a program does when it is squeezed is
nothing to learn from.

A group is charged for the file pages that it reads first. Those of the files that the
command names are dropped before each run: a file that another program has read would
make any limit look harmless.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec

from weigh.errors import UsageError
from weigh.estimate.squeeze import Probe, Squeeze, next_limit, outcome_of
from weigh.flow.run.run_measured import error_in, run_measured
from weigh.model.record import Record, Request, Usage
from weigh.probe.cgroup import memory_folder
from weigh.probe.host import read_host
from weigh.request import from_usages, round_memory
from weigh.schedulers import steps_of
from weigh.sweep import variables
from weigh.sweep.tasks import command_line
from weigh.units import (
    GIB,
    MIB,
    Bytes,
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
_ARENAS = ("MALLOC_ARENA_MAX", "2")
_MAPPED = 0.2  # of the peak
_LEAST_MAPPED: Bytes = 128 * MIB  # more than most programs and their libraries

Say = Callable[[str], None]


class MemoryScan(msgspec.Struct, frozen=True, kw_only=True):
    """A finished scan: the kind, each run, and the request with its knob."""

    kind: str
    squeeze: Squeeze | None
    request: Request | None
    runs: int
    exit_code: int = 0


class Way(msgspec.Struct, frozen=True):
    """How memory is limited: by variables, a control group (a folder), or job steps."""

    name: str | None = None
    form: str = "{}"
    folder: str | None = None
    by_steps: bool = False
    is_switch: bool = False

    @property
    def is_group(self) -> bool:
        """Return whether the kernel limits the memory, with that of cached files."""
        return self.folder is not None or self.by_steps

    def words(self, limit: int) -> str:
        """Write the limit as it is given, in MiB."""
        return self.form.format(limit)


def scan_memory(
    command: Sequence[str],
    *,
    dry_run: bool,
    say: Say,
    cwd: str,
    env: Mapping[str, str],
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
        return Scan(command, say, cwd, {**env, "WEIGH_DIR": store}, store).all()


class Scan:
    """The runs of one scan."""

    def __init__(
        self,
        command: Sequence[str],
        say: Say,
        cwd: str,
        env: Mapping[str, str],
        store: str,
    ) -> None:
        self._command = list(command)
        self._has_field = any("{memory" in word for word in command)
        if self._has_field:
            self._command = ["bash", "-c", command_line(command)]
        self._say, self._cwd, self._env, self._store = say, cwd, dict(env), store
        self._records: dict[int, Record] = {}
        steps = steps_of(env)
        self._steps = steps if steps is not None and steps.nodes_of(env) else None

    def all(self) -> MemoryScan:
        """Run it plainly, choose a limit, and search."""
        env = dict(self._env)
        if self._has_field:  # as much as it may ever take
            env |= variables.settings((read_host().memory or GIB) // 2, None)
        plain = self.run("plain", env, self._command)
        usage = plain.usage
        if plain.state != "COMPLETED" or usage is None or usage.peak_memory is None:
            why = plain.outcome.reason if plain.outcome else plain.state
            printed = error_in(os.path.join(self._store, "log"))
            why = f"{why}: {printed}" if printed else why
            raise UsageError(f"its plain run did not complete: {why}")
        with self._way(usage) as way:
            if way is None:
                return MemoryScan(
                    kind="rigid as far as known: no limit can be set here",
                    squeeze=None,
                    request=from_usages([plain]),
                    runs=0,
                )
            return self._search(plain, _plain_probe(usage, way), way)

    def _search(self, plain: Record, first: Probe, way: Way) -> MemoryScan:
        probes = self.search(plain, first, way)
        form = "limit" if not way.is_group else "group"
        usage = plain.usage or Usage(wall_time=0.0)
        if way.is_group and needs_cache(usage):
            form = "cache"
        found = outcome_of(first, probes, form=form)
        chosen = plain if found.knee.limit == 0 else self._records[found.knee.limit]
        request = from_usages([chosen])
        if found.knee.limit and way.name is not None:
            knob = f"{way.name}={way.words(found.knee.limit)}"
            if self._has_field:
                knob = f"{{memory}}={found.knee.limit}M"
            request = msgspec.structs.replace(
                request, memory_kind=found.kind, knob=knob
            )
        if way.is_group and request.memory is not None:  # cached files are no usage
            least = round_memory((1 + request.headroom) * found.knee.memory)
            request = msgspec.structs.replace(
                request, memory=max(request.memory, least)
            )
        return MemoryScan(
            kind=found.kind, squeeze=found, request=request, runs=len(probes)
        )

    def search(self, plain: Record, first: Probe, way: Way) -> list[Probe]:
        """Return the runs with a limit that the search needs, at most four."""
        usage = plain.usage or Usage(wall_time=0.0)
        is_cache = way.is_group and needs_cache(usage)
        probes: list[Probe] = []
        limit: int | None = _first_limit(first, usage, way)
        while limit is not None and len(probes) < (1 if way.is_switch else MOST_RUNS):
            probes.append(self.limited(limit, way, first, probes))
            limit = next_limit(first, probes, is_group=way.is_group, is_cache=is_cache)
        return probes

    def limited(
        self, limit: int, way: Way, first: Probe, probes: Sequence[Probe]
    ) -> Probe:
        """Run it with a limit of so many MiB."""
        best = min([first.time, *(one.time for one in probes if one.works)])
        slow = first.wall / first.time if first.time else 1.0
        patience = 2 * best * max(1.0, slow) + _GRACE
        env, words = dict(self._env), ["timeout", "-k", "5", f"{patience:.1f}"]
        if way.folder is not None:
            name = limit_file(way.folder)
            with open(os.path.join(way.folder, name), "w", encoding="ascii") as file:
                file.write(str(limit * MIB))
            procs = os.path.join(way.folder, "cgroup.procs")
            words += ["sh", "-c", f'echo $$ > {procs}; exec "$@"', "sh"]
        elif way.by_steps and self._steps is not None:
            words = [*words, *self._steps.limited_argv(env, limit * MIB)]
        elif way.name is not None:
            env[way.name] = " ".join([env.get(way.name, ""), way.words(limit)]).strip()
        record = self.run(way.words(limit), env, [*words, *self._command])
        self._records[limit] = record
        usage = record.usage or Usage(wall_time=patience)
        made = _probe(limit, usage, ran=record.state == "COMPLETED")
        memory = limit * MIB if way.is_group else made.memory
        # without a figure of its wait, a run is compared by the clock
        clock = min([first.wall, *(one.wall for one in probes if one.works)])
        by_clock = made.time == made.wall and made.wall <= 2 * clock
        works = made.ran and (made.time <= 2 * best or by_clock)
        return msgspec.structs.replace(made, memory=memory, works=works)

    def run(self, name: str, env: Mapping[str, str], words: Sequence[str]) -> Record:
        """Run *words*, print a line of it, and return its record."""
        _drop_pages(self._command, self._cwd)
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
        state = "" if record.state == "COMPLETED" else f"  {record.state}"
        if record.exit_code == _TIMEOUT:
            state = "  stopped: more than twice the best time"
        self._say(f"{name:<12} {size:>9}  {time:>7}{state}")
        return record

    @contextmanager
    def _way(self, usage: Usage) -> Iterator[Way | None]:
        """Choose what limits the memory; a control group is removed at the end."""
        if self._has_field:
            yield Way(variables.MEMORY)
            return
        name = "java" if usage.jvm is not None else usage.sign and usage.sign.name
        if name in _KNOBS and not (usage.jvm is not None and usage.jvm.flags):
            yield Way(*_KNOBS[name])
            return
        if name == "malloc arenas":
            yield Way(_ARENAS[0], _ARENAS[1], is_switch=True)
            return
        if usage.sign is not None and usage.sign.knob in self._command:
            knob = usage.sign.knob
            self._say(f"{knob} stays as it is: write {knob} {{memory}} to try less")
        folder = new_group()
        by_steps = folder is None and self._steps is not None
        way = Way(form="{} MiB", folder=folder, by_steps=by_steps)
        try:
            yield way if way.is_group else None
        finally:
            if folder is not None:
                with suppress(OSError):
                    os.rmdir(folder)


def needs_cache(usage: Usage) -> bool:
    """Return whether a run reread its files, or much of its peak is mapped files."""
    peak = usage.peak_memory
    mapped = 0 if peak is None else (peak.file or 0)
    return usage.cache is not None or (
        peak is not None and mapped > max(_MAPPED * peak.value, _LEAST_MAPPED)
    )


def _plain_probe(usage: Usage, way: Way) -> Probe:
    """Return the plain run, whose memory in a group is with that of its files."""
    made = _probe(0, usage, ran=True)
    if way.is_group and usage.cache is not None:
        files = usage.cache.files
        made = msgspec.structs.replace(made, memory=made.memory + files)
    return made


def _drop_pages(words: Sequence[str], cwd: str) -> None:
    """Ask the kernel to forget the pages of the files that a command names."""
    for word in words:
        with suppress(OSError, ValueError):
            file = os.open(os.path.join(cwd, word), os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)


def _probe(limit: int, usage: Usage, *, ran: bool) -> Probe:
    """Return a run as the search sees it: its memory, and its time without waits."""
    wait, peak = usage.cpu_wait, usage.peak_memory
    return Probe(
        limit=limit,
        memory=0 if peak is None else peak.value,
        time=usage.wall_time if wait is None else wait.alone,
        wall=usage.wall_time,
        works=ran,
        ran=ran,
    )


def _first_limit(first: Probe, usage: Usage, way: Way) -> int:
    """Return the first limit to try, in MiB."""
    peak = first.memory
    if way.is_group and needs_cache(usage):
        return max(1, round(peak / MIB / 2))
    if usage.jvm is not None and way.name is not None and usage.jvm.live is not None:
        return max(2, round(1.25 * usage.jvm.live / MIB))
    if way.is_group:  # what a rigid program does not survive
        return max(1, round(0.9 * peak / MIB))
    return max(1, round(peak / MIB / 2))


def new_group() -> str | None:
    """Make a control group below our own; None where that is refused."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            folder, _ = memory_folder(file.read())
        made = os.path.join(folder, f"weigh-{os.getpid()}")
        os.mkdir(made)
    except (OSError, ValueError):
        return None
    if os.access(os.path.join(made, limit_file(made)), os.W_OK):
        return made
    with suppress(OSError):
        os.rmdir(made)
    return None


def limit_file(folder: str) -> str:
    """Return the name of the file that limits the memory of a control group."""
    old = "memory.limit_in_bytes"
    return old if os.path.exists(os.path.join(folder, old)) else "memory.max"
