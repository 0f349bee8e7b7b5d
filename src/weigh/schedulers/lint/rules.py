"""The names of all rules, and the acknowledgement of findings by them."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import did_you_mean, note
from weigh.schedulers.script import ScriptLine
from weigh.schedulers.words import read_sections

# (group, ((name, what it finds), ...))
TABLE = tuple(
    (group, tuple(tuple(row.split(": ", 1)) for row in rows))
    for group, rows in read_sections("weigh.schedulers.lint", "rules.txt").items()
)
RULES = {name: what for _, group in TABLE for name, what in group}

_IGNORE = re.compile(r"#\s*weigh:\s*ignore\b[:\s]*(.*)$")
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class IgnoredRule(msgspec.Struct, frozen=True):
    """A rule that a comment names; *line* is None if it holds for the whole script."""

    rule: str
    line: int | None
    spot: ScriptLine


def acknowledged(
    text: str, lint_findings: Sequence[LintFinding], settings: Iterable[str] = ()
) -> tuple[tuple[LintFinding, ...], tuple[LintFinding, ...]]:
    """Return the findings that remain, and those that are ignored.

    A comment ``# weigh: ignore RULE[, RULE] [reason]`` holds for the whole script, or
    for its line if that has other text. *settings* are the rules that the setting
    ``[check] ignore`` names. An unknown name is a finding of its own.
    """
    comments = tuple(_comments(text))
    unknown = [*_unknown_rule_findings(comments, settings)]
    whole = {*settings, *(one.rule for one in comments if one.line is None)}
    single = {(one.rule, one.line) for one in comments}
    kept: list[LintFinding] = []
    ignored: list[LintFinding] = []
    for one in (*lint_findings, *unknown):
        is_ignored = one.rule in whole or (one.rule, one.line) in single
        (ignored if is_ignored else kept).append(one)
    return tuple(kept), tuple(ignored)


def _comments(text: str) -> Iterator[IgnoredRule]:
    for number, row in enumerate(text.splitlines(), 1):
        found = _IGNORE.search(row)
        if not found:
            continue
        line = number if row[: found.start()].strip() else None
        for rule in _ignored_rule_names(found[1]):
            yield IgnoredRule(rule, line, ScriptLine(number, found[0]))


def _ignored_rule_names(rest: str) -> Iterator[str]:
    """Yield the rules: the first word, and those that follow a comma."""
    for part in rest.split(","):
        words = part.split()
        if not words or not _NAME.fullmatch(words[0]):
            return
        yield words[0]
        if len(words) > 1:
            return  # what follows is the reason


def _unknown_rule_findings(
    comments: Iterable[IgnoredRule], settings: Iterable[str]
) -> Iterator[LintFinding]:
    for one in comments:
        if one.rule not in RULES:
            effect = f"no rule is named {one.rule}"
            yield note(one.spot, "unknown-rule", effect, _similar_rule_text(one.rule))
    for rule in settings:
        if rule not in RULES:
            effect = f"[check] ignore: no rule is named {rule}"
            yield note(None, "unknown-rule", effect, _similar_rule_text(rule))


def _similar_rule_text(rule: str) -> str:
    found = did_you_mean(rule, sorted(RULES))
    return "" if found.startswith("known: ") else found
