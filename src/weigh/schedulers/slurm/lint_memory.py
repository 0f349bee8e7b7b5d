"""Lint for Slurm 26.05's ``--mem-update``: a memory limit that falls during the job.

The option is read as sbatch 26.05.5 does: a whole percentage, and a delay that is
rounded up to whole minutes. The look is at the job's start plus the delay.
"""

import math
import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.errors import FormatError
from weigh.estimate.settled import fall, longest, lowered, needed_margin
from weigh.model.growth import Fall
from weigh.model.lint import Finding
from weigh.model.record import Record
from weigh.request import DEFAULT_HEADROOM
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.lint.case import Case, Option, Rule, note, problem, refused
from weigh.schedulers.slurm import text as slurm_text
from weigh.schedulers.slurm.limits import MEMORY_UPDATE_SINCE
from weigh.units import MINUTE, Bytes, format_duration, format_size, parse_limit

AUTO = "auto"
_MOST = 65535  # 16 bits, of the margin and of the delay
_LITTLE = 5  # percent: a smaller margin may be meant as a factor
_FACTOR = 10.0  # a number with decimals below it is one
_NAMED = 3
_STEPMGR = "SlurmctldParameters=enable_stepmgr"
_EXAMPLE = "write it like 20@10 (percent, minutes)"


class _Update(msgspec.Struct, frozen=True):
    """The value as Slurm reads it: ``margin`` in percent, ``delay`` in minutes."""

    margin: int
    delay: int


def _mem_update(case: Case) -> Iterator[Finding]:
    """Yield what --mem-update does to the job."""
    option = case.option("mem-update")
    if option is None:
        return
    update = _read(option.value)
    if update is None:
        yield _misread(option)
        return
    idle = [*_absent(case, option), *_without_effect(case, option, update)]
    if idle:
        yield idle[0]
    else:
        yield from _cuts(case, option, update)


def _read(value: str) -> _Update | None:
    """Read MARGIN@DELAY as Slurm does; None if it would be refused."""
    margin, _, delay = value.partition("@")
    percent = whole_number(margin)
    try:
        seconds = slurm_text.parse_time(delay)
    except FormatError:
        return None
    minutes = -(-(seconds or 0) // MINUTE)
    if percent is None or not (0 < percent <= _MOST and 0 < minutes <= _MOST):
        return None
    return _Update(percent, int(minutes))


def _misread(option: Option) -> Finding:
    """Return what is wrong with a value, and what was probably meant."""
    if option.value == AUTO:
        effect = "'auto' is a word of weigh submit: Slurm refuses it"
        fix = "type it: weigh submit ... --mem-update=auto, or write 20@10"
        return refused(option, "mem-update", effect, fix)
    margin, at, delay = option.value.partition("@")
    meant = _meant_margin(margin), _meant_delay(delay) if at else "10"
    effect = f"{option.value!r} is not a percentage and a delay: refused"
    if re.fullmatch(r"[\d.]+[KMGT]i?B?", margin, re.IGNORECASE):
        effect = f"{margin} is a size, and the margin is a percentage: refused"
    elif not at:
        effect = f"{option.value!r} has no delay: refused"
    fix = f"did you mean {meant[0]}@{meant[1]}?" if all(meant) else _EXAMPLE
    return refused(option, "mem-update", effect, fix)


def _meant_margin(text: str) -> str:
    """Return the percentage that was probably meant; empty if that is not clear."""
    word = text.removesuffix("%")
    if 0 < (whole_number(word) or 0) <= _MOST:
        return word
    try:
        number = float(word)
    except ValueError:
        return ""
    if text.endswith("%") or not 0 < number < _FACTOR:
        return str(math.ceil(number)) if 0 < number < _MOST else ""
    return str(math.ceil(100 * (number - 1 if number > 1 else number)))


def _meant_delay(text: str) -> str:
    """Return the delay in minutes that was probably meant; empty if not clear."""
    try:
        seconds = slurm_text.parse_time(text)
    except FormatError:
        try:
            seconds = parse_limit(text)
        except FormatError:
            return ""
    minutes = -(-(seconds or 0) // MINUTE)
    return str(minutes) if 0 < minutes <= _MOST else ""


def _absent(case: Case, option: Option) -> Iterator[Finding]:
    """Yield what the cluster lacks for the option."""
    limits = case.facts.limits
    missing = list((limits and limits.memory_update) or ())
    if case.option("stepmgr") is not None and _STEPMGR in missing:
        missing.remove(_STEPMGR)  # the job asks for one itself
    if MEMORY_UPDATE_SINCE in missing:
        effect = f"needs {MEMORY_UPDATE_SINCE}, and this is older: refused"
        yield refused(option, "mem-update", effect, "leave it out")
    elif missing:
        effect = f"the limit never falls: the cluster has not {' and '.join(missing)}"
        yield note(option, "mem-update", effect, "leave it out, or ask the site for it")


def _without_effect(case: Case, option: Option, update: _Update) -> Iterator[Finding]:
    """Yield why the limit would never fall."""
    after = format_duration(update.delay * MINUTE)
    limit = case.option("time")
    try:
        seconds = None if limit is None else slurm_text.parse_time(limit.value)
    except FormatError:
        seconds = None
    memory = case.option("mem")
    runs = case.facts.runs.all
    took = longest(runs)
    if memory is not None and memory.value.strip("KMGTkmgt") == "0":
        effect = "--mem=0 is all memory of the node: that limit never falls"
        yield note(option, "mem-update", effect, "request an amount")
    elif seconds is not None and seconds <= update.delay * MINUTE:
        effect = f"the delay of {after} is not below the time limit: no effect"
        yield note(option, "mem-update", effect, "the delay is in minutes")
    elif took is not None and took <= update.delay * MINUTE:
        which = f"the longest of {len(runs)} measured runs"
        effect = (
            f"{which if len(runs) > 1 else 'the measured run'} took "
            f"{format_duration(took)}, and the delay is {after}: no effect"
        )
        yield note(option, "mem-update", effect, f"a shorter delay ({_instead(case)})")


def _cuts(case: Case, option: Option, update: _Update) -> Iterator[Finding]:
    """Yield which measured runs the falling limit would kill, or come close to."""
    tasks, share = case.facts.runs, _share(case)
    killed = [
        (runs, found)
        for runs in tasks.kinds
        if (found := _worst(runs, update, share)) is not None
    ]
    if killed:
        for _, found in killed[:_NAMED]:
            effect = _fall_words(found)
            if len(killed) == len(tasks.kinds) or tasks.together == 1:
                yield problem(option, "mem-update", effect, _instead(case))
            else:  # the other tasks of the element may leave it enough
                yield note(option, "mem-update", effect, _instead(case))
        return
    if update.margin < _LITTLE:
        effect = f"{update.margin} is a percentage: the limit falls to just above usage"
        yield note(option, "mem-update", effect, "100 leaves twice the usage")
    if tasks.in_turn:
        effect = (
            "a task that just started uses little: the limit falls to what it has "
            "then, and later tasks of the element are killed"
        )
        yield note(option, "mem-update", effect, "leave it out where tasks run in turn")
    elif not tasks.all:
        yield note(option, "mem-update", *_general(update))
    else:
        yield from _close(case, option, update)


def _share(case: Case) -> Bytes | None:
    """Return the part of the job's memory that was requested for each task."""
    memory = case.granted.memory
    return None if memory is None else memory // case.facts.runs.together


def _worst(runs: Sequence[Record], update: _Update, share: Bytes | None) -> Fall | None:
    """Return how the limit would kill the run that is farthest above it."""
    found = (fall(run, update.margin, update.delay, share) for run in runs)
    return max(
        (one for one in found if one is not None),
        key=lambda one: one.peak / max(1, one.limit),
        default=None,
    )


def _fall_words(found: Fall) -> str:
    return (
        f"at {format_duration(found.time)} run {found.run} used "
        f"{format_size(found.used)}, so the limit falls to {format_size(found.limit)}; "
        f"at {format_duration(found.peak_time)} it needs {format_size(found.peak)}: "
        "killed"
    )


def _general(update: _Update) -> tuple[str, str]:
    effect = (
        f"after {format_duration(update.delay * MINUTE)} the limit falls to the usage "
        f"+ {update.margin} %: a later peak above it is killed. Slurm before 26.05 "
        "refuses the option"
    )
    fix = "use it only where memory is level from then on (weigh run shows its curve)"
    return effect, fix


def _close(case: Case, option: Option, update: _Update) -> Iterator[Finding]:
    """Yield a note where a slower or faster node would make a run too large."""
    runs = case.facts.runs.all
    needed = needed_margin(runs, update.delay, 0.0)
    if needed is not None and needed <= update.margin:
        return
    if needed is None:
        effect = (
            "the runs do not show that memory is level around "
            f"{format_duration(update.delay * MINUTE)}: a later peak may be killed"
        )
    else:
        effect = (
            f"{update.margin} % is just enough at "
            f"{format_duration(update.delay * MINUTE)}: on a slower or faster node the "
            f"measured runs need {needed} %"
        )
    yield note(option, "mem-update", effect, _instead(case))


def _instead(case: Case) -> str:
    """Return what would be right: another value, or none."""
    tasks = case.facts.runs
    if tasks.in_turn:
        return "leave it out: tasks run in turn"
    memory = case.granted.memory
    if memory is None:
        return "leave it out"
    found = lowered(tasks.kinds, memory, DEFAULT_HEADROOM, tasks.together)
    if isinstance(found, str):
        return f"leave it out: {found}"
    return f"--mem-update={found.margin}@{found.delay}"


RULES: tuple[Rule, ...] = (_mem_update,)
