"""What each task of a file needs: as said, or as measured for one like it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeGuard, get_args

import msgspec

from weigh.errors import UsageError
from weigh.estimate.curve import Constant
from weigh.estimate.estimate import Estimate, estimate
from weigh.estimate.fit import FEWEST_SIZES, Fit
from weigh.estimate.readings import products, read
from weigh.model.gpu import GpuUsage
from weigh.model.mask import MASK
from weigh.model.plan import Foretold, Item, Kind, Quantity
from weigh.model.record import Record
from weigh.planning.record_match import (
    Candidate,
    Finder,
    Library,
    Sizes,
    nearest,
    parts_of,
    sizes_in,
    words_of,
)
from weigh.request import COMPLETED, LEAST_MEMORY, from_usages, round_memory, round_time
from weigh.units import Bytes, Seconds

_QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_MOST_NAMES = 4  # parameters to look into: their products double with each
_BETTER = 0.8  # a product has to explain a fifth more than a parameter alone
# what varies by a smaller share of the most, from size to size, is held for constant:
# runs differ by chance, two sizes tell nothing of that, and the headroom covers it
_STEADY = {"gpu_memory": 0.05, "memory": 0.05, "time": 0.15}
_STEADY_OF_TWO = {"gpu_memory": 0.1, "memory": 0.1, "time": 0.3}


class Curves:
    """The curves through records of commands that differ in their numbers."""

    def __init__(self, records: Sequence[Record], sizes: Sequence[Sizes]) -> None:
        """Take records and the sizes in the command of each."""
        self._records = [
            msgspec.structs.replace(record, command=(), parameters=dict(own))
            for record, own in zip(records, sizes, strict=True)
        ]
        self._made: dict[tuple[str, ...], Estimate | None] = {}
        names = list(_varying(sizes))[:_MOST_NAMES]
        self._fits: dict[Quantity, tuple[tuple[str, ...], Fit]] = {}
        for quantity in _QUANTITIES:
            found = self._best(quantity, names)
            if found is not None:
                self._fits[quantity] = found
        by = (name for names, _ in self._fits.values() for name in names)
        self.names = tuple(dict.fromkeys(by))
        self._told: dict[tuple[object, ...], tuple[Foretold, ...]] = {}
        self._measured: dict[tuple[object, ...], tuple[str, ...]] = {}
        for record in self._records:
            if record.state == COMPLETED:
                at = self._those_that_matter(record.parameters)
                self._measured[at] = (*self._measured.get(at, ()), record.id)

    def at(self, sizes: Sizes) -> tuple[Foretold, ...]:
        """Say what a task of *sizes* needs, of what grows with them."""
        wanted = self._those_that_matter(sizes)
        if wanted not in self._told:
            self._told[wanted] = tuple(self._at(sizes))
        return self._told[wanted]

    def measured(self, sizes: Sizes) -> tuple[str, ...]:
        """Give the ids of the runs at just these sizes, of those that matter."""
        wanted = self._those_that_matter(sizes)
        return () if None in wanted else self._measured.get(wanted, ())

    def _those_that_matter(self, sizes: Mapping[str, object]) -> tuple[object, ...]:
        return tuple(sizes.get(name) for name in self.names)

    def _at(self, sizes: Sizes) -> Iterator[Foretold]:
        for quantity, (names, fit) in self._fits.items():
            if any(name not in sizes for name in names):
                continue
            size = 1.0
            for name in names:
                size *= sizes[name]
            yield Foretold(
                quantity=quantity,
                by="*".join(names),
                size=size,
                sizes=tuple(point.x for point in fit.points),
                runs=fit.runs,
                expected=fit.predict(size),
                bound=max(fit.upper(size), _too_little(fit, size)),
            )

    def _best(
        self, quantity: Quantity, names: Sequence[str]
    ) -> tuple[tuple[str, ...], Fit] | None:
        """Find the parameter, or the product of several, that explains *quantity*."""
        best: tuple[tuple[str, ...], Fit] | None = None
        least = 0.0
        for by in products(names):
            fit = self._fit(quantity, by)
            if not _grows(fit):
                continue
            misfit = self._misfit(fit, by)
            if best is None or misfit < _BETTER * least:
                best, least = (by, fit), misfit
        return best

    def _fit(self, quantity: Quantity, by: tuple[str, ...]) -> Fit | None:
        if by not in self._made:
            try:
                self._made[by] = estimate(self._records, "*".join(by))
            except UsageError:  # too few that completed, or of one size only
                self._made[by] = None
        made = self._made[by]
        found: Fit | None = None if made is None else getattr(made, quantity)
        return found

    def _misfit(self, fit: Fit, by: tuple[str, ...]) -> float:
        """Return the mean relative error at every run: also where others varied."""
        rows = read(self._records, by).rows
        pairs = [(fit.curve.at(row.x), getattr(row, fit.quantity)) for row in rows]
        errors = [float(abs(told - y) / y) for told, y in pairs if y]
        return sum(errors) / max(1, len(errors))


def _too_little(fit: Fit, size: float) -> float:
    """Return what was not enough for a run of this size or a smaller one."""
    failed = fit.failed is not None and fit.failed <= size
    return (fit.failed_in or 0) + 1 if failed else 0.0


def varies(sizes: Sequence[Sizes]) -> bool:
    """Tell whether there is a size to draw a curve along."""
    return next(_varying(sizes), None) is not None


def _varying(sizes: Sequence[Sizes]) -> Iterator[str]:
    """Give the names whose values differ; of names that always agree, the first."""
    seen: set[tuple[float | None, ...]] = set()
    for name in dict.fromkeys(name for own in sizes for name in own):
        column = tuple(own.get(name) for own in sizes)
        known = [value for value in column if value is not None]
        if len(set(known)) > 1 and 2 * len(known) >= len(column) and column not in seen:
            seen.add(column)
            yield name


def _grows(fit: Fit | None) -> TypeGuard[Fit]:
    """Tell whether the quantity depends on the size, as far as can be told."""
    if fit is None or isinstance(fit.curve, Constant):
        return False
    steady = _STEADY if len(fit.points) >= FEWEST_SIZES else _STEADY_OF_TWO
    apart = 1 - fit.points[0].x / fit.largest_size  # sizes close together say less
    ys = [point.y for point in fit.points]
    return max(ys) - min(ys) > apart * steady.get(fit.quantity, 0.0) * max(ys)


Parameters = Mapping[str, int | float | str]
ParametersOf = Callable[[int, str], Parameters]

_MOST_READ = 200  # records to draw curves through
_MOST_NAMED = 20  # records that a kind of task names as its grounds


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What the user says that every task uses; None is left to the records."""

    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    cpus: int | None = None
    time: Seconds | None = None
    gpus: int | None = None

    @property
    def quantities(self) -> frozenset[Quantity]:
        """Name what needs no record."""
        said: dict[Quantity, float | None] = {
            "gpu_memory": self.gpu_memory,
            "memory": self.memory,
            "time": self.time,
        }
        return frozenset(name for name, value in said.items() if value is not None)


class Needs(msgspec.Struct, frozen=True):
    """The kinds of tasks, each task's place among them, and the GPU measured on.

    ``unlike`` are the sizes that tasks have otherwise than all runs, and those of the
    runs.
    """

    kinds: tuple[Kind, ...]
    places: tuple[int, ...]
    gpu: GpuUsage | None = None
    unlike: dict[str, float] = {}


class _Basis(msgspec.Struct, frozen=True):
    """What a task's need rests on: records, and what curves through them foretell."""

    records: tuple[str, ...] = ()
    foretold: tuple[Foretold, ...] = ()


def of_tasks(
    lines: Iterable[str],
    given: Given,
    headroom: float,
    library: Library,
    parameters_of: ParametersOf | None = None,
) -> Needs:
    """Work out what each of *lines* needs: what it uses and *headroom* (0.2: 20 %).

    What is given goes before anything measured. *parameters_of* knows a task's
    parameters by its number and line.

    Raises:
        UsageError: a task matches no record although records were named.
    """
    grounds = _Grounds(library, given.quantities)
    places: list[int] = []
    found: dict[_Basis, int] = {}
    counts: list[int] = []
    examples: list[str] = []
    for number, line in enumerate(lines, start=1):
        own = parameters_of(number, line) if parameters_of else {}
        place = found.setdefault(grounds.of(line, own), len(found))
        if place == len(counts):
            counts.append(0)
            examples.append(MASK.line(line))
        counts[place] += 1
        places.append(place)
    measured: dict[tuple[str, ...], tuple[Kind, tuple[GpuUsage, ...]]] = {}
    kinds: list[Kind] = []
    for basis, place in found.items():
        if basis.records not in measured:
            records = [library.read(name) for name in basis.records]
            gpus = tuple(gpu for record in records for gpu in _gpus(record))
            measured[basis.records] = _kind(records, given, headroom), gpus
        kind = _as_foretold(measured[basis.records][0], basis.foretold, headroom)
        kinds.append(
            msgspec.structs.replace(kind, tasks=counts[place], example=examples[place])
        )
    cards = [gpu for _, gpus in measured.values() for gpu in gpus]
    gpu = cards[0] if cards else None
    return Needs(tuple(kinds), tuple(places), gpu, grounds.unlike)


class _Grounds:
    """Finds what the need of a line rests on."""

    def __init__(self, library: Library, said: frozenset[Quantity]) -> None:
        self._library = library
        self._finder = Finder(library)
        self._said = said
        self._drawn: dict[tuple[str, ...], Curves | None] = {}
        self._only: dict[tuple[str, ...], Sizes] = {}
        self.unlike: dict[str, float] = {}

    def of(self, line: str, parameters: Parameters) -> _Basis:
        """Give the records of a run like it, or else what others of its kind foretell.

        Raises:
            UsageError: there is none, although the user named some.
        """
        if not self._library.known:
            return _Basis()
        words = words_of(line)
        parts = parts_of(words)
        alike = self._finder.most_alike(line, parts)
        names = tuple(name for one in alike for name in one.names)[:_MOST_READ]
        curves = self._curves(names, alike)
        sizes = sizes_in(words, parameters)
        for name, only in self._only[names].items():
            if sizes.get(name, only) != only:
                self.unlike[name] = only
        if curves is not None and curves.names:
            measured = curves.measured(sizes)
            if measured:
                return _Basis(measured)
            foretold = tuple(
                one for one in curves.at(sizes) if one.quantity not in self._said
            )
            if foretold:
                return _Basis(names, foretold)
        return _Basis(nearest(alike, parts[2]))

    def _curves(
        self, names: tuple[str, ...], alike: Sequence[Candidate]
    ) -> "Curves | None":
        if names not in self._drawn:
            self._drawn[names] = self._draw(names, alike)
        return self._drawn[names]

    def _draw(
        self, names: tuple[str, ...], alike: Sequence[Candidate]
    ) -> "Curves | None":
        """Draw curves through the records of *names* where their sizes differ."""
        from weigh.planning.needs import Curves, varies  # noqa: PLC0415 - few plans

        sizes = [own for one in alike for own in one.sizes][: len(names)]
        self._only[names] = _only_sizes(sizes)
        if not varies(sizes):
            return None
        return Curves([self._library.read(name) for name in names], sizes)


def _only_sizes(sizes: Sequence[Sizes]) -> Sizes:
    """Give the sizes that all runs have alike."""
    first = sizes[0] if sizes else {}
    return {
        name: value
        for name, value in first.items()
        if all(own.get(name) == value for own in sizes)
    }


def _as_foretold(kind: Kind, told: Sequence[Foretold], headroom: float) -> Kind:
    """Take what curves foretell: the bound, or the headroom where that is more."""
    if not told:
        return kind
    item, used = kind.item, kind.used
    for one in told:
        need = max(one.bound, one.expected * (1 + headroom))
        if one.quantity == "gpu_memory":
            item = msgspec.structs.replace(item, gpu_memory=math.ceil(need))
            used = msgspec.structs.replace(used, gpu_memory=math.ceil(one.expected))
        elif one.quantity == "memory":
            memory = max(LEAST_MEMORY, round_memory(need))
            item = msgspec.structs.replace(item, memory=memory)
            used = msgspec.structs.replace(used, memory=math.ceil(one.expected))
        else:
            item = msgspec.structs.replace(item, time=round_time(need))
            used = msgspec.structs.replace(used, time=one.expected)
    return msgspec.structs.replace(
        kind,
        item=item,
        used=used,
        runs=max(one.runs for one in told),
        records=kind.records[:_MOST_NAMED],
        foretold=tuple(told),
    )


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
    whole = given.gpus or _whole_gpus(records)
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
            whole,
        ),
        used=Item(
            gpu_memory,
            _memory(records) if memory is None else memory,
            cpus,
            time,
            whole,
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
    """Give the GPUs that a record's job held memory on."""
    if record.usage is None:
        return ()
    return tuple(gpu for gpu in record.usage.gpus if _gpu_peak(gpu))


def _whole_gpus(records: Sequence[Record]) -> int:
    """Count the cards of a job that ran on several; 0 for one, which others share."""
    most = max((len(_gpus(record)) for record in records), default=0)
    return most if most > 1 else 0


def _gpu_peak(gpu: GpuUsage) -> Bytes | None:
    return gpu.job_peak


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
