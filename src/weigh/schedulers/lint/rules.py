"""The names of all rules, and the acknowledgement of findings by them."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from weigh.model.lint import Finding
from weigh.schedulers.lint.case import did_you_mean, note
from weigh.schedulers.script import Line

# (group, name, what it finds); docs/reference/rules.md is written from this table
TABLE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "File",
        (
            ("bom", "a byte order mark at the start"),
            ("carriage-returns", "Windows line endings"),
            ("nul", "a NUL character"),
            ("empty", "no command at all"),
            ("no-shebang", "no `#!` in the first line"),
            ("interpreter", "an interpreter that does not exist"),
            ("no-shell", "no `-S` where the queue's shell may run the script"),
            ("bash-only", "bash syntax under `#!/bin/sh`"),
            ("placeholder", "a word that a template leaves to be filled in"),
            ("syntax", "what bash itself cannot read"),
            ("broken-line", "a command that ends before its last line"),
            ("unknown-rule", "an unknown name after `weigh: ignore`"),
        ),
    ),
    (
        "Directives that are not read, or refused",
        (
            ("directive-after-command", "a directive below the first command"),
            ("misspelled-directive", "a line that looks like a directive"),
            ("space-in-directive", "a space after `#`"),
            ("indented-directive", "spaces before `#`"),
            ("commented-directive", "a directive behind `##`"),
            ("continued-directive", "a directive that ends in a backslash"),
            ("directive-in-document", "a directive in a here-document, which is read"),
            ("accidental-directive", "a comment that begins with `#$`"),
            ("foreign-directive", "another scheduler's directives"),
            ("pbs", "`#PBS` lines, which sbatch also reads"),
            ("no-space", "no space after `#SBATCH`"),
            ("dash", "a dash that is not ASCII"),
            ("one-dash", "a long option with one dash"),
            ("short-equals", "`=` after a short option"),
            ("open-quote", "a quote that is not closed"),
            ("stray-word", "a word that belongs to no option"),
            ("no-option", "a word that is not an option"),
            ("no-value", "an option without its value"),
            ("value", "a value for an option that takes none"),
            ("unknown-option", "an option that does not exist"),
            ("ambiguous-option", "an abbreviation of several options"),
            ("plugin-option", "an option that a site's plugin adds"),
            ("literal-dollar", "a variable where no shell expands it"),
        ),
    ),
    (
        "Values",
        (
            ("time", "an invalid time"),
            ("time-zero", "a time of zero"),
            ("time-in-minutes", "a time that is in minutes"),
            ("time-in-seconds", "a time that is in seconds"),
            ("time-unlimited", "no time limit"),
            ("memory", "an invalid size"),
            ("memory-zero", "`--mem=0`, all memory of the node"),
            ("memory-in-mib", "a size without a unit, in MiB"),
            ("memory-in-bytes", "a size without a unit, in bytes"),
            ("memory-by-1000", "a size in units of 1000"),
            ("memory-twice", "several memory options that exclude each other"),
            ("memory-per-slot", "memory that counts for each slot"),
            ("virtual-with-cuda", "a limit of virtual memory for a GPU job"),
            ("gpus", "an invalid number of GPUs"),
            ("gpus-per-task", "`--gpus-per-task` without a number of tasks"),
            ("gpus-per-slot", "GPUs that count for each slot"),
            ("gres", "an invalid `--gres`"),
            ("resource-value", "a resource without a number"),
            ("soft-consumable", "a consumable behind `-soft`"),
            ("choice", "a word that is none of the possible ones"),
            ("count", "a count that is not a number"),
            ("pe-slots", "`-pe` without a number of slots"),
            ("mail-type", "an event that does not exist"),
            ("repeated-option", "an option that a later line replaces"),
            ("mail-without-type", "an address, but no event to send mail for"),
            ("signal", "an invalid signal"),
            ("job-name", "a name that is refused"),
            ("dependency", "an invalid dependency"),
            ("unknown-job", "a dependency on a job that does not exist"),
            ("failed-job", "a dependency that can never be met"),
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
            ("unknown-account", "an account that is not yours"),
            ("unknown-qos", "a QOS that is not yours"),
            ("unknown-project", "a project that does not exist"),
            ("unknown-parallel", "a parallel environment that does not exist"),
            ("unknown-resource", "a resource that does not exist"),
            ("unknown-constraint", "a feature that no node has"),
            ("unknown-node", "a node that does not exist"),
            ("node-outside-queue", "a node that the queue does not have"),
            ("memory-beyond-node", "more memory than a node has"),
            ("memory-beyond-queue", "more memory than the queue allows"),
            ("cpus-beyond-node", "more CPUs than a node has"),
            ("cpus-beyond-queue", "more CPUs than the queue allows"),
            ("gpus-beyond-node", "GPUs that no node has"),
            ("time-beyond-queue", "more time than the queue allows"),
            ("nodes-beyond-queue", "more nodes than the queue has"),
            ("account-beyond-queue", "an account that the queue does not accept"),
            ("qos-beyond-queue", "a QOS that the queue does not accept"),
            ("array-index", "an array index that is too large"),
            ("array-size", "more elements than an array may have"),
            ("max-submit", "more elements than you may submit"),
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
            ("step-inherits-cpus", "a step whose tasks take the job's CPUs per task"),
            ("processes-beyond-gpus", "more processes than GPUs"),
            ("devices-overridden", "`CUDA_VISIBLE_DEVICES` set by hand"),
            ("no-gpu", "a program that asks for a GPU, and none requested"),
            ("heap-beyond-memory", "a Java heap as large as the memory"),
            ("sort-beyond-memory", "buffers of a sort as large as the memory"),
            ("nodes-beyond-tasks", "more nodes than tasks"),
            ("no-srun", "several nodes or tasks, and a script that uses one"),
        ),
    ),
    (
        "Arrays",
        (
            ("array", "invalid indices"),
            ("empty-array", "no index: a plain job"),
            ("array-from-zero", "an index 0, which Grid Engine refuses"),
            ("array-list", "a list, which Grid Engine reads as a range"),
            ("array-backwards", "a range from high to low"),
            ("array-of-one", "`-t N`, which is the one element N"),
            ("tc-alone", "`-tc` without `-t`"),
            ("no-throttle", "many elements at the same time"),
            ("no-array", "an index, and no array"),
            ("elements-alike", "an array, and no index"),
            ("element-without-file", "an element without its file"),
            ("file-without-element", "a file without its element"),
            ("element-without-line", "an element without its line"),
            ("line-without-element", "a line without its element"),
            ("element-without-value", "an index beyond a bash array"),
            ("foreign-variable", "another scheduler's index"),
            ("log-shared", "one log for all elements"),
            ("output-shared", "one output file for all elements"),
        ),
    ),
    (
        "Paths and programs",
        (
            ("log-directory", "a log in a directory that does not exist"),
            ("log-pattern", "a pattern that the scheduler does not know"),
            ("literal-path", "`$` or `~` where it is not expanded"),
            ("chdir", "a working directory that does not exist"),
            ("starts-at-home", "no `-cwd`: the job starts in the home directory"),
            ("missing-path", "a file that does not exist"),
            ("not-executable", "a program that nobody may execute"),
            ("command-not-found", "a program that does not exist here"),
            ("bare-path", "a program that the job's PATH lacks"),
            ("login-only", "a program that only this machine has"),
            ("conda", "`conda activate` without its hook"),
            ("module", "`module` in a shell that does not have it"),
            ("variable", "a variable that the scheduler never sets"),
            ("spaces-in-assignment", "`NAME = value`, which runs a command"),
            ("test-spaces", "a test without the spaces of `[ ]`"),
            ("single-quotes", "a variable where quotes keep it from being expanded"),
            ("brace-variable", "`{1..$N}`, which stays one word"),
            ("loop-input", "a command that reads the input of its loop"),
            ("unsafe-remove", "`rm -r` of results that may not have been copied"),
            ("module-command", "a command that `module` does not have"),
            ("interactive", "a command that waits for an answer"),
        ),
    ),
    (
        "End of the job",
        (
            ("after-exit", "commands after an exit, which never run"),
            ("no-wait", "background commands that end with the script"),
            ("deferred-trap", "a trap that runs too late"),
            ("signal-to-nobody", "a signal that no process gets"),
            ("signal-untrapped", "a signal that ends the job early"),
            ("no-soft-limit", "a trap for a signal that is never sent"),
            ("option-behind-script", "options behind a script's name"),
        ),
    ),
    (
        "Submit descriptions of HTCondor",
        (
            ("no-command", "a line that is no command"),
            ("unknown-command", "a command with a typo, which is ignored"),
            ("unknown-macro", "a variable with a typo, which is empty"),
            ("behind-queue", "commands behind `queue`"),
            ("no-queue", "no `queue`"),
            ("no-jobs", "`queue 0`"),
            ("no-executable", "no `executable`"),
            ("executable", "an executable that does not exist, or is a directory"),
            ("size", "an invalid size"),
            ("memory-in-mebibytes", "`request_memory` without a unit"),
            ("disk-in-kibibytes", "`request_disk` without a unit"),
            ("undefined", "a word that is read as an attribute"),
            ("environment", "several variables that become one"),
        ),
    ),
)
RULES = {name: what for _, group in TABLE for name, what in group}

_IGNORE = re.compile(r"#\s*weigh:\s*ignore\b[:\s]*(.*)$")
_NAME = re.compile(r"[a-z][a-z0-9-]*")


class Ignored(msgspec.Struct, frozen=True):
    """A rule that a comment names; *line* is None if it holds for the whole script."""

    rule: str
    line: int | None
    spot: Line


def acknowledged(
    text: str, found: Sequence[Finding], settings: Iterable[str] = ()
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """Return the findings that remain, and those that are ignored.

    A comment ``# weigh: ignore RULE[, RULE] [reason]`` holds for the whole script, or
    for its line if that has other text. *settings* are the rules that the setting
    ``[check] ignore`` names. An unknown name is a finding of its own.
    """
    comments = tuple(_comments(text))
    unknown = [*_unknown(comments, settings)]
    whole = {*settings, *(one.rule for one in comments if one.line is None)}
    single = {(one.rule, one.line) for one in comments}
    kept: list[Finding] = []
    ignored: list[Finding] = []
    for one in (*found, *unknown):
        is_ignored = one.rule in whole or (one.rule, one.line) in single
        (ignored if is_ignored else kept).append(one)
    return tuple(kept), tuple(ignored)


def _comments(text: str) -> Iterator[Ignored]:
    for number, row in enumerate(text.splitlines(), 1):
        found = _IGNORE.search(row)
        if not found:
            continue
        line = number if row[: found.start()].strip() else None
        for rule in _names(found[1]):
            yield Ignored(rule, line, Line(number, found[0]))


def _names(rest: str) -> Iterator[str]:
    """Yield the rules: the first word, and those that follow a comma."""
    for part in rest.split(","):
        words = part.split()
        if not words or not _NAME.fullmatch(words[0]):
            return
        yield words[0]
        if len(words) > 1:
            return  # what follows is the reason


def _unknown(comments: Iterable[Ignored], settings: Iterable[str]) -> Iterator[Finding]:
    for one in comments:
        if one.rule not in RULES:
            effect = f"no rule is named {one.rule}"
            yield note(one.spot, "unknown-rule", effect, _suggestion(one.rule))
    for rule in settings:
        if rule not in RULES:
            effect = f"[check] ignore: no rule is named {rule}"
            yield note(None, "unknown-rule", effect, _suggestion(rule))


def _suggestion(rule: str) -> str:
    found = did_you_mean(rule, sorted(RULES))
    return "" if found.startswith("known: ") else found
