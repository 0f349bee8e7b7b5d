"""Say why a run ended as it did, from how it ended and what the kernel counted.

And find the sign of a run that goes on and is lost: NaN or inf where numbers stand.
"""

import re
from functools import cache

import msgspec

from weigh.model.record import Measurement, Outcome, State

_SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}
_KILL, _XCPU = 9, 24
_STATES_BY_SIGNAL: dict[int, State] = {
    1: "CANCELLED",
    2: "CANCELLED",
    3: "CANCELLED",
    15: "CANCELLED",
    _XCPU: "TIMEOUT",
}
_SHELL_SIGNAL_BASE = 128


def judge(measured: Measurement) -> tuple[State, Outcome | None]:
    """Give the state of a run that ended, and why where there is more to say.

    A shell reports a child killed by signal n as exit code 128 + n, so both count.
    """
    number = measured.signal or _signal_in(measured.exit_code)
    if measured.oom_kills is not None and measured.oom_kills > 0:
        return _killed_for_memory(measured)
    if measured.exit_code == 0:
        return "COMPLETED", None
    if measured.told_to_end is not None:
        name = signal_name(measured.told_to_end)
        return "CANCELLED", Outcome(f"weigh was sent {name} and passed it on")
    if number is None:
        return "FAILED", Outcome(f"exit code {measured.exit_code}")
    state = _STATES_BY_SIGNAL.get(number, "FAILED")
    return state, Outcome(
        f"ended by {signal_name(number)}", _hints(number, measured.oom_kills)
    )


def _killed_for_memory(measured: Measurement) -> tuple[State, Outcome]:
    evidence = (f"the kernel's oom_kill count rose by {measured.oom_kills}",)
    if measured.exit_code == 0:
        return "COMPLETED", Outcome("a process was killed for memory", evidence)
    return "OUT_OF_MEMORY", Outcome("killed for memory", evidence)


def signal_name(number: int) -> str:
    """Write a signal as people know it."""
    return _SIGNAL_NAMES.get(number, f"signal {number}")


def _signal_in(exit_code: int | None) -> int | None:
    if exit_code is None or exit_code - _SHELL_SIGNAL_BASE not in _SIGNAL_NAMES:
        return None
    return exit_code - _SHELL_SIGNAL_BASE


def _hints(number: int, oom_kills: int | None) -> tuple[str, ...]:
    if number == _XCPU:
        return ("the limit on CPU time was used up",)
    if number != _KILL:
        return ()
    if oom_kills is None:
        return ("whether for memory is not known: the control group cannot be read",)
    return ("no oom_kill was counted in this control group",)


class Divergence(msgspec.Struct, frozen=True):
    """A NaN or an inf in a number's place: which *line* (from 1), and its text."""

    line: int
    text: str
    word: str


def find_divergence(text: bytes) -> Divergence | None:
    """Find the first NaN or inf that stands where a number should, in whole lines.

    A number's place is behind the name of a quantity (``loss: nan``, ``acc=inf``), in a
    list (``[nan, 0.5]``) or in a column among numbers. Bounds and settings that may be
    infinite or missing (``best=inf``, ``fill_value=nan``) are none, nor is prose.
    """
    patterns = _patterns()
    if not patterns.hint.search(text):
        return None
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not patterns.hint.search(line):
            continue
        for part in line.split(b"\r"):  # a progress bar draws over itself
            shown = patterns.colour.sub(b"", part).decode("utf-8", "replace")
            word = _number_lost(shown)
            if word is not None:
                return Divergence(number, shown.strip(), word)
    return None


def _number_lost(line: str) -> str | None:
    for found in _patterns().word.finditer(line):
        is_nan = found[1][0] in "nN"
        before, after = line[: found.start()], line[found.end() :]
        if _is_a_number_place(before, after, is_nan=is_nan, caps=found[1] == "INF"):
            return "NaN" if is_nan else "inf"
    return None


def _is_a_number_place(before: str, after: str, *, is_nan: bool, caps: bool) -> bool:
    patterns = _patterns()
    following = patterns.first_token.match(after)
    next_word = "" if following is None else following[1]
    if next_word.lower() in _PROSE:
        return False
    named = patterns.name.search(before)
    if named is not None:
        return not _may_be_lost(named[1], is_nan=is_nan)
    if caps:  # INF: a log's level
        return False
    in_list = patterns.opening.search(before)
    if in_list is not None:
        round_one = in_list[2] == "(" and not in_list[1]
        return (is_nan or not round_one) and bool(patterns.closing.match(after))
    if not is_nan and patterns.interval.match(after):
        return False
    words = patterns.token.findall(before)
    if any(metric in word.lower() for word in words[-1:] for metric in _METRICS):
        return True
    if words[-1:] and words[-1].lower() in _BECOMES:
        return any(metric in "".join(words[-4:-1]).lower() for metric in _METRICS)
    beside = [word for word in (*words[-1:], next_word) if word]
    return all(patterns.number.fullmatch(word) for word in beside)


def _may_be_lost(name: str, *, is_nan: bool) -> bool:
    """Tell whether a quantity of that name may well be missing, or without bound."""
    parts = set(re.split(r"[^a-z]+", name.lower()))
    return not parts.isdisjoint(_MISSING if is_nan else _MISSING | _BOUNDS)


class _Patterns:
    """Compiled when first needed: ``weigh run`` does without."""

    def __init__(self) -> None:
        number = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?%?|[+-]?(?:nan|inf)"
        self.hint = re.compile(rb"nan|inf", re.IGNORECASE)
        self.colour = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
        self.word = re.compile(
            r"(?<![\w./\\-])[+-]?(nan|NaN|NAN|inf|Inf|Infinity|INF)(?![\w\-/\\(=:]|\.\w)"
        )
        self.name = re.compile(
            r"([A-Za-z_][\w./@-]*)[\])%]*[\"']?\s*(?:[=:]|->|=>)\s*"
            r"[\"'\[]*(?:(?:[\w.]*(?:tensor|array|float\d+))\(\[*)?$",
            re.IGNORECASE,
        )
        self.opening = re.compile(
            r"(?:^|[\s=,(\[])((?:[\w.]*(?:tensor|array|float\d+))?)([(\[])[\[\s]*$",
            re.IGNORECASE,
        )
        self.closing = re.compile(r"\s*[,\])]")
        self.interval = re.compile(r"\s*\)")
        self.first_token = re.compile(r"[\s,;|\])}%\"']*([^\s,;|\[\](){}\"']*)")
        self.token = re.compile(r"[^\s,;|\[\](){}\"']+")
        self.number = re.compile(number, re.IGNORECASE)


@cache
def _patterns() -> _Patterns:
    return _Patterns()


_METRICS = (
    *("loss", "perplexity", "ppl", "acc", "error", "grad", "norm", "reward", "return"),
    *("score", "mse", "mae", "rmse", "nll", "elbo", "entropy", "likelihood", "bleu"),
    *("energy", "objective", "residual", "cost"),
)
_BECOMES = frozenset(("is", "was", "became", "to", "->", "reached", "hit", "now"))
_PROSE = frozenset(
    "value values or and is are in entries rows check checks count counts will not if "
    "handling guard detection policy were filter warnings columns cells".split()
)
_MISSING = frozenset(
    "missing fill na default nan null none drop skip allow replace invalid inf "
    "warning info note debug isnan isinf placeholder init initial".split()
)
_BOUNDS = frozenset(
    "best min max minimum maximum patience limit threshold clip timeout lowest "
    "highest bound bounds range budget remaining eta tol tolerance low high lower "
    "upper ttl ord p cap until interval clipping window horizon".split()
)
