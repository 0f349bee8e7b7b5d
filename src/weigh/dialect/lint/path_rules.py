"""Files and directories that the script's commands need and that are not there."""

from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, error
from weigh.dialect.lint.travel import BRINGS, is_shared, journey
from weigh.dialect.shell import Command
from weigh.model.lint import Finding

_READERS = ("python", "python3", "bash", "sh", "Rscript", "perl", "julia", "torchrun")
_MAKERS = BRINGS | {"git", "tar", "unzip", "wget", "curl", "rsync", "cp", "mv", "ln"}


def _missing(case: Case) -> Iterator[Finding]:
    made: set[str] = set()
    for command, place in journey(case):
        for word, outcome in _needed(command):
            path = case.absolute(word, place)
            if path is None or not case.is_missing(path) or _is_made(path, made):
                continue
            if is_shared(case, word, path):
                effect = f"{word} does not exist: {outcome}"
                yield error(command, "missing-path", effect, _cure(case, word))
                made.add(_leaf(path))  # said once
        made.update(_mentioned(command))


def _cure(case: Case, word: str) -> str:
    """Say what brings it there, where the job starts in the wrong place."""
    path = case.absolute(word, case.facts.cwd)
    if case.start != case.facts.cwd and case.kind(path) in ("file", "directory"):
        return "#$ -cwd: start where it is submitted" if case.tool == "qsub" else ""
    return ""


def _needed(command: Command) -> Iterator[tuple[str, str]]:
    words = command.words
    arguments = [word for word in words[1:] if not word.startswith("-")]
    if command.name == "cd" and arguments:
        yield arguments[0], "the script goes on where it is"
    elif command.name in ("source", ".") and arguments:
        if "/" in arguments[0]:  # else bash looks along the PATH
            yield arguments[0], "nothing is activated, and the script goes on"
    elif command.name in _READERS and len(words) > 1 and "." in words[1]:
        if not words[1].startswith("-"):
            yield words[1], f"{command.name} cannot open it"
    elif command.name.startswith("./"):
        yield command.name, "there is nothing to run"
    for name in command.inputs:
        yield name, "there is nothing to read"


def _mentioned(command: Command) -> Iterator[str]:
    """Yield the names that a command may have made."""
    only_reads = command.name in ("cd", "source", ".", *_READERS)
    makes_venv = {"venv", "virtualenv"} & {*command.words}
    if only_reads and not command.outputs and not makes_venv:
        return
    for word in (*command.words[1:], *command.outputs):
        yield _leaf(word)
        yield from word.split("/")
    if command.name in _MAKERS - BRINGS:
        yield "*"  # an archive or a clone: who knows what it holds


def _is_made(path: str, made: set[str]) -> bool:
    return "*" in made or any(part in made for part in path.split("/") if part)


def _leaf(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


RULES: tuple[Rule, ...] = (_missing,)
