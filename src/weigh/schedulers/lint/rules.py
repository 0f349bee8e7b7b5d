"""The names of all rules, and the acknowledgement of findings by them."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import did_you_mean, note
from weigh.schedulers.script import ScriptLine

# (group, name, what it finds); docs/reference/rules.md is written from this table
TABLE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "File",
        (
            ("bom", "a byte order mark at the start"),
            ("carriage-returns", "Windows line endings"),
            ("no-shebang", "no `#!` in the first line"),
            ("interpreter", "an interpreter that does not exist"),
            ("no-shell", "no `-S` where the queue's shell may run the script"),
            ("placeholder", "a word that a template leaves to be filled in"),
            ("syntax", "what bash itself cannot read"),
            ("shellcheck", "what shellcheck reports, where it is installed"),
            ("unknown-rule", "an unknown name after `weigh: ignore`"),
        ),
    ),
    (
        "Directives",
        (
            ("directive-after-command", "a directive below the first command"),
            ("ignored-directive", "a line that looks like a directive, and is none"),
            ("stray-word", "a word that belongs to no option, or an open quote"),
            ("unknown-option", "an option that does not exist"),
            ("option-value", "an invalid value of an option, or none"),
            ("short-equals", "`=` after a short option"),
            ("literal-dollar", "`$` or `~` where no shell expands it"),
            ("dependency", "an invalid dependency, or one that is never met"),
        ),
    ),
    (
        "Values",
        (
            ("time", "an invalid time"),
            ("time-in-minutes", "a time that is in minutes"),
            ("time-in-seconds", "a time that is in seconds"),
            ("memory", "an invalid size, or sizes that exclude each other"),
            ("memory-in-mib", "a size without a unit, in MiB"),
            ("memory-in-bytes", "a size without a unit, in bytes"),
            ("memory-per-slot", "memory that counts for each slot"),
            ("virtual-with-cuda", "a limit of virtual memory for a GPU job"),
            ("gpus", "an invalid number or type of GPUs"),
            ("gpus-per-slot", "GPUs that count for each slot"),
            ("default-time", "no time limit: the default applies"),
            ("default-memory", "no memory: the default applies"),
            ("default-gpu", "no GPU in a queue of GPU nodes"),
        ),
    ),
    (
        "Limits of the cluster",
        (
            ("unknown-queue", "a queue or partition that does not exist"),
            ("closed-queue", "a queue that starts no jobs now"),
            ("unknown-account", "an account that is not yours, or not the queue's"),
            ("unknown-qos", "a QOS that is not yours, or not the queue's"),
            ("unknown-project", "a project that does not exist"),
            ("unknown-parallel", "a parallel environment that does not exist"),
            ("unknown-resource", "a resource that does not exist"),
            ("unknown-constraint", "a feature that no node has"),
            ("unknown-node", "a node that does not exist, or not in the queue"),
            ("memory-beyond-node", "more memory than a node has"),
            ("memory-beyond-queue", "more memory than the queue allows"),
            ("cpus-beyond-node", "more CPUs than a node has"),
            ("cpus-beyond-queue", "more CPUs than the queue allows"),
            ("gpus-beyond-node", "GPUs that no node has"),
            ("time-beyond-queue", "more time than the queue allows"),
            ("nodes-beyond-queue", "more nodes than the queue has"),
            ("array-size", "more elements, or a larger index, than allowed"),
            ("no-such-node", "no node that has all of the request"),
            ("site-requires", "nothing of what the settings require in each job"),
            ("site-memory", "memory per node where the site wants it per CPU"),
        ),
    ),
    (
        "Use of the request",
        (
            ("threads-beyond-cpus", "more threads than CPUs"),
            ("step-beyond-job", "a step larger than the job"),
            ("processes-beyond-gpus", "more processes than GPUs"),
            ("devices-overridden", "`CUDA_VISIBLE_DEVICES` set by hand"),
            ("no-gpu", "a program that asks for a GPU, and none requested"),
            ("heap-beyond-memory", "a Java heap as large as the memory"),
        ),
    ),
    (
        "Arrays",
        (
            ("array", "invalid indices, or others than were meant"),
            ("no-throttle", "many elements at the same time"),
            ("no-array", "an index, and no array"),
            ("elements-alike", "an array, and no index"),
            ("element-without-input", "an element without its file, line or value"),
            ("input-without-element", "a file or line without its element"),
            ("log-shared", "one log for all elements"),
            ("output-shared", "one output file for all elements"),
        ),
    ),
    (
        "Paths and programs",
        (
            ("log-directory", "a log in a directory that does not exist"),
            ("log-pattern", "a pattern that the scheduler does not know"),
            ("chdir", "a working directory that does not exist"),
            ("starts-at-home", "no `-cwd`: the job starts in the home directory"),
            ("missing-path", "a file that does not exist"),
            ("not-executable", "a program that nobody may execute"),
            ("command-not-found", "a program that does not exist here"),
            ("bare-path", "a program that the job's PATH lacks"),
            ("login-only", "a program that only this machine has"),
            ("conda", "`conda activate` without its hook"),
            ("module", "`module` in a shell that does not have it"),
            ("strict-mode", "`set -u` where scripts of others are read"),
            ("node-local", "a path that only this machine has"),
            ("variable", "a variable that this scheduler never sets"),
        ),
    ),
    (
        "End of the job",
        (
            ("loop-input", "a step that reads the input of its loop"),
            ("word-splitting", "a line with quotes or pipes that no shell reads"),
            ("unsafe-remove", "`rm -r` of results that may not have been copied"),
            ("no-wait", "background commands that end with the script"),
            ("hidden-exit", "a failure that the exit code of the job does not show"),
            ("deferred-trap", "a trap that runs too late"),
            ("signal-to-nobody", "a signal that no process gets"),
            ("signal-untrapped", "a signal that ends the job early"),
            ("no-soft-limit", "a trap for a signal that is never sent"),
        ),
    ),
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
