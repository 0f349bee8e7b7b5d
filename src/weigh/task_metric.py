"""A metric that a task prints, such as its loss: its values, the best, and its trend.

A value stands behind the metric's name (``loss: 0.12``, ``val_acc=0.9``, ``"loss":
0.12``), in a column with that name (CSV, TSV, a printed table), or where the user's own
pattern finds it.
"""

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec

from weigh.bounded_pattern import compile_bounded
from weigh.errors import FormatError
from weigh.model.report import MetricSummary, MetricTrend
from weigh.robust import median_of

NUMBER = r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,9})?(?!\w|\.\d)"
COLOUR = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")  # escape sequences of a terminal
# {:,} of Python: 1,234.5
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3}){1,9}(?:\.\d{1,40})?(?![\w,]|\.\d)"
_ONE_THOUSAND = r"[+-]?[1-9]\d{0,2},\d{3}"
# 0,12 of a German locale; neither in a list ([0,12]) nor a part of 1,2,3
_DECIMAL_COMMA = r"(?<![\[(])[+-]?\d{1,40},\d{1,40}(?:e[+-]?\d{1,9})?(?![\w\]]|[.,]\d)"
_VALUE = (
    rf"({_THOUSANDS}|{_DECIMAL_COMMA}|{NUMBER}|[+-]?(?:nan|inf(?:inity)?)(?![\w.]))"
)
# between a name and its value: quotes, brackets, = or :, the call of a tensor
_BETWEEN = r"[\])%\"']{0,4}\s{0,9}(?:=>?|:|->)?\s{0,9}[\"'\[(]{0,4}(?:[\w.]{1,40}\()?"
_DIRECTION = re.compile(r"^(.*):(min|max)$")
_IN_SLASHES = re.compile(r"^/(.+)/$")
_LOWER_IS_BETTER = re.compile(
    "(?i)loss|err|perplexity|ppl|nll|mse|mae|wer|cer|bpc|kl|distance|residual|cost"
)
_EXPECTATION = re.compile(rf"(?i)^\s*(\S.*?)\s*([<>]=?)\s*({NUMBER})\s*$")
_RELATIONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
# one task of several that differ in nothing else is a repeat
SEED = re.compile(
    "(?i)(?:.*[_-])?(?:seed|random_state|rng|repeat|replicate|fold|trial)"
)
_CELLS = {one: re.compile(re.escape(one)) for one in "\t|;,"}
_GAP = re.compile(r"\s{2,}")  # between the columns of a printed table
_PRINTED_NAME = re.compile(
    rf"(?<![\w./-])([A-Za-z][\w./-]{{0,60}})[\"']?\s{{0,3}}[:=]\s{{0,3}}{_VALUE}"
)
_LONGEST_LINE = 65_536  # bytes; a longer one is no text
_FEWEST = 6  # values: of fewer no trend is stated
_OF_RANGE = 0.01  # of all that the values moved: less is no movement

Parameters = Mapping[str, int | float | str]


class TaskMetric(msgspec.Struct, frozen=True):
    """A metric to look for: its name, how it is found, and which end of it is good."""

    name: str
    pattern: "re.Pattern[str]"
    is_own_pattern: bool
    """The user's own: it says all, and no table is looked for."""
    lower_is_better: bool


def task_metric(text: str) -> TaskMetric:
    r"""Return the metric that *text* names: ``loss``, ``score:min``, ``/acc (\S+)/``.

    Without ``:min`` or ``:max`` less of a loss, an error, a perplexity or a distance
    is better, and more of anything else.

    Raises:
        FormatError: it is empty, or a pattern that cannot be compiled or has no group.
    """
    direction = _DIRECTION.match(text)
    name = direction[1] if direction else text
    lower = bool(_LOWER_IS_BETTER.search(name))
    if direction:
        lower = direction[2] == "min"
    if own := _IN_SLASHES.match(name):
        return TaskMetric(name, _own_pattern(own[1]), True, lower)
    if not name.strip():
        raise FormatError("a metric needs a name, as in loss or val_acc:max")
    # whole names only: loss is not val_loss, nor train/loss
    named = rf"(?i)(?<![\w./-]){re.escape(name)}(?![\w./-]){_BETWEEN}{_VALUE}"
    return TaskMetric(name, re.compile(named), False, lower)


class MetricExpectation(msgspec.Struct, frozen=True):
    """A bound that the best value of a metric has to pass: ``loss<0.05``."""

    metric: TaskMetric
    relation: str
    """<, <=, > or >=; it is the metric's direction where none was typed."""
    bound: float

    def failure(self, values: Sequence[float]) -> str | None:
        """Return in a few words why *values* do not meet it; None if they do."""
        summary = metric_summary(values, lower_is_better=self.metric.lower_is_better)
        if summary is None or summary.best is None:
            return f"printed no {self.metric.name}"
        if _RELATIONS[self.relation](summary.best, self.bound):
            return None
        best = f"{self.metric.name} {summary.best:.4g}"
        return f"{best}, not {self.relation} {self.bound:g}"


def metric_expectation(text: str) -> MetricExpectation:
    """Return the expectation that *text* is: ``loss<0.05``, ``acc >= 0.9``.

    Raises:
        FormatError: it has no name, relation and number, or the name is no metric.
    """
    found = _EXPECTATION.match(text)
    if found is None:
        raise FormatError(f"{text!r} is not like loss<0.05 or val_acc>=0.9")
    name, relation, bound = found.groups()
    if not _DIRECTION.match(name):
        name += ":min" if relation[0] == "<" else ":max"
    return MetricExpectation(task_metric(name), relation, float(bound))


def _own_pattern(pattern: str) -> "re.Pattern[str]":
    try:
        compiled = compile_bounded(pattern)
    except re.error as error:
        raise FormatError(f"/{pattern}/ is no pattern: {error}") from error
    if not compiled.groups:
        raise FormatError(f"/{pattern}/ needs a group around the number: (\\S+)")
    return compiled


class MetricReader:
    """Reads the values of a metric in output that arrives in pieces."""

    def __init__(self, metric: TaskMetric) -> None:
        self._metric = metric
        self._hint = metric.name.lower()
        self._rest = b""
        self._column: tuple[str, int, int] | None = None  # separator, place, cells
        self._is_at_start = True  # a table of one column has its head there
        self._values: list[float] = []
        self._thousands: list[int] = []  # places of what may be 1.234 in 1,234
        self._has_decimal_comma = False

    @property
    def values(self) -> list[float]:
        """The values; one value as 0,12 shows that 1,234 is no thousand either."""
        values = [*self._values]
        for place in self._thousands if self._has_decimal_comma else ():
            values[place] /= 1000
        return values

    def feed(self, output_piece: bytes) -> None:
        """Read the whole lines of a piece; the rest waits for the next."""
        output_piece = self._rest + output_piece
        end = max(output_piece.rfind(b"\n"), output_piece.rfind(b"\r")) + 1
        self._rest = output_piece[end:][-_LONGEST_LINE:]
        self._read_lines(output_piece[:end])

    def end(self) -> None:
        """Read a last line without an end."""
        self._read_lines(self._rest)
        self._rest = b""

    def _read_lines(self, whole_lines: bytes) -> None:
        is_plain = not self._metric.is_own_pattern and self._hint.isascii()
        # most output has other figures: do not take it apart
        if (
            is_plain
            and self._column is None
            and self._hint.encode() not in whole_lines.lower()
        ):
            self._is_at_start = self._is_at_start and not whole_lines.strip()
            return
        # a progress bar overwrites its line
        text = COLOUR.sub(b"", whole_lines).decode("utf-8", "replace")
        for line in text.replace("\r", "\n").split("\n"):
            if line and len(line) <= _LONGEST_LINE:
                self._read_line(line)

    def _read_line(self, line: str) -> None:
        found = self._metric.pattern.findall(line)
        if found and self._metric.pattern.groups > 1:
            found = [first for first, *_ in found]
        if not found and not self._metric.is_own_pattern:
            found = self._cell_of_table(line)
        for text in found:
            value = _number_in(text)
            if value is None:
                continue
            if re.fullmatch(_ONE_THOUSAND, text):
                self._thousands.append(len(self._values))
            elif re.fullmatch(_DECIMAL_COMMA, text):
                self._has_decimal_comma = True
            self._values.append(value)
        self._is_at_start = False

    def _cell_of_table(self, line: str) -> list[str]:
        """Return the cell in the metric's column; none in a head or outside a table."""
        if self._column is not None:
            separator, place, width = self._column
            cells = _cells_of(line, separator)
            if len(cells) == width:
                cell = cells[place].rstrip("%")
                if _number_in(cell) is not None:
                    return [cell]
        if self._hint in line.lower():
            self._column = self._column_in_head(line) or self._column
        return []

    def _column_in_head(self, line: str) -> tuple[str, int, int] | None:
        """Return the separator, the metric's place and the number of columns."""
        separator = next((one for one in _CELLS if one in line), " ")
        cells = [cell.lower() for cell in _cells_of(line, separator)]
        is_head = (len(cells) > 1 or self._is_at_start) and all(
            _number_in(cell) is None for cell in cells
        )
        name = self._metric.name.lower()
        if not is_head or name not in cells:
            return None
        return separator, cells.index(name), len(cells)


def _cells_of(line: str, separator: str) -> list[str]:
    cells = _CELLS.get(separator, _GAP).split(line.strip())
    return [cell.strip().strip("\"'") for cell in cells]


def _number_in(text: str) -> float | None:
    """Return the number that *text* is; None if it is none."""
    if re.fullmatch(_THOUSANDS, text):
        text = text.replace(",", "")
    elif re.fullmatch(_DECIMAL_COMMA, text):
        text = text.replace(",", ".")
    try:
        return float(text.rstrip("%"))
    except ValueError:
        return None


def metric_summary(
    values: Sequence[float], *, lower_is_better: bool
) -> MetricSummary | None:
    """Return what became of the *values* of a metric; None if there are none."""
    if not values:
        return None
    places = [at for at, value in enumerate(values) if math.isfinite(value)]
    choose = min if lower_is_better else max
    best_at = choose(places, key=lambda at: values[at], default=None)
    return MetricSummary(
        values=len(values),
        last=values[-1],
        best=None if best_at is None else values[best_at],
        best_at=None if best_at is None else best_at + 1,
        trend=_trend_of(values, lower_is_better=lower_is_better),
    )


def _trend_of(values: Sequence[float], *, lower_is_better: bool) -> MetricTrend | None:
    """Compare the last third with the third before it, beyond their noise."""
    if not math.isfinite(values[-1]):
        return "diverged"
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < _FEWEST:
        return None
    third = len(finite) // 3
    before, latest = finite[-2 * third : -third], finite[-third:]
    gain = median_of(latest) - median_of(before)
    noise = max(map(_error_of_median, (before, latest)))
    least = max(noise, _OF_RANGE * (max(finite) - min(finite)))
    if abs(gain) <= least:
        return "standing still"
    return "improving" if (gain < 0) == lower_is_better else "getting worse"


def _error_of_median(values: Sequence[float]) -> float:
    """Return two standard errors of a median, from the deviations from a line."""
    # along the line between the ends of the third: a steady descent is no noise
    steps = [later - earlier for earlier, later in pairwise(values)]
    drift = median_of(steps)
    deviation = median_of(abs(step - drift) for step in steps)
    return 2 * deviation / math.sqrt(len(values))


def without_seeds(parameters: Parameters) -> dict[str, int | float | str]:
    """Return the parameters that are no seed: tasks with the same ones are repeats."""
    return {
        name: value for name, value in parameters.items() if not SEED.fullmatch(name)
    }


def printed_names(output_text: str) -> list[str]:
    """Return the names that a number follows in a text, the most common first."""
    counts = Counter(match[1] for match in _PRINTED_NAME.finditer(output_text))
    return [name for name, _ in counts.most_common()]
