"""What the directives of all schedulers have in common: words, values, folders."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from weigh.errors import FormatError
from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    LintCase,
    ReadOptions,
    ScriptOption,
    is_shared,
    note,
    problem,
    refused,
)
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.script import ScriptLine
from weigh.schedulers.words import ParsedT, parsed_or_none, read_sections


def read_word_lists(package: str) -> dict[str, list[str]]:
    """Return the lists in ``words.txt`` of a scheduler, each as its words."""
    sections = read_sections(package, "words.txt")
    return {name: " ".join(rows).split() for name, rows in sections.items()}


class OptionValues(msgspec.Struct, frozen=True):
    """A row of a table: what *options* take, and what is said about another value.

    *takes* is a pattern, or a function that returns False or raises FormatError.
    """

    rule: str
    options: str
    takes: str | Callable[[str], object]
    is_not: str
    cure: str = ""

    def accepts(self, value: str) -> bool:
        """Return whether the scheduler takes *value*."""
        if isinstance(self.takes, str):
            return re.fullmatch(self.takes, value, re.IGNORECASE) is not None
        try:
            return self.takes(value) is not False
        except FormatError:
            return False

    def refusal(self, option: ScriptOption) -> LintFinding:
        """Return why the scheduler refuses an option."""
        effect = f"{option.value!r} is {self.is_not}: refused"
        return refused(option, self.rule, effect, self.cure)


def misread(
    lint_case: LintCase, table: Iterable[OptionValues]
) -> Iterator[LintFinding]:
    """Find the values that are refused; options of a file of the site are not read."""
    for row in table:
        for option in last(lint_case, row.options):
            is_read = not (option.value[:1] == "=" and option.is_short)
            if option.line and is_read and not row.accepts(option.value):
                yield row.refusal(option)


def last(lint_case: LintCase, names: str) -> list[ScriptOption]:
    """Return the options of these names that count, by line."""
    found = (lint_case.option(name) for name in names.split())
    return sorted(filter(None, found), key=lambda option: option.line)


def parsed(
    option: ScriptOption | None, parse: Callable[[str], ParsedT | None]
) -> ParsedT | None:
    """Return the parsed value; None if there is none, or it would be refused."""
    return parsed_or_none(parse, None if option is None else option.value)


def read_directive_lines(
    script_lines: Sequence[ScriptLine],
    of_line: Callable[[ScriptLine], Iterable[ScriptOption | LintFinding]],
    shown: Sequence[ScriptLine] | None = None,
) -> ReadOptions:
    """Read directives; *shown* are all lines of them, if more than are read."""
    found = [one for line in script_lines for one in of_line(line)]
    return ReadOptions(
        tuple(one for one in found if isinstance(one, ScriptOption)),
        tuple(one for one in found if isinstance(one, LintFinding)),
        tuple(script_lines if shown is None else shown),
    )


def split_words(text: str, escape: str = "") -> tuple[list[str], bool]:
    """Split a directive; also return whether a quote is not closed.

    With *escape*, which keeps the next character, in quotes too, a ``#`` begins a
    comment within a word.
    """
    words: list[str] = []
    word: str | None = None
    quote = ""
    characters = iter(text)
    for read in characters:
        character = next(characters, " ") if read == escape else read
        # sbatch ends a word at a space outside of quotes, whatever is before it
        if read == escape and (quote or character not in " \t"):
            word = (word or "") + character
        elif quote:
            quote = "" if character == quote else quote
            word = (word or "") + (character if quote else "")
        elif character in "'\"":
            word, quote = word or "", character
        # sbatch ends at any #, qsub at one that begins a word
        elif character == "#" and (escape or word is None):
            break
        elif character in " \t":
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + character
    return [*words, *([] if word is None else [word])], bool(quote)


def ignored(
    script_line: ScriptLine, tool: str, prefix: str, *, gap: str | None
) -> LintFinding:
    """Return the finding of a line that looks like a directive, and is not read."""
    why = "a space after '#': " if gap else ""
    effect = f"{why}{tool} ignores this line"
    return problem(script_line, "ignored-directive", effect, f"begin it with {prefix}")


def stray(
    script_line: ScriptLine, prefix: str, word: str, *, begun: bool
) -> LintFinding:
    """Return what is wrong with a word that is no option."""
    if not word[:1].isascii():
        effect = f"{word[0]!r} is not an ASCII '-': refused"
        return refused(script_line, "stray-word", effect, "type the dash again")
    if holds_placeholder(script_line.text.removeprefix(prefix)):
        return refused(
            script_line, "placeholder", "has a placeholder of a template: refused"
        )
    if begun:
        effect = f"{word!r} is separated from its option: refused"
        return refused(script_line, "stray-word", effect, "no spaces within a value")
    return refused(script_line, "stray-word", f"{word!r} is not an option: refused")


def missing_folder(
    lint_case: LintCase, option: ScriptOption, folder: str, *, rule: str, then: str
) -> Iterator[LintFinding]:
    """Find a folder that is not there; one that only nodes may have is noted."""
    base = lint_case.facts.cwd if rule == "chdir" else lint_case.start
    path = lint_case.absolute(folder, base)
    if path is None or lint_case.kind(path) not in ("missing", "file"):
        return
    is_sure = is_shared(lint_case, folder, path)
    where = "does not exist" if is_sure else "does not exist here"
    make = problem if is_sure else note
    make_it = f"mkdir -p {folder if lint_case.start == lint_case.facts.cwd else path}"
    cure = "" if rule == "chdir" else make_it
    yield make(option, rule, f"{folder} {where}: {then}", cure)


def unexpanded(lint_case: LintCase, but: Sequence[str]) -> Iterator[LintFinding]:
    """Find variables in options that no shell reads."""
    for option in lint_case.options:
        if option.line and option.name not in but and _DOLLAR.search(option.value):
            effect = "no shell reads this line: '$' is not expanded"
            yield problem(option, "literal-dollar", effect)


_DOLLAR = re.compile(r"\$\{?\w|\$\(|`")


def on_jobs(
    lint_case: LintCase,
    option: ScriptOption,
    jobs: Iterable[str],
    *,
    unknown: str,
    never: str,
) -> Iterator[LintFinding]:
    """Find jobs to wait for that are not known, or ended in one of other states.

    *unknown* and *never* are what the scheduler does then.
    """
    for job in jobs:
        whole = lint_case.facts.jobs.get(job.partition("_")[0], "")
        state = lint_case.facts.jobs.get(job, whole)
        if state is None:
            yield problem(option, "dependency", f"job {job} is not known: {unknown}")
        elif never and state not in ("", "PENDING", "RUNNING", "UNKNOWN", "COMPLETED"):
            effect = f"job {job} ended {state}: {never}"
            yield problem(option, "dependency", effect, f"run {job} again first")
