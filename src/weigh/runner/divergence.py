"""Find the sign of a run that has diverged: NaN or inf in the place of a number.

A number's place is after the name of a quantity (``loss: nan``, ``acc=inf``), in a
list (``[nan, 0.5]``) or in a column of numbers. Bounds and settings that may be
infinite or missing (``best=inf``, ``fill_value=nan``) do not count, nor does prose.
"""

import re
from collections.abc import Sequence

import msgspec

# a cheap filter for most lines; a preceding m may end a colour sequence
_HINT = re.compile(
    rb"(?<![A-Za-ln-z0-9_./])(?:nan|NaN|NAN|inf|Inf|Infinity|INF)(?![A-Za-z0-9_])"
)
_COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_WORD = re.compile(
    r"(?<![\w./\\-])[+-]?(nan|NaN|NAN|inf|Inf|Infinity|INF)(?![\w\-/\\(=:]|\.\w)"
)
_NAMED = re.compile(
    r"([A-Za-z_][\w./@-]*)[\])%]*[\"']?\s*(?:[=:]|->|=>)\s*"
    r"[\"'\[]*(?:(?:[\w.]*(?:tensor|array|float\d+))\(\[*)?$",
    re.IGNORECASE,
)
_OPEN_CALL = re.compile(r"([\w.]*)\([^()]*$")
_ARRAY = re.compile(r"(?:[\w.]*(?:tensor|array|float\d+))", re.IGNORECASE)
_OPENING = re.compile(r"[(\[]\s*$")
_CLOSING = re.compile(r"\s*[,\])]")
_INTERVAL_END = re.compile(r"\s*\)")
_NEXT = re.compile(r"[\s,;|\])}%\"']*([^\s,;|\[\](){}\"']*)")
_TOKEN = re.compile(r"[^\s,;|\[\](){}\"']+")
_NUMBER = re.compile(
    r"[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?%?|[+-]?(?:nan|inf)", re.IGNORECASE
)
_METRIC = re.compile(
    "loss|perplexity|ppl|acc|error|grad|norm|reward|return|score|mse|mae|rmse|nll|elbo"
    "|entropy|likelihood|bleu|energy|objective|residual|cost",
    re.IGNORECASE,
)
_BECOMES = frozenset({"is", "was", "became", "to", "->", "reached", "hit", "now"})
_PROSE = re.compile(
    "values?|or|and|is|are|in|entries|rows|checks?|counts?|will|not|if|handling|guard"
    "|detection|policy|were|filter|warnings|columns|cells",
    re.IGNORECASE,
)
_MAY_BE_MISSING = re.compile(
    "missing|fill|na|default|nan|null|none|drop|skip|allow|replace|invalid|inf|warning"
    "|info|note|debug|isnan|isinf|placeholder|init|initial"
)
_MAY_BE_INFINITE = re.compile(
    "best|min|max|minimum|maximum|patience|limit|threshold|clip|clipping|timeout|lowest"
    "|highest|bounds?|range|budget|remaining|eta|tol|tolerance|low|high|lower|upper|ttl"
    "|ord|p|cap|until|interval|window|horizon"
)


class Divergence(msgspec.Struct, frozen=True):
    """A NaN or inf in a number's place: its *line* (from 1), and that line's text."""

    line: int
    text: str
    word: str


def find_divergence(text: bytes) -> Divergence | None:
    """Find the first NaN or inf in the place of a number, in whole lines of *text*."""
    if not _HINT.search(text):
        return None
    for number, line in enumerate(text.split(b"\n"), start=1):
        if not _HINT.search(line):
            continue
        for part in line.split(b"\r"):  # a progress bar overwrites its line
            shown = _COLOUR.sub(b"", part).decode("utf-8", "replace")
            word = _number_lost(shown)
            if word is not None:
                return Divergence(number, shown.strip(), word)
    return None


def _number_lost(line: str) -> str | None:
    for found in _WORD.finditer(line):
        before, after = line[: found.start()], line[found.end() :]
        if _is_a_number_place(before, found[1], after):
            return "NaN" if _is_nan(found[1]) else "inf"
    return None


def _is_a_number_place(before: str, word: str, after: str) -> bool:
    following = _NEXT.match(after)
    next_word = "" if following is None else following[1]
    if _PROSE.fullmatch(next_word):
        return False
    named = _NAMED.search(before)
    if named is not None:
        return not _may_be(named[1], word)
    if word == "INF":  # a log level
        return False
    words = _TOKEN.findall(before)
    return _follows_a_metric(words) or (
        not _is_in_other_brackets(before, word, after)
        and _is_among_numbers(before, words, after, next_word)
    )


def _may_be(name: str, word: str) -> bool:
    """Return whether a quantity of that name may be missing or unbounded."""
    parts = re.split(r"[^a-z]+", name.lower())
    return any(
        _MAY_BE_MISSING.fullmatch(part)
        or (not _is_nan(word) and _MAY_BE_INFINITE.fullmatch(part))
        for part in parts
    )


def _follows_a_metric(words: Sequence[str]) -> bool:
    """Recognize ``loss nan`` and ``the loss is nan``."""
    if words and words[-1].lower() in _BECOMES:
        words = words[-4:-1]
        return any(map(_METRIC.search, words))
    return bool(words) and _METRIC.search(words[-1]) is not None


def _is_in_other_brackets(before: str, word: str, after: str) -> bool:
    """Recognize a call's argument and an interval: ``float(nan)``, ``(-inf, 0]``."""
    call = _OPEN_CALL.search(before)
    if _is_nan(word):
        return call is not None and call[1] == "float"
    if call is None:
        return _INTERVAL_END.match(after) is not None
    return not _ARRAY.fullmatch(call[1])


def _is_among_numbers(
    before: str, words: Sequence[str], after: str, next_word: str
) -> bool:
    if _OPENING.search(before):
        return _CLOSING.match(after) is not None
    neighbours = [word for word in (*words[-1:], next_word) if word]
    return all(map(_NUMBER.fullmatch, neighbours))


def _is_nan(word: str) -> bool:
    return word[0] in "nN"
