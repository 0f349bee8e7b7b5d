"""Commands whose failure the exit code of a shell line or script does not show."""

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from weigh.schedulers.script import SHELLS
from weigh.schedulers.shell import ShellCommand, read_body

# they pass on what a program prints; their own exit code does not depend on it
_FILTER_NAMES = """
    tee cat head tail ts less more logger pv gzip bzip2 xz zstd split column fold nl
    grep egrep fgrep sed awk gawk mawk sort uniq cut tr wc tac
"""
_FILTERS = frozenset(_FILTER_NAMES.split())
_ALWAYS_SUCCEED = frozenset(
    {"echo", "printf", "true", ":", "date", "sleep", "hostname", "times"}
)
# they prepare or report: whether they fail hardly matters, or the next command shows it
_MINOR_NAMES = """
    (( . [ [[ alias break cd chmod cmp comm command conda continue cp deactivate
    declare df diff disown du env eval exec exit export find free git jobs kill let
    ln local ls lscpu mamba micromamba mkdir ml module mount mv nvcc nvidia-smi pip
    pkill popd ps pushd qacct qstat read return rm rmdir rocm-smi rsync sacct
    scontrol scp seq set shift shopt source spack squeue stat sync test touch trap
    type typeset ulimit umask umount uname unset wait which yes {
"""
_MINOR = _FILTERS | _ALWAYS_SUCCEED | frozenset(_MINOR_NAMES.split())
_STOPS_AT_ERRORS = re.compile(r"(?:^|\s)-[a-z]*e[a-z]*\b|\berrexit\b")
DROP_THE_BACKGROUND = "leave out the &"
_MAY_HIDE = re.compile(r"[|&;\n]")


class HiddenExit(msgspec.Struct, frozen=True):
    """Where a failure is hidden, what hides it, and what shows it.

    ``text`` is the command that may fail.
    """

    line: int
    text: str
    effect: str
    cure: str


def _program(command: ShellCommand) -> str:
    return command.name.rpartition("/")[2]


def _matters(command: ShellCommand) -> bool:
    """Return whether it is a program whose failure is that of the task."""
    return bool(command.name) and _program(command) not in _MINOR


def _succeeds(command: ShellCommand) -> bool:
    """Return whether its exit code is 0, whatever was before it."""
    is_exit = command.words == ("exit", "0")
    return is_exit or _program(command) in _ALWAYS_SUCCEED


def hidden_exit(text: str, interpreter: Sequence[str] = ()) -> HiddenExit | None:
    """Return the first command of *text* whose failure its exit code hides, if any.

    *interpreter* are the words that run it, such as ``bash -eo pipefail``. Where the
    grammar of *text* is not clear there is none.
    """
    # a script that reads PIPESTATUS handles it; without an operator there is nothing to
    # hide
    if "PIPESTATUS" in text or not (_MAY_HIDE.search(text) or " -c" in text):
        return None
    body = read_body(text)
    commands = [one for one in body.steps if one.words]
    for command in commands:
        if (inner := _nested(command)) is not None:
            return inner
    sets = [" ".join(one.words) for one in body.named("set", "trap")]
    settings = " ".join((*interpreter[1:], *sets))
    # under set -e, or with a trap on ERR, a failure before the last command is not
    # hidden
    stops = _STOPS_AT_ERRORS.search(settings) or re.search(r"\bERR\b", settings)
    # which branch of an `if` runs is not known, and whether a function is called
    top = [one for one in commands if not {*map(abs, one.blocks)} & body.branches]
    found = [
        # set -e does not see failures within a pipe, behind || or in the background
        *([] if "pipefail" in settings else _by_pipe(commands)),
        *_by_alternative(commands),
        *([] if stops else _by_last(top)),
        *_by_background(commands, top),
    ]
    return min(found, key=lambda one: one.line, default=None)


def _nested(command: ShellCommand) -> HiddenExit | None:
    """Return what is hidden in the text that ``bash -c TEXT`` runs."""
    try:
        words = shlex.split(command.text)
    except ValueError:
        return None
    for place, word in enumerate(words[:-1]):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        rest = words[place + 1 :]
        for at, flag in enumerate(rest[:-1]):
            if flag[:1] == "-" and flag.endswith("c"):
                hidden = hidden_exit(rest[at + 1], (word, *rest[: at + 1]))
                return hidden and msgspec.structs.replace(hidden, line=command.line)
    return None


def _pipe_before(commands: Sequence[ShellCommand], place: int) -> list[ShellCommand]:
    """Return the commands that are piped into the one there, the nearest first."""
    first = place
    while first and commands[first - 1].piped:
        first -= 1
    return [*reversed(commands[first:place])]


def _by_pipe(commands: Sequence[ShellCommand]) -> Iterator[HiddenExit]:
    """Yield pipes whose last command is no more than a filter of what is before."""
    for place, command in enumerate(commands):
        # only the last command of a pipe decides on its exit code
        if command.piped or _program(command) not in _FILTERS:
            continue
        members = _pipe_before(commands, place)
        work = next(filter(_matters, members), None)
        # an `if` that asks a filter (grep -q) means the filter's exit code
        if work is not None and not any(one.is_tested for one in (command, *members)):
            effect = (
                f"the exit code is that of {_program(command)}, not of {_program(work)}"
            )
            yield _hidden(work, effect, "set -o pipefail before it")


def _by_alternative(commands: Sequence[ShellCommand]) -> Iterator[HiddenExit]:
    for place, command in enumerate(commands[:-1]):
        if command.after != "||" or command.is_tested:
            continue
        # what stands behind || is a block of its own, a group too: its end counts
        new = [one for one in commands[place + 1].blocks if one not in command.blocks]
        others = [one for one in commands[place + 1 :] if {*new[:1]} & {*one.blocks}]
        # || exit 1 and || handle keep the failure; || true does not
        if not others or not _succeeds(others[-1]):
            continue
        members = (command, *_pipe_before(commands, place))
        work = next(filter(_matters, members), None)
        if work is not None:
            effect = f"|| {_program(others[-1])} hides how {_program(work)} ends"
            yield _hidden(work, effect, f"leave out || {_program(others[-1])}")


def _by_last(top: Sequence[ShellCommand]) -> Iterator[HiddenExit]:
    """Yield a program before a last command that always succeeds."""
    if not top or not _succeeds(top[-1]):
        return
    for command in reversed(top[:-1]):
        # && passes a failure on
        if command.after not in {";", "\n"}:
            return
        if _matters(command):
            last = _program(top[-1])
            effect = f"the exit code is that of {last}, not of {_program(command)}"
            yield _hidden(command, effect, "set -e before it, or && between them")
            return
        if not _succeeds(command):
            return


def _by_background(
    commands: Sequence[ShellCommand], top: Sequence[ShellCommand]
) -> Iterator[HiddenExit]:
    """Yield programs whose end the text, or a plain ``wait``, does not wait for."""
    works = [one for one in commands if one.background and _matters(one)]
    if not works or not top:
        return
    last = next((one for one in reversed(top) if not _succeeds(one)), top[-1])
    if last.background and last is top[-1]:
        effect = f"the shell does not wait for {_program(last)}: its exit code is lost"
        yield _hidden(last, effect, DROP_THE_BACKGROUND)
    elif last.words == ("wait",):
        effect = f"wait ends with 0, whatever {_program(works[0])} ends with"
        yield _hidden(works[0], effect, "pid=$! behind each &, then wait $pid || exit")


def _hidden(command: ShellCommand, effect: str, cure: str) -> HiddenExit:
    return HiddenExit(command.line, command.text, effect, cure)
