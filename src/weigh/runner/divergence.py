"""Find the sign of a run that has diverged: a NaN, an inf or a loss that explodes.

A number's place is after the name of a metric (``loss: nan``, ``grad norm is inf``), in
a printed tensor, or in a line of numbers only. Bounds and settings that may be infinite
or missing (``best_loss=inf``, ``fill_value=nan``) do not count, nor does prose.

A loss has exploded if three values in a row are a thousand times what it began with,
and at least a thousand.
"""

import re
from statistics import median_low

import msgspec

# a block without any of these is not searched further
_HINT = re.compile(rb"(?i)nan|inf|loss|nll|ppl|perplexity|mse|objective")
_COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")  # escape sequences of a terminal
# not in a path, in a longer name, or before "(": a call
_LOST = r"(?<![\w./\\-])[+-]?(?:(nan)|inf(?:inity)?)(?![\w(=:/\\-]|\.\w)"
_LOST_WORD = re.compile(_LOST, re.IGNORECASE)
_TENSOR = r"[\w.]*(?:tensor|array|float\d+)\([^()]{0,80}?"
_LOST_TENSOR = re.compile(rf"^\s*{_TENSOR}{_LOST}", re.IGNORECASE)
_LOST_METRIC = re.compile(
    r"([\w./-]{0,60}(?:loss|perplexity|ppl|acc|err|grad|norm|reward|return|score|mse|mae"
    r"|nll|kl|elbo|entropy|likelihood|bleu|f1|auc|dice|iou|energy|objective|residual"
    r"|cost|value|logits?|prob)[\w./-]{0,60})[\])%\"']{0,4}\s{0,9}(?:=>?|:|->)?"
    r"(?:\s{0,9}(?:is|was|went|became|now|to)\b){0,2}\s{0,9}[\"'\[]{0,4}"
    # the last words are those of prose: "loss: nan or inf detected"
    rf"(?:{_TENSOR})?{_LOST}(?!\s+(?:values?|or|and|is|are|in|found|detected|checks?)\b)",
    re.IGNORECASE,
)
# a line that has nothing but numbers, as a table does
_NUMBERS = re.compile(
    r"(?:[\s,;|\[\]{}\"']*[+-]?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?%?|\.\d+|nan|inf)"
    r"(?![^\s,;|\[\]{}\"']))+[\s,;|\[\]{}\"']*",
    re.IGNORECASE,
)
# in names of settings and bounds, not of what was computed
_MISSING = "(?i)missing|fill|default|allow|replace|skip|init|placeholder"
_MAY_BE_MISSING = re.compile(_MISSING)
_MAY_BE_INFINITE = re.compile(f"{_MISSING}|best|min|max|low|high|bound|limit|clip|tol")
_LOSS = re.compile(
    r"(?<![\w./-])([\w./-]{0,60}(?:loss|nll|ppl|perplexity|mse|objective)[\w./-]{0,60})"
    r"[\"'\])]{0,4}\s{0,9}(?:[=:]|is\b|->)?\s{0,9}[\"'\[(]{0,4}(?:tensor\()?"
    r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,9})?)(?![\w.])",
    re.IGNORECASE,
)
# in names that have "loss" and are none: loss_scale, loss_weight
_NO_LOSS = re.compile(
    "(?i)scale|scaling|weight|factor|coef|rate|lr|step|count|every|limit"
)
_LONGEST_LINE = 65_536  # bytes kept of a line whose end has not arrived
_MOST_LOSSES = 64  # names that are followed
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
        return self._look(output_piece[:end])

    def end(self) -> LostNumber | None:
        """Return the first divergence in a last line without an end."""
        return self._look(self._rest)

    def _look(self, whole_lines: bytes) -> LostNumber | None:
        before, self._lines = self._lines, self._lines + whole_lines.count(b"\n")
        if not _HINT.search(whole_lines):
            return None
        for number, line in enumerate(whole_lines.split(b"\n"), start=before + 1):
            parts = line.split(b"\r") if _HINT.search(line) else ()
            for part in parts:  # a progress bar overwrites its line
                shown = _COLOUR.sub(b"", part).decode("utf-8", "replace")
                word = lost_number(shown)
                if word is not None:
                    self._patience -= 1
                if word is None or self._patience > 0:
                    word = self._exploded_loss(shown)
                if word is not None:
                    return LostNumber(number, shown.strip(), word)
        return None

    def _exploded_loss(self, output_line: str) -> str | None:
        """Add the losses of a line; return the words for one that has exploded."""
        for name, text in _LOSS.findall(output_line):
            is_new = name not in self._losses
            if _NO_LOSS.search(name) or (is_new and len(self._losses) >= _MOST_LOSSES):
                continue
            values = self._losses.setdefault(name, [])
            values.append(abs(float(text)))
            del values[_IN_A_ROW:-_IN_A_ROW]  # the first and the last
            # a median: one odd value at the beginning does not count
            begun = median_low(values[:_IN_A_ROW])
            latest = values[_IN_A_ROW:]
            high = _TIMES * max(begun, 1.0)
            if len(latest) == _IN_A_ROW and min(latest) >= high:
                return f"{name} {begun:.3g} -> {latest[-1]:.3g}"
        return None


def lost_number(output_line: str) -> str | None:
    """Return "NaN" or "inf" where one stands in the place of a number."""
    lost = _LOST_WORD.search(output_line)
    if lost is None:
        return None
    for metric in _LOST_METRIC.finditer(output_line):
        is_inf = metric[2] is None
        bound = _MAY_BE_INFINITE if is_inf else _MAY_BE_MISSING
        if not bound.search(metric[1]):
            return "inf" if is_inf else "NaN"
    if _LOST_TENSOR.search(output_line) or _NUMBERS.fullmatch(output_line):
        return "inf" if lost[1] is None else "NaN"
    return None
