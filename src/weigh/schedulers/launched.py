"""Find the scripts that a command runs, and their directives, which are ignored."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from weigh.schedulers import KINDS, SUBMITS
from weigh.schedulers.script import read_script
from weigh.schedulers.shell import read_body, unquoted

SUBMIT_COMMANDS = frozenset(SUBMITS.values())

# programs whose arguments are a command to run
_WRAPPERS = frozenset(
    {"apptainer", "chrt", "command", "conda", "env", "exec", "ionice", "micromamba"}
    | {"mpiexec", "mpirun", "nice", "nohup", "numactl", "setsid", "singularity"}
    | {"srun", "stdbuf", "strace", "taskset", "time", "timeout", "weigh", "xargs"}
)
_SHELL = re.compile(r"(?:a|ba|c|da|fi|k|mk|r?ba|tc|z)?sh")
_SOURCE = frozenset({"source", "."})
_INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby)[0-9.]*|Rscript|julia")
# options of shells and interpreters whose value is the next word
_TAKES_VALUE = frozenset(
    {"-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X"}
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# of schedulers; those of PBS and LSF are lost in the same way
_PREFIXES = (*(kind.text.PREFIX for kind in KINDS.values()), "#PBS", "#BSUB")
_WORDS = "|".join(one for one in _PREFIXES if one[1:].isalpha())
_SIGNS = "|".join(re.escape(one) for one in _PREFIXES if one and not one[1:].isalpha())
_BY_WORD = re.compile(rf"(?:{_WORDS})\s+(.*)")
_BY_SIGN = re.compile(rf"(?:{_SIGNS})\s*(-[A-Za-z].*)")


class LaunchedScript(msgspec.Struct, frozen=True):
    """A script that may be run: the first of *files* that is a program or script.

    *runner* is ``bash``, ``sbatch`` or similar; empty if the file itself is run.
    """

    runner: str
    files: tuple[str, ...]


def launched(words: Sequence[str]) -> Iterator[LaunchedScript]:
    """Yield the scripts that the command *words* may run; no file is read."""
    # assignments in front of a command are its environment
    words = list(words)
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    if not words:
        return
    name = words[0].rpartition("/")[2]
    if name in _WRAPPERS:
        yield from _script_behind_wrapper(words[1:])
    elif name in SUBMIT_COMMANDS:
        yield LaunchedScript(name, tuple(word for word in words[1:] if word[:1] != "-"))
    elif name in _SOURCE:
        yield LaunchedScript(name, tuple(words[1:2]))
    elif _SHELL.fullmatch(name) or _INTERPRETER.fullmatch(name):
        yield from _script_of_interpreter(name, words[1:])
    else:
        yield LaunchedScript("", (words[0],))


def launched_by_line(line: str) -> Iterator[LaunchedScript]:
    """Yield the scripts that the commands of a shell line may run; see `launched`."""
    for command in read_body(line).commands:
        words = [unquoted(word) for word in command.words]
        yield from launched(words)
        if words and _SHELL.fullmatch(words[0].rpartition("/")[2]):
            name = f"{words[0]} <"
            yield from (
                LaunchedScript(name, (unquoted(one),)) for one in command.inputs
            )


def directives_of(text: str) -> tuple[str, ...]:
    """Return the options in a script's directives, exactly as written."""
    script = read_script(text)
    # sbatch reads directives up to the first command, qsub those in all lines
    end = script.first_command or len(script.lines) + 1
    found = []
    for one in script.lines:
        match = _BY_WORD.fullmatch(one.text) if one.line < end else None
        match = match or _BY_SIGN.fullmatch(one.text)
        if match:
            found.append(match[1].partition(" #")[0].strip())
    return tuple(found)


def _script_behind_wrapper(words: Sequence[str]) -> Iterator[LaunchedScript]:
    """Find the script behind a wrapper whose own options are not known here."""
    guesses = []
    for place, word in enumerate(words):
        name = word.rpartition("/")[2]
        is_known = _SHELL.fullmatch(name) or _INTERPRETER.fullmatch(name)
        if is_known or name in _WRAPPERS | SUBMIT_COMMANDS:
            yield from launched(words[place:])
            return
        if word[:1] != "-" and not _ASSIGNMENT.match(word):
            # the value of an unknown option looks like a program: the caller takes the
            # first that is a script
            guesses.append(word)
    yield LaunchedScript("", tuple(guesses))


def _script_of_interpreter(name: str, words: Sequence[str]) -> Iterator[LaunchedScript]:
    """Yield the script among the arguments of an interpreter."""
    is_shell = _SHELL.fullmatch(name) is not None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in _TAKES_VALUE:
            rest[:1] = []
        elif word[:1] in "-+" and len(word) > 1 and word != "--":
            letters = "" if word.startswith("--") else word[1:]
            # -c and -lc: the next word is a line of commands
            if is_shell and "c" in letters and rest:
                yield from launched_by_line(rest[0])
                return
            # code or a module: there is no file
            if not is_shell and letters[:1] in {"c", "m", "e"}:
                return
        elif word != "--":
            yield LaunchedScript(name, (word,))
            return
