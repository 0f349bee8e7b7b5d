"""Find the sign of a run that has diverged: a NaN, an inf or a loss that explodes.

A number's place is after the name of a quantity (``loss: nan``, ``acc=inf``), in a
list (``[nan, 0.5]``) or in a column of numbers. Bounds and settings that may be
infinite or missing (``best=inf``, ``fill_value=nan``) do not count, nor does prose.

A loss has exploded if three values in a row are a thousand times what it began with,
and at least a thousand.
"""

import re
from collections.abc import Sequence
from math import isfinite

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


_LOSS_HINT = re.compile(rb"(?i:loss|nll|ppl|perplexity|mse|objective)")
_LOSS = re.compile(
    r"(?<![\w./-])([\w./-]{0,60}(?:loss|nll|ppl|perplexity|mse|objective)[\w./-]{0,60})"
    r"[\"'\])]{0,4}\s{0,9}(?:[=:]|is\b|->)?\s{0,9}[\"'\[(]{0,4}(?:tensor\()?"
    r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,9})?)(?![\w.])",
    re.IGNORECASE,
)
_NO_LOSS = re.compile("scale|scaling|weight|factor|coef|rate|lr|step|count|every|limit")
_LONGEST_LINE = 65_536
_FIRST = 3  # values whose median is the beginning
_IN_A_ROW = 3
_TIMES = 1e3
_MOST_NAMES = 64


class Losses:
    """The losses of one run, by their names."""

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}
        self._high: dict[str, int] = {}

    def take(self, line: str) -> str | None:
        """Add the losses of a line; return the words for one that has exploded."""
        for name, text in _LOSS.findall(line):
            value = abs(float(text))
            if _NO_LOSS.search(name.lower()) or not isfinite(value):
                continue
            first = self._first.get(name)
            if first is None and len(self._first) < _MOST_NAMES:
                first = self._first[name] = []
            if first is None:
                continue
            if len(first) < _FIRST:
                first.append(value)
                continue
            begun = sorted(first)[_FIRST // 2]
            is_high = value >= _TIMES * max(begun, 1.0)
            self._high[name] = self._high.get(name, 0) + 1 if is_high else 0
            if self._high[name] >= _IN_A_ROW:
                return f"{name} {begun:.3g} -> {value:.3g}"
        return None


class DivergenceWatch:
    """Looks for divergence in an output that arrives in pieces.

    *patience* is the number of lines with a NaN or inf until that is certain: mixed
    precision skips a step now and then whose gradients are infinite.
    """

    def __init__(self, patience: int = 1) -> None:
        self._patience = patience
        self._lines = 0
        self._rest = b""
        self._losses = Losses()

    def feed(self, text: bytes) -> "Divergence | None":
        """Add a piece; return the first divergence in its whole lines."""
        text = self._rest + text
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self._rest = text[end:][-_LONGEST_LINE:]
        return self._look(text[:end])

    def end(self) -> "Divergence | None":
        """Return the first divergence in a last line without an end."""
        return self._look(self._rest)

    def _look(self, text: bytes) -> "Divergence | None":
        before, self._lines = self._lines, self._lines + text.count(b"\n")
        if not _HINT.search(text) and not _LOSS_HINT.search(text):
            return None
        for number, line in enumerate(text.split(b"\n"), start=before + 1):
            lost = find_divergence(line)
            if lost is not None:
                self._patience -= 1
                if self._patience <= 0:
                    return msgspec.structs.replace(lost, line=number)
            exploded = self._losses_of(line) if _LOSS_HINT.search(line) else None
            if exploded is not None:
                return msgspec.structs.replace(exploded, line=number)
        return None

    def _losses_of(self, line: bytes) -> "Divergence | None":
        for part in line.split(b"\r"):
            shown = _COLOUR.sub(b"", part).decode("utf-8", "replace")
            words = self._losses.take(shown)
            if words is not None:
                return Divergence(1, shown.strip(), words)
        return None


class Divergence(msgspec.Struct, frozen=True):
    """A lost number, its *line* (from 1), and that line's text."""

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
