"""Find counts such as "step 12 of 345" in a line of output.

The user's patterns come first, then one table of those of progress bars and log lines.
A line has at most one inner count (a bar, or steps) and the outer ones before it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from weigh.bounded_pattern import compile_bounded
from weigh.errors import FormatError

# ranks: the smaller, the further out; the user's own patterns come first
PATTERN = 0
FOLD = 1
EPOCH = 2
STEP = 3


class StepCount(NamedTuple):
    """``done`` of ``total`` steps in one line.

    ``label`` distinguishes counters of one source; outer counters have a smaller
    ``rank``; ``position`` is the line of a bar among several. An ordinal
    (``is_ordinal``) is the number of the current step ("Epoch 3/10"), or of the one
    that just ended if the line has figures and is not a heading (``is_heading``).
    ``is_of_last`` is whether a tool that counts from zero prints the last number as the
    total.
    """

    source: str
    label: str
    rank: int
    position: int
    done: float
    total: float | None
    is_ordinal: bool = False
    is_heading: bool = False
    is_of_last: bool = False
    is_around: bool = False  # its inner counter is in the same line


_PAINT = re.compile(r"\x1b\[[\d;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_OTHER = re.compile(r"\x1b\[[\d;:?]*[B-LN-Za-ln-z]|\x1b[^\[]")
_PIECE = re.compile(r"([^\x1b]*)((?:\x1b\[\d*A)+|\x1b|$)")


class ShownText(NamedTuple):
    """A piece of text, and by how many lines it is below its neighbours."""

    text: str
    below: int


def shown_pieces(line: bytes) -> Iterator[ShownText]:
    """Yield the pieces of *line* between cursor moves.

    A bar below the first moves down, draws, and moves up again: the moves up give its
    line on the display.
    """
    text = line.decode("utf-8", "replace")
    if "\x1b" not in text:
        yield ShownText(text, 0)
        return
    # colours are dropped; other sequences cut the text into pieces
    text = _OTHER.sub("\x1b", _PAINT.sub("", text))
    for piece in _PIECE.finditer(text):
        if piece[1].strip():
            yield ShownText(piece[1], piece[2].count("A"))


_NUMBER = r"(?-i:\d[\d,_]{0,18}(?:\.\d{1,9})?[kKMGTPE]?)"
PER_CENT = r"\d{1,3}(?:[.,]\d{1,6})?"  # "12,5 %" where the language writes a comma
_OF = r"\s{0,4}(?:/|of|out of)\s{0,4}"
_STEP_WORDS = (
    "(?:step|iter|iteration|batch|minibatch|update|sample|example|file|document|"
    "sentence|image|item|task|chunk|shard|record|row)(?:e?s)?"
)
_OUTER_WORDS = (
    "fold|seed|trial|epoch|round|generation|pass|phase|stage|loop|reference block|"
    "shape|replica"
)
_PART_WORDS = (
    "chain|pass|phase|stage|part|replicate|replica|run|block|fold|round|generation|"
    "trial|seed"
)
_EPOCH_WORDS = ("epoch", "round", "generation")
_SHARED_PARTS = ("pass", "phase", "stage", "loop")  # "pass 2/3 ... 45%"
_POWERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}


class CountPattern(NamedTuple):
    """One kind of inner count: its groups are what is done, and the total or none."""

    source: str
    need: str  # without it a line cannot match: most lines have no bar
    label: str | None  # of None is the text before it, without its figures
    pattern: re.Pattern[str]
    is_share: bool  # a percentage, of 100


# place, source, the text that a line must have, label, pattern; in a label "-" is the
# text before the count, "''" none; <n> is a number, <%> a percentage
_TABLE = r"""
bar     tqdm         %   -   \d{1,3}%(?:\|[^|]*\||\s)\s*<n>/<n>(?![\d/])
bar     tqdm         %|  -   <whole %>%\|
bar     percentages  %   ''  ^\s*\[\s*<whole %>%\]
bar     percentages  %   ''  \bprogress\W{1,3}<%>\s?%
bar     percentages  %   ''  (?<![\d.,])<%>\s?% (?:done|complete)
bar     tqdm         [   -   <n>\s?[^\W\d]\S{0,30}\s\[\d+:\d\d[\d:]*,
bar     Keras        /   ''  ^\s*<n>/(?:<n>|Unknown)\s+<keras>
bar     rich         /   -   [━╸╺─][━╸╺─ ]{4,}.*?<n>/\s*<n>(?![\d/])
bar     rich         ━   -   [━╸╺][━╸╺ ]{4,}.*?<whole %>%
step    step lines   -   step  \b<step>\b(?:\(train\))?<sign><n><of><total>
step    step lines   -   step  (?<![\d/.,])<n><of><n>\s+<step>\b
start   step lines   [   []    ^\s*<brackets>\s?\]
epoch   step lines   [   []    <brackets>(?=[\s\],])<no date>
epoch   step lines   /   /     ^\s*(\d{1,15})\s?/\s{0,4}(\d{1,15})<alone><no date>
share   percentages  %   ''    <unit><%>\s?%\s*$
"""
_PIECES = {
    "n": f"({_NUMBER})",
    "%": f"({PER_CENT})",
    "whole %": r"(\d{1,3})",
    "of": _OF,
    "step": _STEP_WORDS,
    "total": rf"({_NUMBER})(?![\d/]|\.\d)",
    "sign": r"[\s:#=]{0,4}[\[(]?\s{0,4}",
    "keras": r"(?:━|\[[=>.]+\]|-\s\d+s|\d\S*\s\S+/step)",
    "brackets": r"\[\s{0,9}(\d{1,15})\s?/\s{0,9}(\d{1,15})"
    r"(?:\s?\(\s{0,4}\d{1,3}(?:\.\d{1,6})?\s?%\))?",
    "no date": r"(?!\s\d\d?:\d\d(?:[:\]\s]))",
    "alone": r"(?=[\s,:;|)\]]|$)(?!\s+[A-Za-z])",
    "unit": r"(?:[^a-zA-Z=]{3}|\dB?\s|(?-i:[kKMGTP])i?B?\s)(?<![\w.])",
}


def _patterns_at(place: str) -> tuple[CountPattern, ...]:
    """Return the rows of the table for one place."""
    found = []
    for row in _TABLE.strip().splitlines():
        where, source, need, label, pattern = re.split(r"\s{2,}", row, maxsplit=4)
        if where == place:
            full = re.sub("<([a-z %]+)>", lambda name: _PIECES[name[1]], pattern)
            found.append(
                CountPattern(
                    source,
                    "" if need == "-" else need,
                    None if label == "-" else label.strip("'"),
                    re.compile(f"(?i:{full})"),
                    "%>" in pattern,
                )
            )
    return tuple(found)


_BARS, _STEPS = _patterns_at("bar"), _patterns_at("step")
_AT_START = _patterns_at("start")  # a bare "[12/345]" at the beginning of a line
# and, in or under the line of an epoch, also elsewhere and without its brackets
_IN_EPOCH = _patterns_at("epoch")
_OF_PART = _patterns_at("share")
_AFTER_OUTER = re.compile(
    rf"(?i:[^\w.]{{0,8}}(?:{_STEP_WORDS}\s?\d{{0,15}}\W{{0,3}})?"
    r"(?<![\d.])(\d{1,15})\s{0,4}/\s{0,4}(\d{1,15})(?![\w/:%]|\.\d))"
)
_SHARE_AFTER = re.compile(rf"[^\w.]{{0,8}}({PER_CENT})\s?%")
_MEASURES = re.compile(r"(?i:acc|loss|err|score|rate|cpu|gpu|mem|used)")
# "95% CPU", but not "95% loss=0.1"
MEASURED_AFTER = re.compile(
    r"(?i:\s{0,2}(?:acc|accuracy|cpu|gpu|mem|memory|identity|loss|error|free|used|idle|"
    r"util|of (?:reads|bases|cpu|memory|cases|classes))\b(?!\s?[=:]))"
)

_OUTER = re.compile(
    rf"(?i:\b({_OUTER_WORDS})(?![a-z])[\s:#=]{{0,4}}(?:\(?train(?:ing)?\)\s{{0,4}})?"
    rf"[\[(]?\s{{0,4}}(\d{{1,9}})(?![\d.]){_OF}(\d{{1,9}})(?![\d/]|\.\d))"
)
# the first column of YOLO's bars, of which the others are measures
_COLUMN = re.compile(r"\s*\[?(\d{1,9})/(\d{1,9})(?=[\]\s:,|])")
# Swin, DCGAN: "Train: [0/300][50/1251]"
_TWO_BRACKETS = re.compile(
    r"\[\s{0,4}(\d{1,9})/\s{0,4}(\d{1,9})\]\s?"
    r"(?=\[\s{0,9}\d{1,15}/\s{0,9}\d{1,15}\])"
)
# an epoch of which the number is not printed, at the start or after what a logger adds
_OPEN_EPOCH = re.compile(
    r"(?i:(?:^\W{0,20}|[\]|:>-]\s{0,4}|^[\d\s:.,/TZ-]{8,40}\s)(?:train(?:ing)?\W{1,3})?"
    r"epoch[\s:#=]{0,4}(?:\(\w{1,12}\)\s{0,4})?\[?\s{0,4}(\d{1,9})(?![\w.]))"
)
# the same before the counter of its steps: "Train: 3 [20/800 ( 3%)]"
_EPOCH_OF_STEPS = re.compile(
    r"(?i:\b(?:train(?:ing)?\W{1,3}|epochs?\W{0,3}(?:\(\w{1,12}\)\W{0,3})?)"
    r"(\d{1,9})\W{0,3}(?=\[\s{0,9}\d{1,15}\s?/))"
)
_OPEN_PART = re.compile(
    rf"(?i:(?:^\W{{0,20}}|[\]|:>,-]\s{{0,4}}|\b\w{{1,12}}\s)"
    rf"({_PART_WORDS})[\s:#=]{{1,4}}(\d{{1,9}})(?![\w.]|\s?/|\s{{1,4}}of\b))"
)
# "file 2/10: 45%" has a share of one of ten
_FILE = re.compile(
    r"(?i:\b(?:file|sample|document|image|video|item|task|chunk|shard|record)s?\b"
    rf"[\s:#=]{{0,4}}(\d{{1,9}}){_OF}(\d{{1,9}})(?![\d/]|\.\d))"
)
_DIGITS = re.compile(r"\d[\d.,]*")
_UNNAMED = re.compile(r"[^a-z#]+")
_WORTH_A_LOOK = re.compile(
    r"(?i:\d\s*(?:/|%|of\b|out of\b|\S{0,30}\s\[\d)|epoch)",
)
_TRAINER = re.compile(r"'epoch': '?(\d{1,9}(?:\.\d{1,9})?)'?\s*[,}]")
# the Trainer, timm, Lightning; the options that many scripts print first
_TRAINER_EPOCHS = re.compile(
    r"(?i:(?:num[ _](?:train[ _])?|max[ _]|scheduled |total )epochs\W{1,3}(\d{1,9})"
    r"(?!\w|\.\d)"
    r"|(?<!\w)epochs=(\d{1,9})(?!\w|\.\d))"
)
_LONGEST_FOR_PATTERNS = 1000  # a pattern of the user's may be slow on a long line


def parse_amount(text: str) -> float:
    """Parse ``1,200`` or ``4.0k``."""
    power = _POWERS.get(text[-1])
    digits = text[:-1] if power else text
    return float(digits.replace(",", "").replace("_", "")) * (power or 1.0)


def parse_per_cent(text: str) -> float:
    """Parse ``12.5`` or ``12,5``."""
    return float(text.replace(",", "."))


class InnerCount(NamedTuple):
    """The steps of a bar or a line, and where in the text they begin."""

    steps: StepCount
    start: int


def _inner_in(
    text: str, kinds: Sequence[CountPattern], start: int = 0
) -> InnerCount | None:
    """Return the first count of one of *kinds* in *text* from *start* on."""
    for kind in kinds:
        if kind.need not in text or not (found := kind.pattern.search(text, start)):
            continue
        label = kind.label
        if label is None:
            # figures change from line to line, names do not
            before = _DIGITS.sub("#", text[: found.start()].lower())
            label = _UNNAMED.sub(" ", before).strip()[:60]
        total: float | None = 100.0
        if kind.is_share:
            done = parse_per_cent(found[1])
        else:
            done = parse_amount(found[1])
            last = found[2] if found.re.groups > 1 else None
            total = parse_amount(last) if last else None
        return InnerCount(
            StepCount(kind.source, label, STEP, 0, done, total), found.start()
        )
    return None


def _ordinal(word: str, done: str, total: str | None) -> StepCount:
    rank = EPOCH if word in _EPOCH_WORDS else FOLD
    last = None if total is None else float(total)
    # a last number such as 24 or 99 is one less than a round total
    is_of_last = last is not None and (last + 1) % 5 == 0
    return StepCount(
        f"{word} lines",
        word,
        rank,
        0,
        float(done),
        last,
        is_ordinal=True,
        is_of_last=is_of_last,
    )


def _outer_in(text: str) -> tuple[list[StepCount], int]:
    """Return the epochs, folds and the like that have a total, and where they end."""
    if found := _TWO_BRACKETS.search(text):
        count = _ordinal("epoch", found[1], found[2])._replace(is_of_last=False)
        return [count], found.end()
    counts: list[StepCount] = []
    end = 0
    for found in _OUTER.finditer(text):
        if not counts and (part := _OPEN_PART.search(text, 0, found.start())):
            counts.append(_ordinal(part[1].lower(), part[2], None))
        counts.append(_ordinal(found[1].lower(), found[2], found[3]))
        end = found.end()
    file = _FILE.search(text) if not counts and "%" in text else None
    if file and float(file[2]) > 1 and _share_after(text, file.end()):
        return [_ordinal("file", file[1], file[2])], file.end()
    return counts, end


class CountParser:
    """Finds counts in lines.

    Its only state is the number of epochs, and whether an epoch was announced: then
    lines that count without a name count inside it.
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = [_compiled_count_pattern(pattern) for pattern in patterns]
        self._epochs: float | None = None
        self._is_in_epoch = False

    def counts(self, line: bytes) -> Iterator[StepCount]:
        """Yield the plausible counts in *line*, the outer ones first."""
        for piece in shown_pieces(line):
            yield from self._of_patterns(piece)
            if _WORTH_A_LOOK.search(piece.text):
                yield from filter(_makes_sense, self._known(piece))

    def _of_patterns(self, piece: ShownText) -> Iterator[StepCount]:
        for index, pattern in enumerate(self._patterns):
            found = pattern.search(piece.text[:_LONGEST_FOR_PATTERNS])
            count = found and _count_of_pattern(found, str(index))
            if count and _makes_sense(count):
                yield count

    def _known(self, piece: ShownText) -> Iterator[StepCount]:
        text = piece.text
        if "poch" in text:
            # the number of epochs, printed once: no count of its own
            if found := _TRAINER_EPOCHS.search(text):
                self._epochs = float(found[1] or found[2])
                return
            if found := _TRAINER.search(text):
                if self._epochs:
                    done = float(found[1])
                    yield StepCount("Trainer", "epoch", EPOCH, 0, done, self._epochs)
                return
        yield from self._counted(text, piece.below)

    def _counted(self, text: str, below: int) -> Iterator[StepCount]:
        inner = _inner_in(text, _BARS)
        head = text if inner is None else text[: inner.start]
        outer, start = _outer_in(head)
        if inner is None:
            inner = self._steps_in(text, start, outer)
        is_bar = inner is not None and inner.steps.source in ("tqdm", "rich")
        if is_bar and not outer and (column := _COLUMN.match(head)):
            count = _ordinal("epoch", column[1], column[2])
            outer = [count._replace(is_of_last=True)]
        if not outer:
            outer, start = self._open_in(head)
            is_epoch = bool(outer) and outer[0].label == "epoch"
            if outer and inner is None:
                share = _share_after(text, start) if is_epoch else None
                inner = share or _after_outer(text, start)
            if inner is None and not is_epoch:
                outer = []  # a part of which nothing is counted
        # a line with figures after the epoch is its result, one without is its heading
        has_more = inner is not None or not any(map(str.isdigit, text[start:]))
        # Lightning numbers its epochs from zero
        is_lightning = (
            "•" in text and inner is not None and inner.steps.source == "rich"
        )
        for found in outer:
            count = found
            self._is_in_epoch |= count.rank == EPOCH
            if is_lightning:
                count = count._replace(is_of_last=True)
            if count.total is None and count.rank == EPOCH:
                count = count._replace(total=self._epochs)
            yield count._replace(is_heading=has_more, is_around=inner is not None)
        if inner is not None:
            yield inner.steps._replace(position=below)

    def _steps_in(
        self, text: str, start: int, outer: list[StepCount]
    ) -> InnerCount | None:
        """Return the steps counted in *text*, of which *outer* ends at *start*."""
        # a per cent right after the epoch, as in "epoch 3/10: 45 %"
        if outer and (found := _share_after(text, start)):
            return found
        if found := _inner_in(text, _STEPS):
            return found
        if found := _after_outer(text, start) if outer else _inner_in(text, _AT_START):
            return found
        if outer and outer[-1].label in _SHARED_PARTS:
            is_measure = _MEASURES.search(text, start)
            return None if is_measure else _inner_in(text, _OF_PART, start)
        return _inner_in(text, _IN_EPOCH) if self._is_in_epoch and not outer else None

    @staticmethod
    def _open_in(head: str) -> tuple[list[StepCount], int]:
        """Return the epoch or part whose number of all is not printed."""
        if found := _OPEN_EPOCH.search(head) or _EPOCH_OF_STEPS.search(head):
            return [_ordinal("epoch", found[1], None)], found.end()
        if found := _OPEN_PART.search(head):
            return [_ordinal(found[1].lower(), found[2], None)], found.end()
        return [], 0


def _share_after(text: str, start: int) -> InnerCount | None:
    """Return the percentage that follows an outer count at once, if it is a share."""
    found = _SHARE_AFTER.match(text, start)
    if found is None or MEASURED_AFTER.match(text, found.end()):
        return None
    count = StepCount("percentages", "", STEP, 0, parse_per_cent(found[1]), 100.0)
    return InnerCount(count, found.start())


def _after_outer(text: str, start: int) -> InnerCount | None:
    """Return the steps after an outer count that ends at *start*."""
    if found := _AFTER_OUTER.match(text, start):
        count = StepCount("step lines", "[]", STEP, 0, float(found[1]), float(found[2]))
        return InnerCount(count, found.start())
    return _inner_in(text, _IN_EPOCH, start)


def _compiled_count_pattern(pattern: str) -> re.Pattern[str]:
    try:
        compiled = compile_bounded(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise FormatError(f"not a regular expression: {pattern!r} ({error})") from error
    names = set(compiled.groupindex)
    if not ({"done", "total"} <= names or "percent" in names):
        raise FormatError(
            f"a progress pattern needs the groups (?P<done>...) and (?P<total>...),"
            f" or (?P<percent>...): {pattern!r}"
        )
    return compiled


def _count_of_pattern(match: re.Match[str], label: str) -> StepCount | None:
    groups = match.groupdict()
    # without both of them, the pattern's per cent counts
    done, total = groups.get("done"), groups.get("total")
    if done is None or total is None:
        done, total = groups.get("percent"), "100"
    try:
        count, whole = (float((word or "").replace(",", "")) for word in (done, total))
    except ValueError:
        return None
    return StepCount("your pattern", label, PATTERN, 0, count, whole)


def _makes_sense(step_count: StepCount) -> bool:
    if step_count.total is None:
        return 0 <= step_count.done < float("inf")
    least = 1 if step_count.rank in (FOLD, STEP) else 0  # "file 1 of 1" is no counter
    return (
        0 <= step_count.done <= step_count.total < float("inf")
        and step_count.total > least
    )
