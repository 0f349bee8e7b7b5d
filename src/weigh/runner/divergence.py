"""Find the sign of a run that has diverged: a NaN, an inf or a loss that explodes.

A number's place is after the name of a metric (``loss: nan``, ``grad norm is inf``), in
a printed tensor, or alone in its line. Bounds and settings that may be infinite or
missing (``best_loss=inf``, ``fill_value=nan``) do not count, nor do prose and tables,
in which a value may be missing. Nor does a score where a loss is a number: an F1
of a class without examples is undefined, and training goes on.

A loss has exploded if three values in a row are a thousand times what it began with,
and at least a thousand.
"""

import math
import re
from collections.abc import Iterator
from statistics import median_low

import msgspec

# a block without any of these is not searched further
_HINT = re.compile(rb"(?i)nan|inf|loss|nll|ppl|perplexity|mse|objective")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")  # escape sequences of a terminal
# not in a path, in a longer name, or before "(": a call
_LOST = r"(?<![\w./\\-])[+-]?(?:nan|inf(?:inity)?)(?![\w(=:/\\-]|\.\w)"
_TENSOR = r"[\w.]*(?:tensor|array|float\d+)\([^()]{0,80}?"
_LOST_ALONE = re.compile(rf"^\s*(?:{_TENSOR}({_LOST})|({_LOST})\s*$)", re.IGNORECASE)
_NUMBER = r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,9})?(?![\w.])"
# the name of a metric, and its value
_METRIC = re.compile(
    r"(?<![\w./-])([\w./-]{0,60}(?:loss|perplexity|ppl|acc|err|grad|norm|reward|return"
    r"|score|mse|mae|nll|kl|elbo|entropy|likelihood|bleu|f1|auc|dice|iou|energy|objective"
    r"|residual|cost|value|logits?|prob)[\w./-]{0,60})[\])%\"']{0,4}\s{0,9}(?:=>?|:|->)?"
    r"(?:\s{0,9}(?:is|was|went|became|now|to)\b){0,2}\s{0,9}[\"'\[(]{0,4}"
    # the last words are those of prose: "loss: nan or inf detected"
    rf"(?:{_TENSOR})?({_NUMBER}|{_LOST}"
    r"(?!\s+(?:values?|or|and|is|are|in|found|detected|checks?)\b))",
    re.IGNORECASE,
)
# in names of settings and bounds, not of what was computed
_MISSING = "(?i)missing|fill|default|allow|replace|skip|init|placeholder"
_MAY_BE_MISSING = re.compile(_MISSING)
_MAY_BE_INFINITE = re.compile(f"{_MISSING}|best|min|max|low|high|bound|limit|clip|tol")
_LOSS = re.compile("(?i)loss|nll|ppl|perplexity|mse|objective")
# in names that have "loss" and are none: loss_scale, loss_weight
_NO_LOSS = re.compile(
    "(?i)scale|scaling|weight|factor|coef|rate|lr|step|count|every|limit"
)
# not in "accum_grad_norm", nor in "previous_grad_norm"
_SCORE = re.compile("(?i)score|accuracy|acc(?![a-z])|f1|auc|dice|iou(?![a-z])|bleu")
_LONGEST_LINE = 4096  # bytes; of a longer line the end is read
_IN_A_ROW = 3  # values whose median is the beginning; and high ones that are certain
_TIMES = 1e3  # what a loss began with: then it has exploded


class LostNumber(msgspec.Struct, frozen=True):
    """A lost number, its *line* (from 1), and that line's text."""

    line: int
    text: str
    word: str


class DivergenceWatch:
    """Looks for divergence in an output that arrives in pieces.

    *patience* is the number of lines with a NaN or inf until that is certain: mixed
    precision skips a step now and then whose gradients are infinite.
    """

    def __init__(self, patience: int = 1) -> None:
        # counts down with each line that has a NaN or inf
        self._patience = patience
        self._lines = 0
        self._rest = b""
        # the first and the last values of each name
        self._losses: dict[str, list[float]] = {}

    def feed(self, output_piece: bytes) -> LostNumber | None:
        """Add a piece; return the first divergence in its whole lines."""
        output_piece = self._rest + output_piece
        end = max(output_piece.rfind(b"\n"), output_piece.rfind(b"\r")) + 1
        self._rest = output_piece[end:][-_LONGEST_LINE:]
        whole_lines = output_piece[:end]
        before, self._lines = self._lines, self._lines + whole_lines.count(b"\n")
        if not _HINT.search(whole_lines):
            return None
        for number, line in enumerate(whole_lines.split(b"\n"), start=before + 1):
            parts = line.split(b"\r") if _HINT.search(line) else ()
            for part in parts:  # a progress bar overwrites its line
                text = _COLOUR.sub(b"", part[-_LONGEST_LINE:])
                shown = text.decode("utf-8", "replace")
                word = lost_number(shown, has_loss=self._has_loss())
                if word is not None:
                    self._patience -= 1
                if word is None or self._patience > 0:
                    word = self._exploded_loss(shown)
                if word is not None:
                    return LostNumber(number, shown.strip(), word)
        return None

    def _has_loss(self) -> bool:
        """Return whether the last value of a loss is a number."""
        return any(math.isfinite(values[-1]) for values in self._losses.values())

    def _exploded_loss(self, output_line: str) -> str | None:
        """Add the losses of a line; return the words for one that has exploded."""
        for name, value in _metric_values(output_line):
            if not _is_loss(name):
                continue
            values = self._losses.setdefault(name, [])
            values.append(abs(value))
            del values[_IN_A_ROW:-_IN_A_ROW]  # the first and the last
            # a median: one odd value at the beginning does not count
            begun = median_low(values[:_IN_A_ROW])
            latest = values[_IN_A_ROW:]
            high = _TIMES * max(begun, 1.0)
            if len(latest) == _IN_A_ROW and min(latest) >= high:
                return f"{name} {begun:.3g} -> {latest[-1]:.3g}"
        return None


def lost_number(output_line: str, *, has_loss: bool = False) -> str | None:
    """Return "NaN" or "inf" where one stands in the place of a number.

    Where a loss *has* a value, there or in the line, scores do not count.
    """
    metrics = [*_metric_values(output_line)]
    has_loss = has_loss or any(
        _is_loss(name) and math.isfinite(value) for name, value in metrics
    )
    for name, value in metrics:
        if has_loss and _SCORE.search(name) and not _is_loss(name):
            continue
        if math.isnan(value) and not _MAY_BE_MISSING.search(name):
            return "NaN"
        if math.isinf(value) and not _MAY_BE_INFINITE.search(name):
            return "inf"
    alone = _LOST_ALONE.search(output_line)
    if alone is None:
        return None
    return "NaN" if math.isnan(float(alone[1] or alone[2])) else "inf"


def lost_at_end(output_end: bytes) -> str | None:
    """Return "NaN" or "inf" where the last value of a metric is one.

    Output that has ended needs no patience: no later value can be a number again.
    """
    text = _COLOUR.sub(b"", output_end).decode("utf-8", "replace")
    latest = dict(_metric_values(text)) if _HINT.search(output_end) else {}
    # in one line: a loss there decides what its scores mean
    return lost_number(", ".join(f"{name}: {value}" for name, value in latest.items()))


def _is_loss(metric_name: str) -> bool:
    return bool(_LOSS.search(metric_name)) and not _NO_LOSS.search(metric_name)


def _metric_values(output_line: str) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each metric in a line."""
    for name, text in _METRIC.findall(output_line):
        yield name, float(text)
