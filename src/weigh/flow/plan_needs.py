"""What each task of a file needs: as said, or as measured for one like it."""

import math
import shlex
from collections.abc import Callable, Iterable, Sequence

import msgspec

from weigh.errors import UsageError
from weigh.model.gpu import GpuUsage
from weigh.model.plan import Item, Kind
from weigh.model.record import Record
from weigh.request import from_usages
from weigh.store.heads import Head
from weigh.units import Bytes, Seconds

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_SHELL_LINE = 3  # sh -c LINE
_MOST_RUNS = 5  # of one command, the newest
_MOST_COMMANDS = 300
_QUOTING = frozenset("'\"\\$`")
_USELESS = frozenset({"FAILED", "CANCELLED", "INTERRUPTED", "UNKNOWN"})


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says that every task uses; None is left to the records."""

    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    cpus: int | None = None
    time: Seconds | None = None


class Candidate(msgspec.Struct, frozen=True):
    """The records of one command, and the words that a task like it shares."""

    names: tuple[str, ...]
    stem: tuple[str, ...]
    words: frozenset[str]
    numbers: frozenset[str]


class Needs(msgspec.Struct, frozen=True):
    """The kinds of tasks, each task's place among them, and the GPU measured on."""

    kinds: tuple[Kind, ...]
    places: tuple[int, ...]
    gpu: GpuUsage | None = None


class Library(msgspec.Struct, frozen=True):
    """The commands there are records of, and what reads a record by its id.

    ``named``: the user named them, so that each task has to match one.
    """

    known: tuple[Candidate, ...]
    read: Callable[[str], Record]
    named: bool = False


def candidates(heads: Iterable[Head]) -> tuple[Candidate, ...]:
    """Put the records of each command together, the newest few of each.

    Runs that ended of themselves or by a limit say more than those that failed.
    """
    runs: dict[tuple[str, ...], list[Head]] = {}
    for head in heads:
        if head.usage is not None and (
            head.command in runs or len(runs) < _MOST_COMMANDS
        ):
            runs.setdefault(head.command, []).append(head)
    return tuple(_candidate(command, same) for command, same in runs.items())


def of_tasks(
    lines: Iterable[str], given: Given, headroom: float, library: Library
) -> Needs:
    """Work out what each of *lines* needs: what it uses and *headroom* (0.2: 20 %).

    What is given goes before anything measured.

    Raises:
        UsageError: a task matches no record although records were named.
    """
    finder = _Finder(library)
    places: list[int] = []
    found: dict[tuple[str, ...], int] = {}
    counts: list[int] = []
    examples: list[str] = []
    for line in lines:
        names = finder.records_for(line) if library.known else ()
        place = found.setdefault(names, len(found))
        if place == len(counts):
            counts.append(0)
            examples.append(line)
        counts[place] += 1
        places.append(place)
    kinds: list[Kind] = []
    gpus: list[GpuUsage] = []
    for names, place in found.items():
        records = [library.read(name) for name in names]
        kind = _kind(records, given, headroom)
        kinds.append(
            msgspec.structs.replace(kind, tasks=counts[place], example=examples[place])
        )
        gpus += [gpu for record in records for gpu in _gpus(record)]
    return Needs(tuple(kinds), tuple(places), gpus[0] if gpus else None)


class _Finder:
    """Finds the records of the commands most like a line."""

    def __init__(self, library: Library) -> None:
        self._known = library.known
        self._named = library.named
        self._alike: dict[tuple[tuple[str, ...], frozenset[str]], list[Candidate]] = {}

    def records_for(self, line: str) -> tuple[str, ...]:
        """Give the ids of the records to reckon with; several where all are as like.

        Raises:
            UsageError: there is none, although the user named some.
        """
        stem, words, numbers = _parts(_words(line))
        key = (stem, words)
        if key not in self._alike:
            self._alike[key] = self._most_alike(stem, words)
        alike = self._alike[key]
        if len(alike) > 1:
            most = max(len(one.numbers & numbers) for one in alike)
            alike = [one for one in alike if len(one.numbers & numbers) == most]
        if not alike and self._named:
            raise UsageError(
                f"no record named is of a command like: {line[:60]} "
                "(weigh run measures one)"
            )
        return tuple(name for one in alike for name in one.names)

    def _most_alike(
        self, stem: tuple[str, ...], words: frozenset[str]
    ) -> list[Candidate]:
        same = [one for one in self._known if one.stem == stem]
        if not same and self._named and len(self._known) == 1:
            return list(self._known)
        if not same:
            return []
        most = max(len(one.words & words) for one in same)
        return [one for one in same if len(one.words & words) == most]


def _candidate(command: tuple[str, ...], heads: Sequence[Head]) -> Candidate:
    telling = [head for head in heads if head.state not in _USELESS] or list(heads)
    words = list(command)
    if len(words) == _SHELL_LINE and words[0] in _SHELLS and words[1] == "-c":
        words = _words(words[2])
    stem, plain, numbers = _parts(words)
    labels = frozenset(head.label for head in telling if head.label)
    names = tuple(head.id for head in telling[:_MOST_RUNS])
    return Candidate(names, stem, plain | labels, numbers)


def _words(line: str) -> list[str]:
    if _QUOTING.isdisjoint(line):
        return line.split()
    try:
        return shlex.split(line)
    except ValueError:  # a shell may read what shlex cannot
        return line.split()


def _parts(
    words: Sequence[str],
) -> tuple[tuple[str, ...], frozenset[str], frozenset[str]]:
    """Split words into what runs (program and script), other words, and numbers."""
    start = 0
    while start < len(words) and _is_assignment(words[start]):
        start += 1
    program = [word.rpartition("/")[2] for word in words[start : start + 1]]
    script = next((w for w in words[start + 1 :] if not w.startswith("-")), None)
    if words[start + 1 : start + 2] == ["-c"]:  # python -c CODE: each its own script
        script = "-c"
    stem = (*program, *(() if script is None or _is_number(script) else (script,)))
    pieces = [piece for word in words for piece in word.split("=")]
    numbers = frozenset(piece for piece in pieces if _is_number(piece))
    return stem, frozenset(pieces) - numbers, numbers


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _kind(records: Sequence[Record], given: Given, headroom: float) -> Kind:
    """Take what was given; from the records what was not."""
    asked = from_usages(records, headroom=headroom) if records else None
    gpus = [gpu for record in records for gpu in _gpus(record)]
    walls = (record.usage.wall_time for record in records if record.usage)
    time = _most(walls) if given.time is None else given.time
    gpu_memory = given.gpu_memory
    if gpu_memory is None:
        gpu_memory = max((_gpu_peak(gpu) or 0 for gpu in gpus), default=0)
    cpus = given.cpus or (asked.cpus if asked else 1)
    memory, limit = given.memory, None if time is None else _with(time, headroom)
    if asked is not None and given.time is None:
        limit = asked.time_limit
    return Kind(
        item=Item(
            _with(gpu_memory, headroom),
            _with(memory, headroom)
            if memory is not None
            else (asked and asked.memory) or 0,
            cpus,
            limit,
        ),
        used=Item(
            gpu_memory, _memory(records) if memory is None else memory, cpus, time
        ),
        tasks=0,
        example="",
        runs=asked.runs if asked else 0,
        records=tuple(record.id for record in records),
        busy=_most(_busy(gpu) for gpu in gpus),
        notes=_notes(records, given),
    )


def _with(size: float, headroom: float) -> int:
    # to a thousandth first: 1.1 is a little more than itself as a float
    return math.ceil(round(size * (1 + headroom), 3))


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _gpus(record: Record) -> tuple[GpuUsage, ...]:
    """Give the GPUs that a record's job held memory on.

    Raises:
        UsageError: there are several, and a plan puts each task on one.
    """
    if record.usage is None:
        return ()
    held = tuple(gpu for gpu in record.usage.gpus if _gpu_peak(gpu))
    if len(held) > 1:
        raise UsageError(
            f"record {record.id[:6]} used {len(held)} GPUs: a plan puts each task on "
            "one (ask for whole jobs with weigh request)"
        )
    return held


def _gpu_peak(gpu: GpuUsage) -> Bytes | None:
    return gpu.peak_memory or gpu.process_peak_memory


def _busy(gpu: GpuUsage) -> float | None:
    mean = gpu.utilization_mean
    return None if mean is None else min(1.0, mean / 100)


def _memory(records: Sequence[Record]) -> Bytes:
    usages = [record.usage for record in records if record.usage]
    peaks = [usage.peak_memory.value for usage in usages if usage.peak_memory]
    return max(peaks, default=0)


def _notes(records: Sequence[Record], given: Given) -> tuple[str, ...]:
    notes = []
    if given.memory is None and any(r.usage and r.usage.growing for r in records):
        notes.append(
            "memory was still rising at the end of a run: measure a longer one"
        )
    states = sorted({r.state for r in records if r.state != "COMPLETED"})
    if states:
        notes.append(f"measured on runs that did not complete ({', '.join(states)})")
    return tuple(notes)
