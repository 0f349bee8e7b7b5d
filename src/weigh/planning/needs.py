"""Work out what each task needs: from the options, or from records of similar runs.

The nearest record counts as measured; where no run had a task's sizes, a curve through
the runs at other sizes predicts what it needs.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple, TypeGuard, get_args

import msgspec
from msgspec.structs import replace

from weigh.errors import UsageError
from weigh.estimate.curve import ConstantCurve
from weigh.estimate.estimate import SizeEstimate, estimate
from weigh.estimate.fit import FEWEST_SIZES, FittedCurve
from weigh.estimate.readings import read
from weigh.model.gpu import GpuUsage
from weigh.model.mask import MASK
from weigh.model.plan import NeedPrediction, Quantity, TaskKind, TaskNeed
from weigh.model.record import Record, Request
from weigh.planning.launchers import MAY_LAUNCH, LauncherLayout, launch_of
from weigh.planning.record_match import (
    CandidateRecords,
    Parts,
    RecordLibrary,
    SimilarRecordFinder,
    Sizes,
    command_parts,
    nearest_records,
    sizes_in,
    task_line_words,
    words_run,
)
from weigh.request import COMPLETED, LEAST_MEMORY, from_usages, round_shared, round_time
from weigh.units import Bytes, Seconds

_QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
_MOST_NAMES = 4  # parameters to try: the number of products doubles with each
_BETTER = 0.8  # a product must reduce the error by a fifth compared with one parameter
# a quantity that varies by less than this share from size to size counts as constant:
# runs differ by chance, two sizes cannot show by how much, and the headroom covers it
_STEADY = {"gpu_memory": 0.05, "memory": 0.05, "time": 0.15}
_STEADY_OF_TWO = {"gpu_memory": 0.1, "memory": 0.1, "time": 0.3}


class NeedCurves:
    """The curves through records of commands that differ only in their numbers."""

    def __init__(
        self, records: Sequence[Record], sizes_of_runs: Sequence[Sizes]
    ) -> None:
        """Fit curves to *records*.

        *sizes_of_runs* are the numbers in the command of each.
        """
        self._records = [
            # a fit takes the largest group of equal commands: without one all of these
            # runs are a group, and the numbers of their commands are parameters
            replace(record, command=(), parameters=dict(own))
            for record, own in zip(records, sizes_of_runs, strict=True)
        ]
        self._made: dict[tuple[str, ...], SizeEstimate | None] = {}
        # None: no curve goes through the runs at these sizes
        names = list(_varying_sizes(sizes_of_runs))[:_MOST_NAMES]
        self._columns = _columns_of_sizes(sizes_of_runs)
        # only quantities that grow with a size; the others come from the records as
        # they are
        self._fits: dict[Quantity, tuple[tuple[str, ...], FittedCurve]] = {}
        for quantity in _QUANTITIES:
            found = self._best(quantity, names)
            if found is not None:
                self._fits[quantity] = found
        # sizes of no curve (a verbosity, a number of epochs without effect) do not make
        # a run at other values count as unmeasured
        by = (name for names, _ in self._fits.values() for name in names)
        self.names = tuple(dict.fromkeys(by))
        # both by the sizes that matter: thousands of tasks share a few of them
        self._predicted: dict[tuple[object, ...], tuple[NeedPrediction, ...]] = {}
        self._measured: dict[tuple[object, ...], tuple[str, ...]] = {}
        for record in self._records:
            # a run that was killed shows less than is needed at its size: it is no
            # measurement; nor is one of whose GPU nothing is known, where a curve knows
            # it
            is_unknown = "gpu_memory" in self._fits and _is_gpu_use_unknown(record)
            if record.state == COMPLETED and not is_unknown:
                at = self._those_that_matter(record.parameters)
                self._measured[at] = (*self._measured.get(at, ()), record.id)

    def at(self, task_sizes: Sizes) -> tuple[NeedPrediction, ...]:
        """Predict each quantity that grows with the sizes, at *task_sizes*."""
        key = self._those_that_matter(task_sizes)
        if key not in self._predicted:
            self._predicted[key] = tuple(self._at(task_sizes))
        return self._predicted[key]

    def measured(self, task_sizes: Sizes) -> tuple[str, ...]:
        """Return the ids of the runs whose relevant sizes equal those of *task_sizes*.

        Where *task_sizes* have none of them, those are the runs that left them to the
        program's defaults, too.
        """
        key = self._those_that_matter(task_sizes)
        # a task that names only some of these sizes matches no run: which values its
        # program takes for the others is not known
        some_are_missing = None in key and any(value is not None for value in key)
        return () if some_are_missing else self._measured.get(key, ())

    def sizes_under_all_names(self, task_sizes: Sizes) -> Sizes:
        """Return the sizes of a task, with those that it has under another name.

        A run has a number as a parameter, too, where the task's line only has it as an
        argument: they agree in all runs, so it is one size.
        """
        found = dict(task_sizes)
        for name in self.names:
            agreeing = (
                value
                for other, value in task_sizes.items()
                if self._columns.get(other) == self._columns[name]
            )
            if name not in found and (value := next(agreeing, None)) is not None:
                found[name] = value
        return found

    def _those_that_matter(
        self, known_sizes: Mapping[str, object]
    ) -> tuple[object, ...]:
        return tuple(known_sizes.get(name) for name in self.names)

    def _at(self, task_sizes: Sizes) -> Iterator[NeedPrediction]:
        for quantity, (names, fit) in self._fits.items():
            # the curve cannot be read without its size: the records decide
            if any(name not in task_sizes for name in names):
                continue
            size = 1.0
            for name in names:
                size *= task_sizes[name]
            yield NeedPrediction(
                quantity=quantity,
                by="*".join(names),
                size=size,
                sizes=tuple(point.x for point in fit.points),
                runs=fit.runs,
                expected=fit.predict(size),
                # the curve does not see runs that ran out of memory: what they had was
                # too small
                bound=max(fit.upper(size), _failed_amount_plus_one(fit, size)),
            )

    def _best(
        self, quantity: Quantity, names: Sequence[str]
    ) -> tuple[tuple[str, ...], FittedCurve] | None:
        """Return the parameter, or product of parameters, that explains *quantity*."""
        best: tuple[tuple[str, ...], FittedCurve] | None = None
        least = math.inf  # mean relative error of the best so far
        # single sizes come first, so that a product has to be clearly better than they
        # are
        # each name by itself, then every product of several
        for by in chain.from_iterable(
            combinations(names, count) for count in range(1, len(names) + 1)
        ):
            fit = self._fit(quantity, by)
            if not _grows_with_size(fit):
                continue
            misfit = self._misfit(fit, by)
            if misfit < _BETTER * least:
                best, least = (by, fit), misfit
        return best

    def _fit(
        self, quantity: Quantity, size_names: tuple[str, ...]
    ) -> FittedCurve | None:
        if size_names not in self._made:
            try:
                self._made[size_names] = estimate(self._records, "*".join(size_names))
            except UsageError:  # too few completed runs, or all of one size
                self._made[size_names] = None
        made = self._made[size_names]
        found: FittedCurve | None = None if made is None else getattr(made, quantity)
        return found

    def _misfit(self, fitted_curve: FittedCurve, size_names: tuple[str, ...]) -> float:
        """Return the mean relative error over all runs, whatever else varied."""
        rows = read(self._records, size_names).rows
        pairs = [
            (fitted_curve.curve.at(row.x), getattr(row, fitted_curve.quantity))
            for row in rows
        ]
        errors = [float(abs(predicted - y) / y) for predicted, y in pairs if y]
        return sum(errors) / max(1, len(errors))


def _failed_amount_plus_one(fitted_curve: FittedCurve, measured_size: float) -> float:
    """Return what a run of this size or a smaller one failed with, plus one."""
    failed = fitted_curve.failed is not None and fitted_curve.failed <= measured_size
    return (fitted_curve.failed_in or 0) + 1 if failed else 0.0


def has_varying_size(sizes_of_runs: Sequence[Sizes]) -> bool:
    """Return whether some size differs between the runs."""
    return next(_varying_sizes(sizes_of_runs), None) is not None


def _varying_sizes(sizes_of_runs: Sequence[Sizes]) -> Iterator[str]:
    """Yield the names whose values differ; of names that always agree, the first."""
    seen: set[tuple[float | None, ...]] = set()
    # by column: two options that always change together explain the same, and one is
    # enough
    for name, column in _columns_of_sizes(sizes_of_runs).items():
        known = [value for value in column if value is not None]
        # a size that fewer than half of the runs name explains too few of them
        if len(set(known)) > 1 and 2 * len(known) >= len(column) and column not in seen:
            seen.add(column)
            yield name


def _columns_of_sizes(
    sizes_of_runs: Sequence[Sizes],
) -> dict[str, tuple[float | None, ...]]:
    """Return the value of each size in all runs, by its name."""
    names = dict.fromkeys(name for own in sizes_of_runs for name in own)
    return {name: tuple(own.get(name) for own in sizes_of_runs) for name in names}


def _grows_with_size(fitted_curve: FittedCurve | None) -> TypeGuard[FittedCurve]:
    """Return whether the quantity measurably depends on the size."""
    if fitted_curve is None or isinstance(fitted_curve.curve, ConstantCurve):
        return False
    # a constant curve predicts no more than the records do
    steady = _STEADY if len(fitted_curve.points) >= FEWEST_SIZES else _STEADY_OF_TWO
    apart = (
        1 - fitted_curve.points[0].x / fitted_curve.largest_size
    )  # close sizes are weak evidence
    ys = [point.y for point in fitted_curve.points]
    # relative to the largest, so that the test has no unit
    return max(ys) - min(ys) > apart * steady.get(fitted_curve.quantity, 0.0) * max(ys)


Parameters = Mapping[str, int | float | str]
ParametersOf = Callable[[int, str], Parameters]

_MOST_READ = 200  # records that a curve is fitted to
_SHOWN = 6  # letters of an id
_MOST_NAMED = 20  # records that a kind of task lists as its source


class StatedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What each task uses, as the options state; None: take it from the records."""

    gpu_memory: Bytes | None = None
    memory: Bytes | None = None
    cpus: int | None = None  # of one node
    time: Seconds | None = None
    gpus: int | None = None  # whole ones, per node
    nodes: int | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether memory and time need no record."""
        return self.memory is not None and self.time is not None

    @property
    def quantities(self) -> frozenset[Quantity]:
        """Return the quantities that need no record."""
        stated: dict[Quantity, float | None] = {
            "gpu_memory": self.gpu_memory,
            "memory": self.memory,
            "time": self.time,
        }
        return frozenset(name for name, value in stated.items() if value is not None)


class TaskNeeds(msgspec.Struct, frozen=True):
    """The kinds of tasks, the index of each task's kind, and the GPU of the records.

    ``unlike`` holds sizes that are equal in all runs and differ in some task, with the
    value in the runs; ``unnamed`` those that matter in the runs and that tasks do not
    have, with the number of these tasks.
    """

    kinds: tuple[TaskKind, ...]
    places: tuple[int, ...]  # index in kinds, by task
    gpu: GpuUsage | None = None  # None: no record held GPU memory
    unlike: dict[str, float] = {}
    unnamed: dict[str, int] = {}

    @property
    def ranks(self) -> "ElementRanks":
        """Return a layout in which the ranks of each task fit."""
        items = [kind.item for kind in self.kinds]
        nodes = max(item.nodes for item in items)
        per_node = max(item.per_node for item in items)
        # an element must hold any task: where layouts differ, the largest node count
        # with the largest number of ranks per node does
        layouts = {(item.nodes, item.ntasks) for item in items}
        ntasks = items[0].ntasks if len(layouts) == 1 else nodes * per_node
        # a task's CPUs are those of a node: its ranks share them, rounded up
        cpus = max(-(-item.cpus // max(1, item.per_node)) for item in items)
        return ElementRanks(nodes, ntasks, per_node, cpus)


class ElementRanks(msgspec.Struct, frozen=True):
    """The layout of an element's ranks; ``ntasks`` is 0 where its tasks start none.

    ``cpus`` are those of each rank.
    """

    nodes: int = 1
    ntasks: int = 0  # on all nodes
    per_node: int = 0  # of the fullest node
    cpus: int = 1  # of each rank


class _NeedBasis(msgspec.Struct, frozen=True):
    """The source of a task's need: records, and predictions by curves through them.

    ``failed`` is a run of such a command that failed at once, where there is no other.
    """

    records: tuple[str, ...] = ()  # ids
    predictions: tuple[NeedPrediction, ...] = ()
    launch: LauncherLayout | None = None  # None: the line starts no ranks
    failed: str | None = None  # id; None: there are other runs

    def predicts(self, quantity: Quantity) -> bool:
        """Return whether a curve predicts *quantity*."""
        return any(one.quantity == quantity for one in self.predictions)


def needs_of_tasks(
    task_lines: Iterable[str],
    given: StatedUsage,
    headroom: float,
    library: RecordLibrary,
    parameters_of: ParametersOf | None = None,
) -> TaskNeeds:
    """Return what each of *task_lines* needs: its usage plus *headroom* (0.2: 20 %).

    *given* overrides what was measured. *parameters_of* returns a task's parameters by
    its number and line.

    Raises:
        UsageError: a task matches none of the records that the user named.
    """
    grounds = _NeedFinder(library, given.quantities)
    places: list[int] = []
    # tasks of one basis are one kind: a plan of 100,000 tasks works out few needs
    found: dict[_NeedBasis, int] = {}
    counts: list[int] = []
    examples: list[str] = []
    for number, line in enumerate(task_lines, start=1):
        own = parameters_of(number, line) if parameters_of else {}
        basis = grounds.of(line, own)
        # a cheap filter: splitting each line into words is slow
        if MAY_LAUNCH.search(line):
            launch = launch_of(task_line_words(line))
            basis = replace(basis, launch=launch)
        place = found.setdefault(basis, len(found))
        # a kind that is new gets the next index; the first line is shown as its
        # example, without secrets
        if place == len(counts):
            counts.append(0)
            examples.append(MASK.line(line))
        counts[place] += 1
        places.append(place)
    # several kinds may rest on the same records, which are read once
    measured: dict[tuple[str, ...], tuple[_MeasuredKind, tuple[GpuUsage, ...]]] = {}
    kinds: list[TaskKind] = []
    for basis, place in found.items():
        if basis.records not in measured:
            records = grounds.with_gpus_of_like_runs(
                [library.read(name) for name in basis.records]
            )
            gpus = tuple(gpu for record in records for gpu in _gpus_with_memory(record))
            measured[basis.records] = _measured_kind(records, given, headroom), gpus
        base = measured[basis.records][0]
        kind = _kind_with_predictions(base.kind, basis.predictions, headroom)
        kind = _kind_with_layout(kind, base, basis, given)
        notes = kind.notes
        if basis.failed is not None and not given.is_whole:
            notes = (*notes, _failed_run_note(basis.failed))
        kinds.append(
            replace(kind, tasks=counts[place], example=examples[place], notes=notes)
        )
    if given.nodes is None:
        kinds = list(_placed_alike(kinds, [basis.launch for basis in found]))
    used_gpus = [gpu for _, gpus in measured.values() for gpu in gpus]
    gpu = used_gpus[0] if used_gpus else None
    return TaskNeeds(
        tuple(kinds), tuple(places), gpu, grounds.unlike, dict(grounds.unnamed)
    )


def _failed_run_note(record: str) -> str:
    name = record[:_SHOWN]
    return (
        f"the measured run {name} failed within its first second, so it does not show "
        f"what a task needs: weigh records show {name}"
    )


class _NeedFinder:
    """Finds the records and predictions for the need of a line."""

    def __init__(self, library: RecordLibrary, stated: frozenset[Quantity]) -> None:
        self._library = library
        self._finder = SimilarRecordFinder(library)
        self._stated = stated
        # by the ids of the records: lines that differ only in numbers share the fit
        self._fitted: dict[tuple[str, ...], NeedCurves | None] = {}
        self._only: dict[tuple[str, ...], Sizes] = {}  # sizes that all these runs share
        self._like: dict[str, tuple[str, ...]] = {}  # ids of like runs, by that of one
        self.unlike: dict[str, float] = {}
        self.unnamed: Counter[str] = Counter()  # tasks without a size, by its name

    def of(self, task_line: str, parameters: Parameters) -> _NeedBasis:
        """Return the records of equal runs, or else predictions from similar ones.

        Raises:
            UsageError: the user named records, and none is of a similar command.
        """
        parts = command_parts(task_line_words(task_line))
        basis = _NeedBasis()
        if self._library.known:
            basis = self._of_runs(task_line, parts, parameters)
        if basis.records:
            return basis
        return _NeedBasis(failed=self._library.failed.get(parts[0]))

    def _of_runs(
        self, task_line: str, line_parts: Parts, parameters: Parameters
    ) -> _NeedBasis:
        alike = self._finder.most_alike(task_line, line_parts)
        names = tuple(name for one in alike for name in one.names)[:_MOST_READ]
        curves = self._curves(names, alike)
        sizes = sizes_in(task_line_words(task_line), parameters)
        for name, only in self._only[names].items():
            # nothing is known of the effect of a size that never varied: the plan notes
            # it
            if sizes.get(name, only) != only:
                self.unlike[name] = only
        if curves is not None and curves.names:
            sizes = curves.sizes_under_all_names(sizes)
            measured = curves.measured(sizes)
            # a run at the same sizes is worth more than any curve through others
            if measured:
                return _NeedBasis(measured)
            predictions = tuple(
                one for one in curves.at(sizes) if one.quantity not in self._stated
            )
            if predictions:
                return _NeedBasis(names, predictions)
            self.unnamed.update(name for name in curves.names if name not in sizes)
        return _NeedBasis(nearest_records(alike, line_parts[2]))

    def with_gpus_of_like_runs(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return the records; with the fullest GPUs of like runs if theirs are unknown.

        Of tasks that shared a GPU while they were measured, one may lack its figure.
        """
        if any(not _is_gpu_use_unknown(record) for record in records):
            return records
        likes = dict.fromkeys(n for r in records for n in self._like.get(r.id, ()))
        usages = [u for name in likes if (u := self._library.read(name).usage)]
        gpus = max((u.gpus for u in usages), key=_fullest_gpu, default=())
        return [
            replace(record, usage=replace(record.usage, gpus=gpus))
            if record.usage and _fullest_gpu(gpus)
            else record
            for record in records
        ]

    def _curves(
        self, names: tuple[str, ...], alike: Sequence[CandidateRecords]
    ) -> NeedCurves | None:
        if names not in self._fitted:
            self._like.update(dict.fromkeys(names, names))
            self._fitted[names] = self._fit(names, alike)
        return self._fitted[names]

    def _fit(
        self, names: tuple[str, ...], alike: Sequence[CandidateRecords]
    ) -> NeedCurves | None:
        """Fit curves to the records of *names*; None where their sizes are equal."""
        # in the order of *names*, and cut off at the same place
        sizes = [own for one in alike for own in one.sizes][: len(names)]
        self._only[names] = _only_sizes(sizes)
        if not has_varying_size(sizes):
            return None
        return NeedCurves([self._library.read(name) for name in names], sizes)


def _only_sizes(sizes_of_runs: Sequence[Sizes]) -> Sizes:
    """Return the sizes that are equal in all runs."""
    first = sizes_of_runs[0] if sizes_of_runs else {}
    return {
        name: value
        for name, value in first.items()
        if all(own.get(name) == value for own in sizes_of_runs)
    }


def _kind_with_predictions(
    task_kind: TaskKind, predictions: Sequence[NeedPrediction], headroom: float
) -> TaskKind:
    """Take over the predictions: the upper bound, or the headroom if that is larger."""
    if not predictions:
        return task_kind
    item, used, virtual = task_kind.item, task_kind.used, task_kind.virtual_memory
    for one in predictions:
        # the headroom is what the user asks for at least, even where the curve is
        # certain
        need = max(one.bound, one.expected * (1 + headroom))
        if one.quantity == "gpu_memory":
            item = replace(item, gpu_memory=math.ceil(need))
            used = replace(used, gpu_memory=math.ceil(one.expected))
        elif one.quantity == "memory":
            memory = max(LEAST_MEMORY, round_shared(need))
            # each byte of memory is also a byte of address space, what is only mapped
            # stays
            virtual = _enlarged_address_space(virtual, memory - item.memory)
            item = replace(item, memory=memory)
            used = replace(used, memory=math.ceil(one.expected))
        else:
            item = replace(item, time=need)
            used = replace(used, time=one.expected)
    return replace(
        task_kind,
        item=item,
        used=used,
        runs=max(one.runs for one in predictions),
        records=task_kind.records[:_MOST_NAMED],
        predictions=tuple(predictions),
        virtual_memory=virtual,
    )


def _enlarged_address_space(virtual: Bytes | None, more: Bytes) -> Bytes | None:
    """Return the address space of a task that needs *more* memory than was measured."""
    return None if virtual is None else virtual + max(0, more)


class _MeasuredKind(NamedTuple):
    """A kind of task as its records were, and their request; None without records.

    ``starts``: the command that was measured started the ranks itself.
    """

    kind: TaskKind
    request: Request | None  # None: there are no records
    starts: bool  # False also if weigh ran in each rank


def _measured_kind(
    records: Sequence[Record], given: StatedUsage, headroom: float
) -> _MeasuredKind:
    """Return the kind of task with these records; *given* overrides them."""
    request = from_usages(records, headroom=headroom) if records else None
    gpus = [gpu for record in records for gpu in _gpus_with_memory(record)]
    walls = (
        record.usage.wall_time + record.left_out_time
        for record in records
        if record.usage
    )
    time = _longest_time(walls) if given.time is None else given.time
    gpu_memory = given.gpu_memory
    if gpu_memory is None:
        gpu_memory = _fullest_gpu(gpus)
    cpus = given.cpus or (request.cpus if request else 1)
    whole = given.gpus or _whole_gpus_of_records(records)
    memory, limit = (
        given.memory,
        None if time is None else _size_with_headroom(time, headroom),
    )
    if request is not None and given.time is None:
        asked = request.time_limit or 0
        # it knows more than the longest time: runs that were stopped by their limit
        # double it. Else not rounded: tasks in turn would be that of many roundings
        limit = asked if asked > round_time(limit or 0) else limit
    measured = (request and request.memory) or 0
    # 0: not known, and the plan notes that
    needed = measured if memory is None else _size_with_headroom(memory, headroom)
    kind = TaskKind(
        item=TaskNeed(
            _size_with_headroom(gpu_memory, headroom), needed, cpus, limit, whole
        ),
        used=TaskNeed(
            gpu_memory,
            _largest_peak_memory(records) if memory is None else memory,
            cpus,
            time,
            whole,
        ),
        # both are filled in by the caller, once per kind
        tasks=0,
        example="",
        runs=request.runs if request else 0,
        records=tuple(record.id for record in records),
        busy=_longest_time(_gpu_busy_share(gpu) for gpu in gpus),
        notes=measurement_notes(records, given),
        # a stated memory above the measured one moves the address space along with it
        virtual_memory=_enlarged_address_space(
            request.virtual_memory if request else None, needed - measured
        ),
    )
    return _MeasuredKind(kind, request, any(map(_starts_itself, records)))


def _starts_itself(record: Record) -> bool:
    """Return whether the command started the ranks: none had a weigh of its own."""
    # rank_memory is that of each rank's own weigh, which exists if the launcher started
    # it
    has_own = record.monitor is not None and bool(record.monitor.rank_memory)
    return not has_own and bool(record.ranks or launch_of(words_run(record.command)))


def _kind_with_layout(
    task_kind: TaskKind, base: _MeasuredKind, basis: _NeedBasis, given: StatedUsage
) -> TaskKind:
    """Return the kind with the layout of its ranks: as stated, else as measured."""
    launch = basis.launch
    if launch is None and given.nodes is not None:  # each node runs the line
        return _with_item(task_kind, nodes=given.nodes, ntasks=0)
    measured = base.request
    # neither the line nor the run starts ranks: one process on one node
    if launch is None and (measured is None or (measured.ntasks or 1) == 1):
        return task_kind
    # the launcher was in front of weigh run, so it is not part of the measured command,
    # and this line would start a single rank
    if launch is None and measured is not None and not base.starts:
        return _with_note(task_kind, _missing_launcher_note(measured))
    return _kind_with_ranks(task_kind, base, basis, given)


def _placed_alike(
    kinds: Sequence[TaskKind], launches: Sequence[LauncherLayout | None]
) -> Iterator[TaskKind]:
    """Yield the kinds; ranks that may be anywhere go where as many were measured."""
    # what was measured on two nodes fits two nodes, and is not known to fit one
    nodes = {kind.item.ntasks: kind.item.nodes for kind in kinds if kind.records}
    for kind, launch in zip(kinds, launches, strict=True):
        is_free = launch and not (kind.records or launch.nodes or launch.per_node)
        if is_free and kind.item.ntasks in nodes:
            old = kind.item
            kind = _with_item(kind, nodes=nodes[old.ntasks], ntasks=old.ntasks)  # noqa: PLW2901
            # the CPUs of a rank stay; those of a node follow from the ranks on it
            cpus = old.cpus // max(1, old.per_node) * kind.item.per_node
            kind = _with_item(kind, cpus=max(1, cpus))  # noqa: PLW2901
        yield kind


def _kind_with_ranks(
    task_kind: TaskKind, base: _MeasuredKind, basis: _NeedBasis, given: StatedUsage
) -> TaskKind:
    """Return the kind with as many ranks as its line, or the run measured, started."""
    launch, request = basis.launch or LauncherLayout(), base.request
    measured = request if request is not None and request.ntasks else None
    as_measured = (measured and measured.ntasks) or 0
    ntasks = launch.ntasks or as_measured
    # the most certain source first: the option, the launcher's options, the measured
    # run
    nodes = given.nodes or launch.nodes
    if nodes is None and launch.per_node:
        nodes = -(-ntasks // launch.per_node)
    if nodes is None and measured is not None:
        keeps = ntasks == as_measured or basis.predicts("memory")
        each = measured.ntasks_per_node or 1
        nodes = measured.nodes if keeps else -(-ntasks // each)
    nodes = nodes or 1
    # a single rank needs no launcher, and 0 stands for that
    if ntasks <= 1:
        return _with_item(task_kind, nodes=nodes, ntasks=0)
    nodes = min(nodes, ntasks)
    per_node = -(-ntasks // nodes)
    cpus = launch.cpus or (request.cpus if request is not None else 1)
    if given.cpus is not None:  # of a node
        cpus = -(-given.cpus // per_node)
    task_kind = _with_item(task_kind, cpus=cpus * per_node, nodes=nodes, ntasks=ntasks)
    # memory that is stated or predicted is already that of a node
    if request is None or given.memory is not None or basis.predicts("memory"):
        return task_kind
    if measured is not None:
        return _kind_with_rank_memory(task_kind, measured)
    # the measured command started its ranks itself: its peak includes them all
    if base.starts:
        return task_kind
    note = f"measured as one process: a node is planned for {per_node} times its memory"
    return _kind_with_memory(task_kind, per_node, note)


def _kind_with_rank_memory(task_kind: TaskKind, measured: Request) -> TaskKind:
    """Return the kind with memory for its ranks, each as large as those *measured*."""
    factor, per_node = 1.0, task_kind.item.per_node
    if per_node > (measured.ntasks_per_node or 1) and task_kind.item.memory:
        # memory_per_cpu covers the largest rank in any placement, so this is one rank's
        each = (measured.memory_per_cpu or 0) * measured.cpus
        factor = max(1.0, each * per_node / task_kind.item.memory)
    note = None
    if task_kind.item.ntasks != measured.ntasks:
        note = (
            f"measured with {measured.ntasks} ranks: planned as if each of "
            f"{task_kind.item.ntasks} used as much"
        )
    return _kind_with_memory(task_kind, factor, note)


def _with_item(task_kind: TaskKind, **changes: int) -> TaskKind:
    return replace(task_kind, item=replace(task_kind.item, **changes))


def _kind_with_memory(
    task_kind: TaskKind, factor: float, kind_note: str | None
) -> TaskKind:
    memory = round_shared(task_kind.item.memory * factor)
    task_kind = _with_item(task_kind, memory=memory)
    return task_kind if kind_note is None else _with_note(task_kind, kind_note)


def _with_note(task_kind: TaskKind, kind_note: str) -> TaskKind:
    return replace(task_kind, notes=(*task_kind.notes, kind_note))


def _missing_launcher_note(measured: Request) -> str:
    return (
        f"measured with {measured.ntasks} ranks, and the task starts one: write its "
        f"launcher with -n {measured.ntasks} in front of it"
    )


def _size_with_headroom(measured_size: float, headroom: float) -> int:
    # round to a thousandth first: as a float 1.1 is a little more than 1.1
    return math.ceil(round(measured_size * (1 + headroom), 3))


def _longest_time(known_times: Iterable[float | None]) -> float | None:
    return max((value for value in known_times if value is not None), default=None)


def _is_gpu_use_unknown(record: Record) -> bool:
    """Return whether a run may have used a GPU of which its record has no memory."""
    gpus = record.usage.gpus if record.usage else ()
    is_unused = bool(gpus) and all(gpu.was_used is False for gpu in gpus)
    return not is_unused and not _fullest_gpu(gpus)


def _fullest_gpu(gpus: Sequence[GpuUsage]) -> Bytes:
    return max((_gpu_peak(gpu) or 0 for gpu in gpus), default=0)


def _gpus_with_memory(record: Record) -> tuple[GpuUsage, ...]:
    """Return the GPUs on which a record's run held memory."""
    if record.usage is None:
        return ()
    # a GPU that was only visible is not one that the task needs
    return tuple(gpu for gpu in record.usage.gpus if _gpu_peak(gpu))


def _whole_gpus_of_records(records: Sequence[Record]) -> int:
    """Return the number of GPUs of a run on several; 0 for one, which can be shared."""
    usages = [record.usage.gpus for record in records if record.usage is not None]
    most = max((sum(gpu.may_be_needed for gpu in gpus) for gpus in usages), default=0)
    return most if most > 1 else 0


def _gpu_peak(gpu_usage: GpuUsage) -> Bytes | None:
    return gpu_usage.job_peak


def _gpu_busy_share(gpu_usage: GpuUsage) -> float | None:
    mean = gpu_usage.utilization_mean
    # NVML reports per cent
    return None if mean is None else min(1.0, mean / 100)


def _largest_peak_memory(records: Sequence[Record]) -> Bytes:
    usages = [record.usage for record in records if record.usage]
    peaks = [usage.peak_memory.value for usage in usages if usage.peak_memory]
    return max(peaks, default=0)


def measurement_notes(records: Sequence[Record], given: StatedUsage) -> tuple[str, ...]:
    """Return what limits the figures of *records*, unless *given* overrides them."""
    notes = []
    if given.memory is None and any(r.usage and r.usage.growing for r in records):
        notes.append(
            "memory was still rising at the end of a run: measure a longer one"
        )
    missing = dict.fromkeys(part for record in records for part in record.missing)
    if given.memory is None and missing:
        notes.append(f"memory is a lower bound: {'; '.join(missing)}")
    states = sorted({r.state for r in records if r.state != "COMPLETED"})
    if states:
        notes.append(f"based on runs that did not complete ({', '.join(states)})")
    return tuple(notes)
