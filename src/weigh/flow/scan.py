"""``weigh scan``: run a command at a few sizes, and say what they foretell."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import RecordNotFoundError, UsageError
from weigh.estimate.readings import gpu_memory
from weigh.flow.fit import Answer, Wishes
from weigh.flow.fit import answer as fit_answer
from weigh.flow.records import open_store
from weigh.flow.weighed import Told, last_line, run_weighed
from weigh.model.record import Record
from weigh.store.find import find_all
from weigh.store.ids import new_id
from weigh.store.location import make_folder
from weigh.store.scans import Scan, append_scan, last_scan
from weigh.sweep.fields import fill, match_fields
from weigh.sweep.grid import make_grid
from weigh.sweep.values import Axis, parse_axis
from weigh.units import format_duration, format_size

_OUTPUT = "output"
_FAILED = 1
_FEWEST = 2
_SIGNAL_BASE = 128
_LABEL_LETTERS = 6
_DONE = frozenset(("COMPLETED", "OUT_OF_MEMORY"))

Say = Callable[[str], None]
Texts = dict[str, str]


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, at which sizes; ``resume`` goes on with the last scan."""

    axes: tuple[str, ...]
    command: tuple[str, ...] = ()
    repeat: int = 1
    label: str | None = None
    resume: bool = False
    confirm: bool = False
    dry_run: bool = False


class ScanAnswer(msgspec.Struct, frozen=True):
    """What the sizes foretell; None where too few of them ran, with the reason."""

    fit: Answer | None
    exit_code: int
    label: str
    planned: tuple[tuple[str, ...], ...] = ()
    confirmed: str | None = None


def scan(
    options: ScanOptions,
    wishes: Wishes,
    *,
    say: Say,
    cwd: str,
    env: Mapping[str, str],
) -> ScanAnswer:
    """Run the command at each size, small ones first, and fit what was measured.

    It stops at a size that runs out of memory, which is a bound too, and at one that
    fails; what was measured is kept. *say* is told of each run.

    Raises:
        UsageError: the sizes and the command do not go together.
        FormatError: sizes or wishes do not parse.
        CommandNotFoundError: no such command.
        WeighError: weigh itself failed.
    """
    root = open_store(cwd, env).root
    axes = tuple(parse_axis(text) for text in options.axes)
    plan = _plan(options, axes, root, cwd)
    runs = list(_sizes(axes)) * options.repeat
    runs.sort(key=_magnitude)
    by = ",".join(_sized(axes))  # what carries no curve is refused before it runs
    if not options.resume and len({str(texts) for texts in runs}) < _FEWEST:
        raise UsageError(f"{by}: one size; a curve takes two, better three")
    if options.dry_run:
        commands = tuple(fill(plan.command, texts) for texts in runs)
        return ScanAnswer(None, 0, plan.label, planned=commands)
    known = _known(root, plan.label) if options.resume else []
    measured = _Measured(plan, root, env, say, known)
    measured.all(runs, options.repeat)
    return _concluded(measured, by, options, wishes, cwd=cwd, env=env)


def _sized(axes: Sequence[Axis]) -> tuple[str, ...]:
    """Return the parameters that are sizes: numbers, of more than one value."""
    names = tuple(
        axis.name
        for axis in axes
        if not any(isinstance(value, str) for value in axis.values)
    )
    if not names:
        words = ", ".join(axis.name for axis in axes)
        raise UsageError(f"{words}: no numbers to draw a curve through")
    for axis in axes:
        for value in axis.values:
            if not isinstance(value, str) and value <= 0:
                raise UsageError(f"{axis.name}={value} is no size above 0")
    several = [a.name for a in axes if len(set(a.values)) > 1 and a.name in names]
    return tuple(several) or names[:1]


class _Measured:
    """The records of a scan as they come in, newest last."""

    def __init__(
        self,
        plan: Scan,
        root: str,
        env: Mapping[str, str],
        say: Say,
        known: Sequence[Record],
    ) -> None:
        self.plan = plan
        self.env = {**env, "WEIGH_DIR": root}
        self.say = say
        self.records = list(known)
        self.exit_code = 0
        self._folder = make_folder(root, _OUTPUT, plan.label)

    def all(self, runs: Sequence[Texts], repeat: int) -> None:
        """Run what has not been measured yet, until one does not complete."""
        try:
            for texts in runs:
                if self._count(texts) < repeat and not self.one(texts):
                    return
        except Told as told:
            self.exit_code = _SIGNAL_BASE + told.number
            self.say(f"stopped by {signal.Signals(told.number).name}; what ran is kept")

    def one(self, texts: Texts) -> bool:
        """Run one size; False where nothing larger is worth a try."""
        name = "-".join(f"{key}-{text}" for key, text in texts.items())
        name = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)[:80]
        log = os.path.join(self._folder, f"{name}.{self._count(texts) + 1}.log")
        record = run_weighed(
            fill(self.plan.command, texts),
            label=self.plan.label,
            texts=texts,
            log=log,
            env=self.env,
        )
        self.records.append(record)
        self.say(_told(texts, record))
        if record.state == "OUT_OF_MEMORY":
            self.say("a larger one would not fit either: stopped here")
        elif record.state != "COMPLETED":
            code = record.exit_code
            self.exit_code = (
                code if code is not None else _SIGNAL_BASE + (record.signal or 0)
            ) or _FAILED
            self.say(f"its last words: {last_line(log) or 'none'}")
            self.say(f"its output: {os.path.relpath(log)}")
        return record.state == "COMPLETED"

    def _count(self, texts: Texts) -> int:
        return sum(
            record.state in _DONE
            and all(str(record.parameters.get(k)) == _read(v) for k, v in texts.items())
            for record in self.records
        )


def _concluded(  # noqa: PLR0913 - what was measured, and what to say of it
    measured: _Measured,
    by: str,
    options: ScanOptions,
    wishes: Wishes,
    *,
    cwd: str,
    env: Mapping[str, str],
) -> ScanAnswer:
    label = measured.plan.label
    try:
        found = fit_answer(measured.records[::-1], by, wishes, cwd=cwd, env=env)
    except UsageError as error:
        if not measured.exit_code:
            raise
        measured.say(f"no curve: {error}")
        return ScanAnswer(None, measured.exit_code, label)
    confirmed = None
    if options.confirm and not measured.exit_code:
        confirmed = _confirm(measured, found, options)
        found = fit_answer(measured.records[::-1], by, wishes, cwd=cwd, env=env)
    return ScanAnswer(found, measured.exit_code, label, confirmed=confirmed)


def _confirm(measured: _Measured, found: Answer, options: ScanOptions) -> str | None:
    """Run the recommended size once, and say whether its bound held."""
    need = found.advice.recommended or found.advice.target
    axes = [parse_axis(text) for text in options.axes]
    if need is None or len(axes) != 1:
        return "nothing to confirm: no one size is recommended"
    size, name = round(need.size), axes[0].name
    done = measured.one({name: str(size)})
    usage = measured.records[-1].usage
    if not done or usage is None or usage.peak_memory is None:
        return f"{name}={size} did not hold: {measured.records[-1].state}"
    bound, used = need.memory_upper, usage.peak_memory.value
    if need.gpu_memory_upper is not None:
        bound, used = need.gpu_memory_upper, gpu_memory(usage) or 0
    held = bound is None or used <= bound
    verdict = "held" if held else "did not hold"
    against = "" if bound is None else f" of at most {format_size(bound)}"
    return f"{name}={size} {verdict}: {format_size(used)}{against}"


def _plan(options: ScanOptions, axes: tuple[Axis, ...], root: str, cwd: str) -> Scan:
    if not axes:
        raise UsageError(
            "no sizes: weigh scan batch_size=50,100,300 -- python tag.py {batch_size}"
        )
    if not options.command:
        return _resumed(options, root, [axis.name for axis in axes])
    match_fields(options.command, [axis.name for axis in axes])
    if options.resume:
        before = last_scan(root, options.label)
        if before is not None and before.command == options.command:
            return before
    label = options.label or f"scan-{new_id()[:_LABEL_LETTERS]}"
    made = Scan(label, options.command, cwd)
    if not options.dry_run:
        append_scan(root, made)
    return made


def _resumed(options: ScanOptions, root: str, names: list[str]) -> Scan:
    if not options.resume:
        raise UsageError("no command: put it after --, with {name} where a size goes")
    before = last_scan(root, options.label)
    if before is None:
        called = f" called {options.label}" if options.label else ""
        raise UsageError(f"no scan{called} to resume: give its command after --")
    match_fields(before.command, names)
    return before


def _known(root: str, label: str) -> list[Record]:
    try:
        return find_all(root, label)[::-1]
    except RecordNotFoundError:
        return []


def _sizes(axes: Sequence[Axis]) -> Iterator[Texts]:
    grid = make_grid(axes)
    for index in range(grid.size):
        yield grid.combination(index).texts


def _magnitude(texts: Texts) -> float:
    """Order sizes by the product of their numbers; what is no number counts as 1."""
    size = 1.0
    for text in texts.values():
        try:
            size *= abs(float(text))
        except ValueError:
            continue
    return size


def _read(text: str) -> str:
    """Write a value as a record holds it: ``1e2`` and ``100.0`` are the same size."""
    for read in (int, float):
        try:
            return str(read(text))
        except ValueError:
            continue
    return text


def _told(texts: Texts, record: Record) -> str:
    name = " ".join(f"{key}={text}" for key, text in texts.items())
    usage = record.usage
    if usage is None:
        return f"{name}  {record.state}"
    peak = usage.peak_memory
    memory = "-" if peak is None else format_size(peak.value)
    state = "" if record.state == "COMPLETED" else f"  {record.state}"
    return f"{name}  {format_duration(usage.wall_time)}  {memory}{state}"
