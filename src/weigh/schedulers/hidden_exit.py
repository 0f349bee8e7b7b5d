"""Commands whose failure the exit code of a shell line or script does not show."""

import re
import shlex
from collections.abc import Iterator, Sequence

import msgspec

from weigh.schedulers.script import SHELLS
from weigh.schedulers.shell import ShellToken, read_body, unquoted

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
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<&|>&|&>>?|>>|>\||<>|<|>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^]]*\])?\+?=")
_SEPARATORS = frozenset({";", "&", "&&", "||", "|", "|&", ";;", ";&", ";;&", "\n", ""})
_PIPES = frozenset({"|", "|&"})
_OPENS = frozenset({"if", "while", "until", "for", "select", "case", "{"})
_CLOSES = frozenset({"fi", "done", "esac", "}"})
_TESTS = frozenset({"if", "elif", "while", "until", "!"})
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


class ShellStep(msgspec.Struct, frozen=True):
    """A command, or a whole loop or group, between two operators.

    ``depth`` counts what is around it; a group has the words of what matters in it.
    ``is_tested``: an ``if`` or a loop decides by its exit code.
    """

    words: tuple[str, ...]
    line: int
    before: str
    after: str
    depth: int
    is_tested: bool = False

    @property
    def name(self) -> str:
        """Return the name of the program, empty for an assignment."""
        return unquoted(self.words[0]).rpartition("/")[2] if self.words else ""

    @property
    def matters(self) -> bool:
        """Return whether it is a program whose failure is that of the task."""
        return bool(self.name) and self.name not in _MINOR

    @property
    def succeeds(self) -> bool:
        """Return whether its exit code is 0, whatever was before it."""
        is_exit = self.name == "exit" and self.words[1:] == ("0",)
        return is_exit or self.name in _ALWAYS_SUCCEED


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
    if not body.commands:
        return None
    steps = list(_shell_steps(body.tokens))
    for step in steps:
        if (inner := _nested(step)) is not None:
            return inner
    sets = [" ".join(one.words) for one in steps if one.name in {"set", "trap"}]
    settings = " ".join((*interpreter[1:], *sets))
    # under set -e, or with a trap on ERR, a failure before the last command is not
    # hidden
    stops = _STOPS_AT_ERRORS.search(settings) or re.search(r"\bERR\b", settings)
    found = [
        # set -e does not see failures within a pipe, behind || or in the background
        *([] if "pipefail" in settings else _by_pipe(steps)),
        *_by_alternative(steps),
        *([] if stops else _by_last(steps)),
        *_by_background(steps),
    ]
    return min(found, key=lambda one: one.line, default=None)


def _nested(step: ShellStep) -> HiddenExit | None:
    """Return what is hidden in the text that ``bash -c TEXT`` runs."""
    for place, word in enumerate(step.words[:-1]):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        rest = step.words[place + 1 :]
        for at, flag in enumerate(rest[:-1]):
            if flag[:1] == "-" and flag.endswith("c"):
                try:
                    inner = " ".join(shlex.split(rest[at + 1])[:1])
                except ValueError:
                    return None
                hidden = hidden_exit(inner, (word, *rest[: at + 1]))
                return hidden and msgspec.structs.replace(hidden, line=step.line)
    return None


def _shell_steps(tokens: Sequence[ShellToken]) -> Iterator[ShellStep]:
    """Yield the steps of a script, what is in a group before the group."""
    scan = _StepScan()
    for token in tokens:
        yield from scan.take(token)
    yield from scan.end()


class _StepScan:
    """Cuts tokens into steps."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.line = 0
        self.before = ""
        # is_target: the next word is the file of a redirection, not part of the command
        self.is_target = self.is_tested = False
        self.opened: list[tuple[str, str]] = []  # opener, operator before it
        self.inside: list[list[ShellStep]] = []
        self.closed: tuple[str, str, list[ShellStep]] | None = None

    def take(self, token: ShellToken) -> Iterator[ShellStep]:
        """Yield the steps that *token* ends."""
        in_test = self.words[:1] == ["[["] and self.words[-1] != "]]"
        if token.kind == "word" and not self.is_target:
            self._word(token)
        elif token.kind == "word":
            self.is_target = False
        elif token.kind != "document" and not in_test:
            yield from self._operator("\n" if token.kind == "newline" else token.text)

    def _operator(self, text: str) -> Iterator[ShellStep]:
        if _REDIRECTION.fullmatch(text):
            self.is_target = True
        elif text == "(":
            if self.words:  # a function: f ()
                self.words = []
            self._open("(")
        elif text == ")" and self.opened and self.opened[-1][0] == "case":
            self.words = []  # a pattern of `case`, no command
        elif text == ")":
            yield from self._close_step(";")
            if self.opened and self.opened[-1][0] == "(":
                self._close()
        elif text in _SEPARATORS:
            yield from self._close_step(text)
        else:
            self.words.append(text)  # (( ))

    def _word(self, token: ShellToken) -> None:
        text = token.text
        if not self.words:
            self.line = token.line
            if text in _TESTS:
                self.is_tested = True
            # words of the grammar in front of a command
            if text in {"then", "do", "else", "elif", "!", "in", "function", "time"}:
                self.is_tested = text in _TESTS
                return
            if text in _OPENS:
                self._open(text)
                # up to `do` or `in` no command follows: `{`, which is minor, stands for
                # that
                if text in {"for", "select", "case"}:
                    self.words.append("{")
                return
            if text in _CLOSES and self.opened:
                self._close()
                return
            if _ASSIGNMENT.match(text):
                return
        self.words.append(text)

    def _open(self, opener: str) -> None:
        self.opened.append((opener, self.before))
        self.inside.append([])
        self.before = ""

    def _close(self) -> None:
        opener, before = self.opened.pop()
        self.closed = opener, before, self.inside.pop()

    def _close_step(self, after: str) -> Iterator[ShellStep]:
        words, before = tuple(self.words), self.before
        if self.closed is not None:
            opener, before, inside = self.closed
            self.closed = None
            works = [one for one in inside if one.matters and not one.is_tested]
            # which branch of an `if` ran is not known
            words = (
                works[-1].words if works and opener not in {"if", "case"} else ("{",)
            )
        if words:
            depth = len(self.opened)
            step = ShellStep(words, self.line, before, after, depth, self.is_tested)
            # each group around it knows all commands in it
            for around in self.inside:
                around.append(step)
            yield step
        elif after == "\n" and before in {"|", "|&", "&&", "||"}:
            return  # it goes on in the next line
        self.words, self.before = [], after

    def end(self) -> Iterator[ShellStep]:
        yield from self._close_step("")


def _by_pipe(steps: Sequence[ShellStep]) -> Iterator[HiddenExit]:
    """Yield pipes whose last command is no more than a filter of what is before."""
    for place, step in enumerate(steps):
        # only the last command of a pipe decides on its exit code
        if step.before not in _PIPES or step.after in _PIPES:
            continue
        if step.name not in _FILTERS or step.is_tested:
            continue
        members = []
        for one in reversed(steps[:place]):
            # left the group that the pipe is in
            if one.depth < step.depth:
                break
            if one.depth > step.depth:
                continue
            members.append(one)
            if one.before not in _PIPES:
                break
        work = next((one for one in reversed(members) if one.matters), None)
        # an `if` that asks a filter (grep -q) means the filter's exit code
        if work is not None and not any(one.is_tested for one in members):
            effect = f"the exit code is that of {step.name}, not of {work.name}"
            yield _hidden(work, effect, "set -o pipefail before it")


def _by_alternative(steps: Sequence[ShellStep]) -> Iterator[HiddenExit]:
    for place, step in enumerate(steps):
        if step.after != "||" or step.is_tested:
            continue
        other = next((o for o in steps[place + 1 :] if o.depth == step.depth), None)
        # || exit 1 and || handle keep the failure; || true does not
        if other is None or not other.succeeds or other.before != "||":
            continue
        work = step
        if step.before in _PIPES and not step.matters:
            work = next((o for o in reversed(steps[:place]) if o.matters), step)
        if work.matters:
            effect = f"|| {other.name} hides how {work.name} ends"
            yield _hidden(work, effect, f"leave out || {other.name}")


def _by_last(steps: Sequence[ShellStep]) -> Iterator[HiddenExit]:
    """Yield a program before a last command that always succeeds."""
    top = [one for one in steps if not one.depth]
    if not top or not top[-1].succeeds:
        return
    for step in reversed(top[:-1]):
        # && passes a failure on
        if step.after not in {";", "\n"}:
            return
        if step.matters:
            effect = f"the exit code is that of {top[-1].name}, not of {step.name}"
            yield _hidden(step, effect, "set -e before it, or && between them")
            return
        if not step.succeeds:
            return


def _by_background(steps: Sequence[ShellStep]) -> Iterator[HiddenExit]:
    """Yield programs whose end the text, or a plain ``wait``, does not wait for."""
    top = [one for one in steps if not one.depth]
    works = [one for one in steps if one.after == "&" and one.matters]
    if not works or not top:
        return
    last = next((one for one in reversed(top) if not one.succeeds), top[-1])
    if last.after == "&" and last is top[-1]:
        effect = f"the shell does not wait for {last.name}: its exit code is lost"
        yield _hidden(last, effect, DROP_THE_BACKGROUND)
    elif last.words == ("wait",):
        effect = f"wait ends with 0, whatever {works[0].name} ends with"
        yield _hidden(works[0], effect, "pid=$! behind each &, then wait $pid || exit")


def _hidden(step: ShellStep, effect: str, cure: str) -> HiddenExit:
    return HiddenExit(step.line, " ".join(step.words), effect, cure)
