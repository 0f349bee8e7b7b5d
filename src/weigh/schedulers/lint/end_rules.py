"""Rules for how a job ends: failures that nobody sees, and results that are lost."""

import re
from collections.abc import Iterator, Mapping

import msgspec

from weigh.model.lint import LintFinding
from weigh.schedulers.hidden_exit import DROP_THE_BACKGROUND, hidden_exit
from weigh.schedulers.lint.case import (
    LintCase,
    Rule,
    ScriptOption,
    commands_with_directories,
    note,
    problem,
    program_place,
)
from weigh.schedulers.shell import ShellCommand, read_body, tokens, unquoted
from weigh.schedulers.words import parsed_or_none
from weigh.units import MIB, format_size, parse_size

_SHELLS = frozenset({"bash", "sh", "dash", ""})
_SAID = re.compile(r"line (\d+): (?:warning: )?(.*)")
_DOCUMENT = re.compile(r"here-document at line (\d+) delimited by end-of-file")


def _syntax_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Report where bash itself cannot read the script."""
    script = lint_case.script
    # carriage returns and NULs have findings of their own, and confuse bash -n
    if script.program not in _SHELLS or script.carriage_returns or script.nul:
        return
    said = lint_case.facts.syntax.get(
        "\n".join(one.text for one in script.lines) + "\n"
    )
    found = _SAID.search(said) if said else None
    if found is None:
        return
    number, words = int(found[1]), found[2]
    document = _DOCUMENT.search(words)
    # bash names the end of the file: the beginning is what has to be looked at
    if document:
        number, words = int(document[1]), "this here-document has no end"
    line = script.lines[min(number, len(script.lines)) - 1]
    effect = f"bash ends the job here: {words}"
    if document:
        effect = f"{words}: all that follows is its text"
    yield problem(line, "syntax", effect, "bash -n reads a script and runs nothing")


def _hidden_exit(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find a program whose failure the exit code of the script hides."""
    if lint_case.script.program not in _SHELLS:
        return
    text = "\n".join(one.text for one in lint_case.script.lines)
    hidden = hidden_exit(text, lint_case.script.interpreter)
    if hidden is not None and hidden.cure != DROP_THE_BACKGROUND:  # that is no-wait's
        yield note(hidden, "hidden-exit", hidden.effect, hidden.cure)


_TRIFLES = frozenset(
    {"", "echo", "printf", "date", "exit", "true", ":", "[", "[[", "test", "cd", "set"}
    | {"export", "trap", "disown", "unset", "hostname", "pwd"}
)
_SIGNALS = frozenset({"TERM", "USR1", "USR2", "INT", "CONT"})
_STARTERS = ("srun", "mpirun", "mpiexec", "singularity", "apptainer", "torchrun")
_LONG = ("python", "Rscript", "julia", "perl", "matlab", "parallel", "java", "./")


def _left_behind(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find background commands that still run when the script ends."""
    behind: ShellCommand | None = None
    for command in lint_case.body.steps:
        if command.background:
            behind = command
        # a real command behind it, or `wait`: the script goes on for some time
        elif command.name not in _TRIFLES:
            behind = None
    if behind is not None:
        effect = "in the background: the job ends with the script and kills it"
        yield problem(behind, "no-wait", effect, "end the script with: wait")


def _signal_to_shell(lint_case: LintCase) -> str:
    """Return the signal that the scheduler sends to the shell before the end."""
    option = lint_case.option("signal")
    if option is not None:
        is_to_shell, _, name = _signal_of(option)
        return name if is_to_shell else ""
    return "USR1" if lint_case.option("notify", "l:s_rt") is not None else ""


def _signal_of(option: ScriptOption) -> tuple[bool, str, str]:
    """Return of ``B:USR1@120`` whether the shell gets it, the rest, and the name."""
    head, _, rest = option.value.rpartition(":")
    name = rest.partition("@")[0].upper().removeprefix("SIG")
    return "B" in head.upper(), rest, name


def _deferred_trap(lint_case: LintCase) -> Iterator[LintFinding]:
    traps = [one for one in lint_case.body.named("trap") if _trapped(one)]
    # with `wait` bash runs a trap at once
    if not traps or any(lint_case.body.named("wait")):
        return
    trap, names = traps[0], {name for one in traps for name in _trapped(one)}
    for command in lint_case.body.commands:
        if command.line <= trap.line or command.background:
            continue
        if command.name == "srun" and names == {"TERM"}:
            continue  # its tasks get the signal themselves, and bash runs the trap next
        if command.name.startswith((*_LONG, *_STARTERS)):
            effect = "bash runs the trap only after this command, and is killed before"
            fix = "run it with '& wait $!', and forward the signal"
            make = problem if _signal_to_shell(lint_case) in names else note
            yield make(command, "deferred-trap", effect, fix)
            return


def _signal_option(lint_case: LintCase) -> Iterator[LintFinding]:
    option = lint_case.option("signal")
    if option is None or lint_case.tool != "sbatch" or not lint_case.script.is_shell:
        return
    is_to_shell, rest, name = _signal_of(option)
    # without B: sbatch sends the signal to the steps, not to the shell
    if not is_to_shell:
        text = " ".join(token.text for token in lint_case.body.tokens)
        if not any(one in text for one in ("srun", "mpirun", "mpiexec")):
            effect = "only srun steps get the signal, and the script has none"
            fix = f"--signal=B:{rest}, and a trap with '& wait'"
            yield problem(option, "signal-to-nobody", effect, fix)
    elif not any(lint_case.body.named("exec", "source", ".")) and not any(
        # in a loop over signals a variable has the name
        name in " ".join(one.words).upper() or "$" in " ".join(one.words[2:])
        for one in lint_case.body.named("trap")
    ):
        effect = f"the script has no trap for {name}: it ends bash and the job early"
        yield problem(option, "signal-untrapped", effect, f"trap '...' {name}")


def _no_signal(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find traps for a warning that Grid Engine is not asked to send."""
    if lint_case.tool != "qsub" or lint_case.option("notify", "l:s_rt") is not None:
        return
    for trap in lint_case.body.named("trap"):
        if "USR1" in _trapped(trap) and lint_case.option("l:h_rt") is not None:
            effect = "h_rt kills without a warning: USR1 is never sent"
            yield problem(trap, "no-soft-limit", effect, "add -l s_rt=... below h_rt")
            return


def _trapped(command: ShellCommand) -> set[str]:
    names = {word.upper().removeprefix("SIG") for word in command.words[2:]}
    return names & _SIGNALS


_COPIES = frozenset({"rsync", "cp", "scp", "mv"})
_GUARDS = re.compile(r"&&|\|\||^\s*(?:if|while|until)\b|\$\?")
# what follows a copy that failed, and goes on
_NO_GUARD = re.compile(r"\|\|\s*(?:true|:|echo|printf|logger)\b[^|&;{]*$")


def _removes(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find `rm -r` of what a copy before it may have failed to bring home."""
    texts = {one.line: one.text for one in lint_case.script.lines}
    guarded, ends = set(_conditional(lint_case)), _ends_on_errors(lint_case)
    copied, unguarded = dict[str, int](), dict[str, int]()
    here = ""
    for command in lint_case.body.steps:
        text = texts.get(command.line, "")
        paths = [word for word in command.words[1:] if not word.startswith("-")]
        goes_on = bool(_NO_GUARD.search(text)) or not _GUARDS.search(text)
        # only a command that certainly runs, and does not depend on the one before
        is_plain = goes_on and command.line not in guarded and not command.background
        if command.name in _MOVES_TO and not text.lstrip().startswith("("):
            here = paths[0] if paths and paths[0][:1] in _ABSOLUTE else ""
        # the script looks at exit codes by itself
        elif "$?" in command.text:
            unguarded.clear()
        elif command.name in _COPIES and paths[1:]:  # from, to
            found = {
                _plain_folder_path(_from(here, path)): command.line
                for path in paths[:-1]
            }
            # all copies, for a trap that runs in any case; unguarded: those whose
            # failure is not seen
            copied |= found
            if is_plain and (not ends or _NO_GUARD.search(text)):
                unguarded |= found
        elif is_plain:
            for path in _removed(command):
                effect = _loses(path, _from(here, path), unguarded)
                if effect:
                    fix = "join both: the copy && rm"
                    yield problem(command, "unsafe-remove", effect, fix)
    yield from _removed_at_exit(lint_case, copied)


def _removed_at_exit(
    lint_case: LintCase, copied: Mapping[str, int]
) -> Iterator[LintFinding]:
    """Find what a trap removes; many scripts have one, so it is no reason to refuse."""
    for command in _last_trap(lint_case):
        for path in _removed_by(command.words[1]):
            if effect := _loses(path, path, copied):
                fix = "remove it after the copy: cp ... && rm -rf ..."
                yield note(command, "unsafe-remove", effect, fix)


def _last_trap(lint_case: LintCase) -> list[ShellCommand]:
    """Return the one `trap ... EXIT`; none where another replaces or lifts it."""
    traps = [
        one for one in lint_case.body.named("trap") if {"EXIT", "0"} & {*one.words[2:]}
    ]
    return traps if len(traps) == 1 else []


_MOVES_TO = frozenset({"cd", "pushd", "popd"})
_ABSOLUTE = frozenset("/$~")


def _from(here: str, path: str) -> str:
    """Return *path* as seen from the folder *here*, empty where that is not known."""
    return path if not here or path[:1] in _ABSOLUTE else f"{here.rstrip('/')}/{path}"


def _removed(command: ShellCommand) -> list[str]:
    """Return what a command removes with all that is in it."""
    paths = [word for word in command.words[1:] if not word.startswith("-")]
    if command.name == "rm" and _is_recursive(command):
        return paths
    if command.name == "find" and "-delete" in command.words:
        return paths[:1]
    return []


def _removed_by(text: str) -> list[str]:
    """Return what the commands of a trap remove, if nothing there guards it."""
    if _GUARDS.search(text):
        return []
    return [path for one in read_body(text).commands for path in _removed(one)]


def _loses(path: str, place: str, copied: Mapping[str, int]) -> str:
    """Return what is lost if *path*, which is at *place*, is removed; else empty."""
    line = _copied_from(_plain_folder_path(place), copied)
    return f"removes {path} also where line {line} could not copy it" if line else ""


def _ends_on_errors(lint_case: LintCase) -> bool:
    options = (word for one in lint_case.body.named("set") for word in one.words[1:])
    words = (*options, *lint_case.script.interpreter[1:])
    return any(
        word == "errexit" or (word[:1] == "-" and word[1:2] != "-" and "e" in word)
        for word in words
    )


def _conditional(lint_case: LintCase) -> Iterator[int]:
    """Yield the lines within `if` and `case`."""
    depth, before = 0, 0
    for token in lint_case.body.tokens:
        if token.kind != "word":
            continue
        if depth:
            yield from range(before, token.line + 1)
        before = token.line
        depth += (token.text in {"if", "case"}) - (token.text in {"fi", "esac"})


def _is_recursive(command: ShellCommand) -> bool:
    flags = (word for word in command.words[1:] if word.startswith("-"))
    return any(
        flag == "--recursive" or (flag[1:2] != "-" and {*"rR"} & {*flag})
        for flag in flags
    )


def _plain_folder_path(path: str) -> str:
    """Return a path without `/`, `/.` and `/*` at its end, and braces of variables."""
    plain = re.sub(r"\$\{(\w+)\}", r"$\1", path)
    while plain.endswith(("/", "/.", "/*")):
        plain = plain.rpartition("/")[0]
    return plain


def _copied_from(folder: str, copied: Mapping[str, int]) -> int | None:
    """Return the line of the last copy from *folder*, or from below it."""
    lines = [
        line
        for source, line in copied.items()
        if folder and (source == folder or source.startswith(f"{folder}/"))
    ]
    return max(lines, default=None)


# shellcheck knows ssh and ffmpeg
_READS_INPUT = frozenset({"srun", "mpirun", "mpiexec"})


def _loop_input(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find commands in a ``while read`` loop that read its input themselves."""
    for first, last in _read_loops(lint_case):
        for command in lint_case.body.commands:
            # bash gives a command in the background an empty input
            is_fed = command.has_own_input or command.background
            flags = " ".join(command.words)
            if (
                first < command.line < last
                and command.name in _READS_INPUT
                and not is_fed
                and not re.search(r"\s(?:-n\b(?! \d)|--input|-nostdin|-i )", flags)
            ):
                effect = f"{command.name} reads the rest of the loop's input: one pass"
                yield problem(command, "loop-input", effect, "add < /dev/null")
                return


def _read_loops(lint_case: LintCase) -> Iterator[tuple[int, int]]:
    """Yield the first and last line of each ``while read`` loop."""
    opened: list[tuple[int, bool]] = []
    found = lint_case.body.tokens
    for place, token in enumerate(found):
        if token.text == "do" and token.kind == "word":
            heads = [one.text for one in found[max(0, place - 12) : place]]
            loops = [at for at, text in enumerate(heads) if text in ("while", "for")]
            head = heads[loops[-1] :] if loops else []
            reads = {"while", "read"} <= {*head} and not any(
                text.startswith(("-u", "<")) for text in head
            )  # otherwise it reads another descriptor than the standard input
            opened.append((token.line, reads))
        elif token.text == "done" and token.kind == "word" and opened:
            line, reads = opened.pop()
            if reads:
                yield line, token.line


_HEAP = re.compile(r"-Xmx(\d{1,9})([kKmMgGtT]?)\b")


def _heap(lint_case: LintCase) -> Iterator[LintFinding]:
    requested = lint_case.requested
    memory = requested.memory
    for command in lint_case.body.commands if memory else ():
        found = _HEAP.search(command.text)
        unit = f"{found[2].upper()}iB" if found and found[2] else ""
        size = parsed_or_none(parse_size, f"{found[1]}{unit}") if found else None
        if size and memory and size >= memory:
            after = (
                "is killed" if requested.slot_memory is None else "it does not start"
            )
            effect = (
                f"the job gets {format_size(memory)}, and the JVM needs more than its "
                f"heap: {after}"
            )
            # a quarter of the job's memory is left to the JVM itself
            fix = f"-Xmx{max(1, memory * 3 // 4 // MIB)}m"
            yield problem(command, "heap-beyond-memory", effect, fix)
            return


_VARIABLE = re.compile(r"\$(?:\{(\w+)(\[[^]]*\])?\}|(\w+))")
_SUBSTITUTION = re.compile(r"\$\((.*)\)|`(.*)`", re.DOTALL)
_LIST = re.compile(r"(\w+)\+?=\((.*)\)", re.DOTALL)
# what only a shell understands, with the words for it
_NEEDS_A_SHELL = (
    (re.compile(r"""['"]"""), "quotes"),
    (re.compile(r"\|"), "a pipe"),
    (re.compile(r"[<>]"), "a redirection"),
    (re.compile(r"&&|;|&\s*$"), "several commands"),
    (re.compile(r"\$[\w{(]|`"), "a variable"),
    (re.compile(r"^\s*\w+="), "an assignment"),
)


class CommandLines(msgspec.Struct, frozen=True):
    """The texts that a variable may hold, and what holds them."""

    name: str
    lines: tuple[str, ...]

    def that_needs_a_shell(self) -> tuple[int, str] | None:
        """Return the number of the first such line, and what it has."""
        for number, line in enumerate(self.lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            for pattern, what in _NEEDS_A_SHELL:
                if pattern.search(line):
                    return number, what
        return None


def _split_lines(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find lines with quotes, pipes or redirections that are run word by word."""
    variables = _HeldVariables(lint_case)
    for command, place in commands_with_directories(lint_case):
        raw = [one.text for one in tokens(command.text) if one.kind == "word"]
        at = program_place(raw)
        held = None if at is None else variables.held_by(raw[at], place)
        found = held.that_needs_a_shell() if held else None
        if at is not None and held is not None and found is not None:
            number, what = found
            effect = f"{held.name}:{number} has {what}, and no shell reads that here"
            rest = (word.replace('"', '\\"') for word in raw[at + 1 :])
            line = " ".join((raw[at], *rest))
            cure = " ".join((*raw[:at], f'bash -c "{line}"'))
            yield problem(command, "word-splitting", effect, cure)
            return
        variables.assign(command, place)


class _HeldVariables:
    """What the variables of a script hold, as far as that is lines of commands."""

    def __init__(self, lint_case: LintCase) -> None:
        self._case, self._known = lint_case, dict[str, CommandLines]()
        commands = lint_case.body.commands
        loops = (one.inputs for one in commands if not one.words and one.inputs)
        self._loop_inputs = next(loops, ())

    def held_by(self, text: str, place: str | None) -> CommandLines | None:
        """Return the lines that an expansion may give, if they are known."""
        variable = _VARIABLE.fullmatch(text)
        if variable is not None:
            return self._known.get(variable[1] or variable[3])
        inner = _SUBSTITUTION.fullmatch(text)
        return self._of_file(inner[1] or inner[2] or "", place) if inner else None

    def _of_file(self, text: str, place: str | None) -> CommandLines | None:
        """Return the lines of the file among the words of a substitution."""
        for token in tokens(text):
            name = unquoted(token.text)
            named = self.held_by(name, place)
            name = named.lines[0] if named and len(named.lines) == 1 else name
            path = self._case.absolute(name, place) if token.kind == "word" else None
            lines = self._case.facts.texts.get(path) if path else None
            if lines is not None:
                return CommandLines(name, tuple(lines.splitlines()))
        return None

    def assign(self, command: ShellCommand, place: str | None) -> None:
        """Remember what a command assigns, as far as it is lines."""
        exported = command.words[1:] if command.name == "export" else ()
        for word in (*command.assigned, *exported):
            name, _, value = word.partition("=")
            listed = _LIST.fullmatch(word)
            if listed is not None:
                name = name.rstrip("+")
                parts = (one.text for one in tokens(listed[2]) if one.kind == "word")
                lines = CommandLines(name, tuple(map(_without_outer_quotes, parts)))
                self._known[name] = lines
            elif plain := _without_outer_quotes(value):
                self._keep(name, plain, place)
        if command.name in {"read", "mapfile", "readarray"} and len(command.words) > 1:
            text = " ".join(command.inputs or self._loop_inputs) or command.text
            if held := self._of_file(text, place):
                self._known[command.words[-1]] = held

    def _keep(self, name: str, value: str, place: str | None) -> None:
        held = self.held_by(value, place)
        if held is None and not _SUBSTITUTION.fullmatch(value):
            line = value.replace('\\"', '"')
            held = CommandLines(name, (re.sub(r"\$(?:\w+|\{\w+\})", "x", line),))
        if held is not None:
            self._known[name] = held


def _without_outer_quotes(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


RULES: tuple[Rule, ...] = (
    _hidden_exit,
    _syntax_findings,
    _left_behind,
    _deferred_trap,
    _signal_option,
    _no_signal,
    _removes,
    _loop_input,
    _heap,
    _split_lines,
)
