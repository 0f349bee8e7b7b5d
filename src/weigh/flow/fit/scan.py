"""``weigh scan``: run a command at a few sizes, and say what they foretell."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import config
from weigh.errors import RecordNotFoundError, UsageError
from weigh.estimate.readings import gpu_memory
from weigh.flow.fit.fit import Answer
from weigh.flow.fit.fit import answer as fit_answer
from weigh.flow.fit.scan_runs import Say, ScanRuns, Texts
from weigh.flow.fit.wishes import Asked, Wishes, read_wishes
from weigh.flow.records.records import open_store
from weigh.model.record import Record
from weigh.store.find import find_all
from weigh.store.ids import new_id
from weigh.store.scans import Scan, append_scan, last_scan
from weigh.sweep.fields import fields, fill, match_fields
from weigh.sweep.grid import make_grid
from weigh.sweep.quoting import quoted
from weigh.sweep.values import Axis, parse_axis
from weigh.units import format_size

_FAILED = 1
_FEWEST = 2
_LABEL_LETTERS = 6


class ScanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, at which sizes; ``resume`` goes on with the last scan."""

    axes: tuple[str, ...]
    command: tuple[str, ...] = ()
    repeat: int = 1
    label: str | None = None
    resume: bool = False
    confirm: bool = False
    dry_run: bool = False


class ScanAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the sizes foretell; None where too few of them ran."""

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
    by = _sized(axes)
    settings = config.load(cwd, env)
    asked = read_wishes(wishes, by, settings.gpus)  # refused before anything is run
    plan = _plan(options, axes, root, cwd)
    if wishes.target is None and plan.by == by:  # as before it was resumed
        wishes = msgspec.structs.replace(wishes, target=plan.target)
        asked = read_wishes(wishes, by, settings.gpus)
    plan = _kept(plan, wishes, by, root, options)
    runs = sorted(list(_sizes(axes)) * options.repeat, key=_magnitude)
    if not options.resume and len({str(texts) for texts in runs}) < _FEWEST:
        raise UsageError(f"{by}: one size; a curve takes two, better three")
    if options.dry_run:
        commands = tuple(fill(plan.command, texts) for texts in runs)
        return ScanAnswer(fit=None, exit_code=0, label=plan.label, planned=commands)
    for warning in settings.warnings:
        say(warning)
    known = _known(root, plan.label) if options.resume else []
    if options.resume and not known:
        say("nothing to go on with: this is a new scan")
    measured = ScanRuns(plan, root, env, say=say, known=known)
    measured.all(runs, options.repeat)
    return _concluded(measured, by, options, asked)


def _concluded(
    measured: ScanRuns, by: str, options: ScanOptions, asked: Asked
) -> ScanAnswer:
    label = measured.plan.label
    found = _fitted(measured, by, asked)
    if found is None:
        code = measured.exit_code or _FAILED
        return ScanAnswer(fit=None, exit_code=code, label=label)
    confirmed = None
    if options.confirm and not measured.exit_code:
        confirmed = _confirm(measured, found)
        found = _fitted(measured, by, asked) or found
    return ScanAnswer(
        fit=found, exit_code=measured.exit_code, label=label, confirmed=confirmed
    )


def _fitted(measured: ScanRuns, by: str, asked: Asked) -> Answer | None:
    try:
        found = fit_answer(measured.records[::-1], by, asked)
    except UsageError as error:  # too few sizes ran
        measured.say(f"no curve: {error}")
        return None
    made, size = found.advice.estimate, found.advice.next_size
    if size is not None and made.by == by and "," not in by:
        narrow = f"weigh scan --resume {quoted(f'{made.by}={size}')}"
        found = msgspec.structs.replace(found, narrow=narrow)
    return found


def _confirm(measured: ScanRuns, found: Answer) -> str:
    """Run the recommended size once, and say whether its bound held."""
    need = found.advice.recommended or found.advice.target
    name = found.advice.estimate.by
    if need is None or fields(measured.plan.command) != (name,):
        return "nothing to confirm: no one size is recommended"
    size = f"{need.size:.0f}" if need.size >= 1 else str(need.size)
    done = measured.one({name: size})
    record = measured.records[-1]
    usage = record.usage
    if not done or usage is None or usage.peak_memory is None:
        return f"{name}={size} did not hold: {record.state}"
    bound, used, of = need.memory_upper, usage.peak_memory.value, "memory"
    if need.gpu_memory_upper is not None:
        bound, used, of = need.gpu_memory_upper, gpu_memory(usage) or 0, "GPU memory"
    verdict = "held" if bound is None or used <= bound else "did not hold"
    against = "" if bound is None else f", at most {format_size(bound)} was foretold"
    return f"{name}={size} {verdict}: {format_size(used)} of {of}{against}"


def _sized(axes: Sequence[Axis]) -> str:
    """Return the parameters that are sizes: numbers, of more than one value."""
    numbers = [a for a in axes if not any(isinstance(v, str) for v in a.values)]
    if axes and not numbers:
        words = ", ".join(axis.name for axis in axes)
        raise UsageError(
            f"{words}: {_no_number(axes)} is no number: a curve needs sizes"
        )
    for axis in numbers:
        for value, text in zip(axis.values, axis.texts, strict=True):
            if not isinstance(value, str) and value <= 0:
                raise UsageError(f"{axis.name}={text} is no size above 0")
    several = [axis.name for axis in numbers if len(set(axis.values)) > 1]
    return ",".join(several or [axis.name for axis in numbers[:1]])


def _no_number(axes: Sequence[Axis]) -> str:
    """Return the first value that is no number, quoted."""
    pairs = [pair for one in axes for pair in zip(one.values, one.texts, strict=True)]
    return next(repr(text) for value, text in pairs if isinstance(value, str))


def _plan(options: ScanOptions, axes: tuple[Axis, ...], root: str, cwd: str) -> Scan:
    """Name what is to be run: a new scan, or the last one to go on with."""
    if not axes:
        raise UsageError(
            "no sizes: weigh scan batch_size=50,100,300 -- python tag.py {batch_size}"
        )
    names = tuple(axis.name for axis in axes)
    if not options.command:
        return _resumed(options, root, names)
    match_fields(options.command, names)
    if options.resume:
        before = last_scan(root, options.label)
        if before is not None and (before.command, before.cwd) == (
            options.command,
            cwd,
        ):
            return before
    label = options.label or f"scan-{new_id()[:_LABEL_LETTERS]}"
    return Scan(label, options.command, cwd)


def _kept(plan: Scan, wishes: Wishes, by: str, root: str, options: ScanOptions) -> Scan:
    """Keep the scan with its target: `weigh report` shows the same request later."""
    kept = msgspec.structs.replace(
        plan,
        by=by,
        target=plan.target if wishes.target is None else wishes.target,
        level=wishes.level,
    )
    if not options.dry_run and (kept != plan or not options.resume):
        append_scan(root, kept)
    return kept


def _resumed(options: ScanOptions, root: str, names: tuple[str, ...]) -> Scan:
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
