"""Find the records whose commands are similar to a task's line."""

import math
import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Protocol

import msgspec

from weigh.errors import UsageError
from weigh.estimate.history import template
from weigh.model.record import Record
from weigh.planning.launchers import without_launcher
from weigh.request import failed_at_once
from weigh.sweep.values import is_seed
from weigh.units import Seconds, is_number

Sizes = dict[str, float]

_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "zsh"})
_CODE = frozenset({"-c", "-e"})  # options whose value is a program
_PLACE = "argument "
# without any of these a shell only splits at blanks, and shlex is slow
_QUOTING = frozenset("'\"\\$`")
# numbers that are an address or an identity, never an amount
_PLACES = ("port", "master_port", "device", "gpu", "cuda", "rank", "local_rank")
_NO_SIZES = frozenset((*_PLACES, "node_rank", "fold", "run", "trial", "id"))


def task_line_words(task_line: str) -> list[str]:
    """Return the words of a task's line, as a shell would split it."""
    if _QUOTING.isdisjoint(task_line):
        return task_line.split()
    try:
        return shlex.split(task_line)
    except ValueError:  # shlex rejects lines that a shell accepts
        return task_line.split()


def words_run(command: Sequence[str]) -> list[str]:
    """Return the words of a record's command; of the line if a shell ran it."""
    words = list(command)
    if posixpath.basename(words[0] if words else "") not in _SHELLS:
        return words
    for place, word in enumerate(words[1:-1], 1):
        # the line's words are compared, as a task of a plan is a line, too
        if re.fullmatch("-[a-z]*c", word):  # bash -euo pipefail -c LINE
            return [*task_line_words(words[place + 1]), *words[place + 2 :]]
        before = words[place - 1]
        # the first word that is no option, nor the value of -o, is a script: no line
        # follows
        if word[:1] not in {"-", "+"} and not re.fullmatch("[-+][a-z]*o", before):
            break
    return words


def kind_of_command(
    command: Sequence[str], parameters: Mapping[str, float | str]
) -> tuple[str, ...]:
    """Return *command* with placeholders for what varies from run to run.

    Of a line that a shell ran the words count, or all lines with a path in them would
    be one kind. Code (``python -c CODE``) stays as it is.
    """
    words = words_run(command)
    general = template(words, parameters)
    return tuple(
        word if before in _CODE else one
        for before, word, one in zip(("", *words), words, general, strict=False)
    )


def is_assignment(shell_word: str) -> bool:
    """Return whether *shell_word* is ``NAME=value``."""
    name, equals, _ = shell_word.partition("=")
    return bool(equals) and name.isidentifier()


def sizes_in(
    command_words: Sequence[str], parameters: Mapping[str, int | float | str]
) -> Sizes:
    """Return the positive numbers of a command and of its *parameters*, by name.

    The name of a number is its option (``--batch-size 50``), its parameter or its
    position. Options come before parameters of the same name. Seeds, ports and other
    identities are left out.
    """
    named = {
        option or f"{_PLACE}{place}": float(text)
        for place, option, text in _numbers_with_options(command_words)
    }
    # a sweep writes the same number into the option and into the parameters: count it
    # once
    options = {_plain_option_name(name) for name in named}
    from_parameters = {
        name: float(value)
        for name, value in parameters.items()
        if not isinstance(value, str) and _plain_option_name(name) not in options
    }
    # positions last: a curve prefers the first of two names that agree, and a named
    # size says more
    places = {name: named.pop(name) for name in [*named] if name.startswith(_PLACE)}
    found = {**named, **from_parameters, **places}
    return {
        name: value
        for name, value in found.items()
        # a fit rejects a size of 0 or less
        if 0 < value < math.inf and not _is_label(name)
    }


def _numbers_with_options(
    command_words: Sequence[str],
) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each number, its option (empty if it has none) and its text.

    ``--epochs 1`` is ``--epochs=1``, and not ``--seed 1``.
    """
    option = ""
    for place, word in enumerate(command_words):
        name, equals, value = word.partition("=")
        if equals and is_number(value):
            yield place, name, value
        elif is_number(word):
            yield place, option, word
        # -5 is a number, and --epochs=1 has its value: none is the next one's option
        takes_value = word.startswith("-") and not equals and not is_number(word)
        option = word if takes_value else ""


@cache
def _is_label(option_name: str) -> bool:
    plain = _plain_option_name(option_name)
    return (
        is_seed(plain) or plain in _NO_SIZES or not {"*", ","}.isdisjoint(option_name)
    )


def _plain_option_name(option_name: str) -> str:
    """Return one spelling for ``--batch-size`` and ``batch_size``."""
    return option_name.lstrip("-").replace("-", "_").lower()


_MOST_RUNS = 5  # of one command, the newest
# that are compared with each line: a history of years must not slow a plan down
_MOST_COMMANDS = 300
_USELESS = frozenset(
    {"FAILED", "STUCK", "DIVERGED", "CANCELLED", "INTERRUPTED", "UNKNOWN"}
)

Parts = tuple[tuple[str, ...], frozenset[str], frozenset[str]]


class CandidateRecords(msgspec.Struct, frozen=True):
    """The records of one command, and the words to compare with a task's line.

    ``names`` are the ids of the records, ``sizes`` the sizes of each, in that order.
    """

    names: tuple[str, ...]
    stem: tuple[str, ...]  # program and script
    words: frozenset[str]  # the others, and labels
    numbers: frozenset[str]
    sizes: tuple[Sizes, ...] = ()  # one for each of names


class RecordLibrary(msgspec.Struct, frozen=True):
    """The commands that have records, and the function that reads a record by its id.

    ``named``: the user named the records, so each task has to match one. ``failed`` are
    the ids of runs that failed at once, of which nothing can be learnt, by their stem.
    """

    known: tuple[CandidateRecords, ...]
    read: Callable[[str], Record]
    named: bool = False
    failed: Mapping[tuple[str, ...], str] = {}


class TimedUsage(Protocol):
    """The figure of a record's usage that the search needs."""

    @property
    def wall_time(self) -> Seconds | None: ...  # noqa: D102 - the usage's own field


class RunHead(Protocol):
    """The summary of a record that the search for similar commands needs."""

    @property
    def id(self) -> str: ...  # noqa: D102 - the record's own field
    @property
    def label(self) -> str | None: ...  # noqa: D102 - the record's own field
    @property
    def command(self) -> tuple[str, ...]: ...  # noqa: D102 - the record's own field
    @property
    def parameters(self) -> dict[str, int | float | str]: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102 - the record's own field
    @property
    def usage(self) -> TimedUsage | None: ...  # noqa: D102 - the record's own field


def record_candidates(heads: Iterable[RunHead]) -> tuple[CandidateRecords, ...]:
    """Return the newest records of each command, grouped by command.

    Runs that completed or reached a limit are preferred to those that failed; of what
    failed at once, nothing can be learnt.
    """
    runs: dict[tuple[str, ...], list[RunHead]] = {}
    for head in heads:
        # the newest come first, so the limits on their number drop the oldest
        if head.usage is None or failed_at_once(head.state, head.usage.wall_time):
            continue
        if head.command in runs or len(runs) < _MOST_COMMANDS:
            runs.setdefault(head.command, []).append(head)
    return tuple(_candidate_of_command(command, same) for command, same in runs.items())


def failed_runs(heads: Iterable[RunHead]) -> dict[tuple[str, ...], str]:
    """Return the newest run that failed at once, by the program and script that ran."""
    found: dict[tuple[str, ...], str] = {}
    for head in heads:
        if head.usage and failed_at_once(head.state, head.usage.wall_time):
            # heads come newest first, so the first one stays
            found.setdefault(command_parts(words_run(head.command))[0], head.id)
    return found


class SimilarRecordFinder:
    """Finds the records of the commands most similar to a line."""

    def __init__(self, library: RecordLibrary) -> None:
        self._known = library.known
        self._named = library.named
        self._alike: dict[
            tuple[tuple[str, ...], frozenset[str]], tuple[CandidateRecords, ...]
        ] = {}

    def most_alike(
        self, task_line: str, line_parts: Parts
    ) -> tuple[CandidateRecords, ...]:
        """Return the commands that share the most words with a line, numbers aside.

        Raises:
            UsageError: the user named records, and none is of a similar command.
        """
        stem, words, _ = line_parts
        key = (stem, words)
        if key not in self._alike:
            self._alike[key] = self._search(stem, words)
        if not self._alike[key] and self._named:
            raise UsageError(
                f"none of the named records is of a command like: {task_line[:60]} "
                "(weigh run measures one)"
            )
        return self._alike[key]

    def _search(
        self, stem: tuple[str, ...], plain_words: frozenset[str]
    ) -> tuple[CandidateRecords, ...]:
        same = [one for one in self._known if one.stem == stem]
        # a user who names one record means it, even for another program
        if not same and self._named and len(self._known) == 1:
            return self._known
        if not same:
            return ()
        # among runs of one program the other words decide: --model large is not --model
        # small
        most = max(len(one.words & plain_words) for one in same)
        return tuple(one for one in same if len(one.words & plain_words) == most)


def nearest_records(
    alike: Sequence[CandidateRecords], numbers: frozenset[str]
) -> tuple[str, ...]:
    """Return the ids of the records that also share the most numbers."""
    if len(alike) > 1:
        most = max(len(one.numbers & numbers) for one in alike)
        alike = [one for one in alike if len(one.numbers & numbers) == most]
    return tuple(name for one in alike for name in one.names)


def _candidate_of_command(
    command: tuple[str, ...], heads: Sequence[RunHead]
) -> CandidateRecords:
    # failed runs are a lower bound of what is needed: better than nothing
    useful = [head for head in heads if head.state not in _USELESS] or list(heads)
    useful = useful[:_MOST_RUNS]
    words = words_run(command)
    stem, plain, numbers = command_parts(words)
    labels = frozenset(head.label for head in useful if head.label)
    return CandidateRecords(
        names=tuple(head.id for head in useful),
        stem=stem,
        # a label that a task's line contains is a hint of the user's
        words=plain | labels,
        numbers=numbers,
        sizes=tuple(sizes_in(words, head.parameters) for head in useful),
    )


def command_parts(command_words: Sequence[str]) -> Parts:
    """Split words into the stem (program and script), other words, and numbers."""
    start = 0
    while start < len(command_words) and is_assignment(command_words[start]):
        start += 1
    # mpirun -n 8 SOLVER is the same program as SOLVER
    run = without_launcher(command_words[start:])
    # without its folder: /usr/bin/python and a venv's are one program
    program = [word.rpartition("/")[2] for word in run[:1]]
    script = next((w for w in run[1:] if not w.startswith("-")), None)
    if run[1:2] == ["-c"]:  # python -c CODE: CODE is the script
        script = "-c"
    # a number is no script, but an argument of the program
    if script is not None and not is_number(script):
        # ./train.py and train.py are one; a/run.py and b/run.py are two
        program.append(posixpath.normpath(script))
    stem = tuple(program)
    pieces = frozenset(piece for word in command_words for piece in word.split("="))
    plain = frozenset(piece for piece in pieces if not is_number(piece))
    numbers = _numbers_with_options(command_words)
    return stem, plain, frozenset(f"{option}={text}" for _, option, text in numbers)
