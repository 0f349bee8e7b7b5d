"""Where a Slurm job starts and writes: log files, ``--chdir``."""

import re
from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Option, Rule, Say, error, warning
from weigh.dialect.lint.placeholder_rules import holds_placeholder
from weigh.dialect.lint.travel import is_shared
from weigh.model.lint import Finding

_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")
_KNOWN = frozenset("%AaJjNnstuxbw")
_PER_ELEMENT = frozenset("aj")
_PER_JOB = frozenset("AaJjNnst")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")
_INSTEAD = {
    "USER": "%u",
    "SLURM_JOB_ID": "%j",
    "SLURM_JOBID": "%j",
    "SLURM_ARRAY_JOB_ID": "%A",
    "SLURM_ARRAY_TASK_ID": "%a",
    "SLURM_JOB_NAME": "%x",
}


def start(case_options: tuple[Option, ...], cwd: str) -> str:
    """Tell where the job starts, as it is written."""
    chosen = [one.value for one in case_options if one.name == "chdir"]
    return chosen[-1] if chosen else cwd


def _logs(case: Case) -> Iterator[Finding]:
    said: set[str] = set()
    for name in ("output", "error", "input"):
        option = case.option(name)
        if option is None or holds_placeholder(option.value):
            continue
        directory = option.value.rpartition("/")[0]
        if _is_literal(option.value):
            yield _unread(option)
        elif name != "input":
            if directory not in said:
                yield from _directory(case, option)
            said.add(directory)
            yield from _patterns(case, option)
            yield from _shared_by_elements(case, option)


def _is_literal(value: str) -> bool:
    return value.startswith("~") or "$" in value or "`" in value


def _unread(option: Option) -> Finding:
    found = _VARIABLE.search(option.value)
    mark = found[0] if found else option.value[0]
    effect = f"{mark} stays as it is: no such directory, the job fails without a log"
    instead = _INSTEAD.get(found[1]) if found else None
    cure = f"write {instead}" if instead else "write the path out; %u is the user"
    if option.name == "input":
        effect = f"{mark} stays as it is: the job fails without a log"
    return error(option, "literal-path", effect, cure)


def _directory(case: Case, option: Option) -> Iterator[Finding]:
    directory, slash, leaf = option.value.rpartition("/")
    if not slash:
        return
    if slash and not leaf:
        yield error(option, "log-directory", "names a directory: no log is written")
    filled = _filled(case, directory)
    if filled is None:
        effect = "Slurm makes no directory for the log: the job fails without one"
        yield error(option, "log-directory", effect, "% only in the file's name")
        return
    path = case.absolute(filled, case.start)
    if path is not None and case.kind(path) in ("missing", "file"):
        where = "here" if not is_shared(case, filled, path) else "exist"
        effect = f"{directory}/ does not {where}: the job would fail without a log"
        say: Say = error
        if where == "here":
            effect = f"{directory}/ is not there here: without it no log, the job fails"
            say = warning
        yield say(option, "log-directory", effect, f"mkdir -p {filled}")


def _filled(case: Case, directory: str) -> str | None:
    """Put in what is known before the job is; None where the job's number is asked."""
    job_name = case.option("job-name")
    known = {"u": case.facts.user, "x": job_name.value if job_name else None}
    for _, letter in _PATTERN.findall(directory):
        if letter in _PER_JOB:
            return None
        value = known.get(letter)
        if value is not None:
            directory = directory.replace(f"%{letter}", value)
    return directory


def _patterns(case: Case, option: Option) -> Iterator[Finding]:
    for _, letter in _PATTERN.findall(option.value):
        if letter not in _KNOWN:
            yield warning(option, "log-pattern", f"%{letter} means nothing to Slurm")
        elif letter == "a" and not _is_array(case):
            effect = "%a is 4294967294 in a job that is no array"
            yield warning(option, "log-pattern", effect, "%j is the job's number")


def _is_array(case: Case) -> bool:
    """Tell whether it is one, or is likely to be made one by ``sbatch --array``."""
    named = any(case.element in token.text for token in case.body.tokens)
    return named or case.option("array") is not None


def _shared_by_elements(case: Case, option: Option) -> Iterator[Finding]:
    letters = {letter for _, letter in _PATTERN.findall(option.value)}
    if case.option("array") is None or option.value.startswith("/dev/"):
        return
    if not letters & _PER_ELEMENT:
        effect = "all elements write to one file, over each other"
        yield error(option, "log-shared", effect, "add %A_%a")


def _start(case: Case) -> Iterator[Finding]:
    option = case.option("chdir")
    if option is None:
        return
    if _is_literal(option.value):
        effect = "'$' and '~' stay as they are: the job runs in /tmp"
        yield error(option, "literal-path", effect, "write the path out")
        return
    path = case.absolute(option.value, case.facts.cwd)
    if path is not None and case.kind(path) in ("missing", "file"):
        shared = is_shared(case, option.value, path)
        effect = f"{option.value} does not exist: the job would run in /tmp"
        if not shared:
            effect = f"{option.value} is not there here: without it, it runs in /tmp"
        say: Say = error if shared else warning
        yield say(option, "chdir", effect, "")


RULES: tuple[Rule, ...] = (_logs, _start)
