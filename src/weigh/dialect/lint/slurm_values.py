"""Values that sbatch takes for something else, or not at all: sizes, times, GPUs.

What sbatch makes of each was seen on 22.05.8.
"""

import re
from collections.abc import Iterator

import msgspec

from weigh.dialect import slurm
from weigh.dialect.lint.case import (
    Case,
    Option,
    Rule,
    did_you_mean,
    error,
    note,
    refused,
    warning,
)
from weigh.dialect.numerals import positive_number, whole_number
from weigh.errors import FormatError
from weigh.model.lint import Finding
from weigh.units import DAY, HOUR, MINUTE, format_size

MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")

_TIMES = ("time", "time-min")
_TWO_FIELDS = re.compile(r"([0-9]{1,9}):([0-9]{2})")
_LIKELY_GIB = 256  # a bare --mem up to here is read as GiB by whoever wrote it
_LIKELY_HOURS = frozenset({1, 2, 3, 4, 5, 6, 8, 12, 24, 36, 48, 72, 96, 168})
# the look-ahead keeps a type from being a number, in one pass
_TYPE = r"(?P<type>(?=[^:=(]*[^:=(0-9])[^:=(]+)"
_COUNT = r"([0-9]{1,9})"
_GRES = re.compile(rf"(?:gres[/:])?gpu(?::{_TYPE})?(?::{_COUNT})?")
_TYPED = re.compile(rf"(?:{_TYPE}:)?{_COUNT}")
_MAILS = (
    *("NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT"),
    *("TIME_LIMIT", "TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS"),
)
_SIGNALS = (
    *("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "PIPE", "ALRM", "TERM", "CHLD"),
    *("CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ"),
)
_SIGNAL = re.compile(r"(?:[BR]{1,2}:)?(?:SIG)?(\w+)(?:@\d+)?", re.IGNORECASE)
_COUNTS = ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu", "mincpus")
_LITERAL = re.compile(r"\$\{?\w|\$\(|`")
_KEEPS_DOLLAR = ("comment", "wrap", "export")  # these mean it, or do not mind


class Gpus(msgspec.Struct, frozen=True):
    """GPUs that an option asks for; ``type`` is empty where any will do."""

    type: str
    count: int


def memory_of(option: Option | None) -> int | None:
    """Read a size in bytes, None where there is none or sbatch would refuse it."""
    try:
        return None if option is None else slurm.parse_memory(option.value)
    except FormatError:
        return None


def gpus_of(option: Option | None) -> Gpus | None:
    """Read the GPUs of ``--gres`` or one of ``--gpus...``."""
    if option is None:
        return None
    if option.name != "gres":
        found = _TYPED.fullmatch(option.value)
        return Gpus(found["type"] or "", int(found[2])) if found else None
    for part in option.value.split(","):
        found = _GRES.fullmatch(part)
        if found:
            return Gpus(found["type"] or "", int(found[2] or 1))
    return None


def _times(case: Case) -> Iterator[Finding]:
    for option in _last(case, _TIMES):
        try:
            seconds = slurm.parse_time(option.value)
        except FormatError:
            effect = f"{option.value!r} is no time to Slurm: refused"
            yield refused(option, "time", effect, "write 01:30:00 or 1-12:00:00")
            continue
        if option.value.strip("0:-") == "":
            effect = "asks for no limit: refused, or never started, where there is one"
            yield warning(option, "time-zero", effect)
        elif _TWO_FIELDS.fullmatch(option.value):
            yield _two_fields(option)
        elif (hours := whole_number(option.value) or 0) in _LIKELY_HOURS:
            cure = f"{hours} hours are {_clock(hours * HOUR)}"
            yield warning(option, "time-in-minutes", f"is {_minutes(hours)}", cure)
        elif seconds is None:
            yield note(option, "time-unlimited", "asks for no limit at all")


def _two_fields(option: Option) -> Finding:
    found = _TWO_FIELDS.fullmatch(option.value)
    first, second = (int(found[1]), int(found[2])) if found else (0, 0)
    rest = f" {second} s" if second else ""
    hours = first * HOUR + second * MINUTE
    meant = "a day is" if hours == DAY else f"{first} hours are"
    if second:
        meant = f"{first} h {second} m is"
    days = f" or {hours // DAY}-0" if hours % DAY == 0 and hours else ""
    cure = f"{meant} {_clock(hours)}{days}"
    return warning(option, "time-in-minutes", f"is {_minutes(first)}{rest}", cure)


def _clock(seconds: int) -> str:
    return f"{seconds // HOUR:02d}:{seconds % HOUR // MINUTE:02d}:00"


def _minutes(count: int) -> str:
    return "1 minute" if count == 1 else f"{count} minutes"


def _sizes(case: Case) -> Iterator[Finding]:
    asked = _last(case, MEMORY)
    if len(asked) > 1:
        names = " and ".join(f"--{one.name}" for one in asked)
        effect = f"{names} exclude each other: refused"
        yield refused(asked[-1], "memory-twice", effect, "keep one of them")
    for option in (*asked, *_last(case, ("tmp",))):
        size = memory_of(option)
        if size is None:
            effect = f"{option.value!r} is no size to Slurm: refused"
            yield refused(option, "memory", effect, _size_cure(option.value))
        elif size == 0 and option.name == "mem":
            yield note(option, "memory-zero", "is all the memory of the node")
        elif 0 < (whole_number(option.value) or 0) <= _LIKELY_GIB:
            cure = f"{option.value} GiB are {option.value}G"
            yield warning(option, "memory-in-mib", f"is {format_size(size)}", cure)


def _size_cure(value: str) -> str:
    found = re.fullmatch(r"(\d+)(?:[.,](\d+))?\s*([KMGT])i?B?", value, re.IGNORECASE)
    if not found:
        return "write it like 500M or 4G"
    if not found[2]:
        return f"write {found[1]}{found[3].upper()}"
    smaller = {"K": "K", "M": "K", "G": "M", "T": "G"}[found[3].upper()]
    number = float(f"{found[1]}.{found[2]}") * 1024
    return f"whole numbers only: {round(number)}{smaller}"


def _gpus(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.name == "gres":
            yield from _gres(option)
        elif option.name.startswith("gpus") and gpus_of(option) is None:
            effect = f"{option.value!r} is no number of GPUs: refused"
            turned = re.fullmatch(r"(\d+):([A-Za-z]\w*)", option.value)
            cure = f"type first: {turned[2]}:{turned[1]}" if turned else ""
            yield refused(option, "gpus", effect, cure)
    alone = case.option("gpus-per-task")
    if alone and not case.option("ntasks", "gpus", "ntasks-per-node"):
        effect = "--gpus-per-task needs --ntasks or --gpus: refused"
        yield refused(alone, "gpus-per-task", effect, "add --ntasks=1")


def _gres(option: Option) -> Iterator[Finding]:
    for part in option.value.split(","):
        if _GRES.fullmatch(part):
            if part.endswith(":0"):
                yield warning(option, "no-gpu", "asks for no GPU")
            continue
        turned = re.fullmatch(r"gpu[:=](\d+)(?::([A-Za-z]\w*))?", part)
        bare = re.fullmatch(r"([A-Za-z]\w*):(\d+)", part)
        if turned:
            kind = f"{turned[2]}:" if turned[2] else ""
            effect = f"{part} is no resource to Slurm: refused"
            yield refused(option, "gres", effect, f"gpu:{kind}{turned[1]}")
        elif bare and re.fullmatch(r"[avhlpktq]\d+\w*|rtx\w*", bare[1], re.IGNORECASE):
            effect = f"{bare[1]} is a type, no resource: refused"
            yield refused(option, "gres", effect, f"gpu:{part}")


def _mail(case: Case) -> Iterator[Finding]:
    kinds, user = case.option("mail-type"), case.option("mail-user")
    if user is not None and kinds is None:
        effect = "no mail is sent without --mail-type"
        yield warning(user, "mail-without-type", effect, "add --mail-type=END,FAIL")
    for kind in kinds.value.split(",") if kinds else ():
        if kinds and kind.upper() not in _MAILS:
            cure = did_you_mean(kind, list(_MAILS))
            yield refused(kinds, "mail-type", f"{kind!r} is no event: refused", cure)


def _signals(case: Case) -> Iterator[Finding]:
    option = case.option("signal")
    found = _SIGNAL.fullmatch(option.value) if option else None
    if option is None:
        return
    if not found or not (found[1].isdecimal() or found[1].upper() in _SIGNALS):
        effect = f"{option.value!r} is no signal: refused"
        yield refused(option, "signal", effect, "write it like B:USR1@120")


def _counts(case: Case) -> Iterator[Finding]:
    for option in _last(case, _COUNTS):
        if not positive_number(option.value.partition("-")[0]):
            if option.value.startswith("="):
                continue  # said of every short option
            effect = f"{option.value!r} is no whole number: refused"
            yield refused(option, "count", effect)


def _short_with_equals(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.value.startswith("=") and not option.written.startswith("--"):
            cure = f"{option.written}{option.value[1:]} or --{option.name}"
            cure += option.value
            if option.name in _COUNTS:
                effect = f"{option.value!r} is no number: refused"
                yield refused(option, "short-equals", effect, cure)
            elif option.name != "time":
                effect = f"{option.value!r} is taken with its '='"
                yield error(option, "short-equals", effect, cure)


def _literal(case: Case) -> Iterator[Finding]:
    for option in case.options:
        if option.name in _KEEPS_DOLLAR or not _LITERAL.search(option.value):
            continue
        if option.name in ("output", "error", "input", "chdir"):
            continue  # the paths have their own rule
        effect = "no shell reads this line: '$' stays as it is"
        yield warning(option, "literal-dollar", effect)


def _last(case: Case, names: tuple[str, ...]) -> list[Option]:
    found = (case.option(name) for name in names)
    return sorted(filter(None, found), key=lambda option: option.line)


RULES: tuple[Rule, ...] = (
    _times,
    _sizes,
    _gpus,
    _mail,
    _signals,
    _counts,
    _short_with_equals,
    _literal,
)
