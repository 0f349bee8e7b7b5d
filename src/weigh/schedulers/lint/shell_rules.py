"""Rules for commands that a shell reads otherwise than they were meant."""

import re
from collections.abc import Iterator, Mapping

from weigh.model.lint import LintFinding
from weigh.schedulers.hidden_exit import DROP_THE_BACKGROUND, hidden_exit
from weigh.schedulers.lint.case import LintCase, Rule, note, problem
from weigh.schedulers.lint.path_rules import holds_placeholder
from weigh.schedulers.shell import ShellCommand, read_body

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
    if holds_placeholder(line.text):
        return
    effect = f"bash ends the job here: {words}"
    if document:
        effect = f"{words}: all that follows is its text"
    yield problem(line, "syntax", effect, "bash -n reads a script and runs nothing")


_EXPANDED_LATER = frozenset(
    {"bash", "sh", "eval", "xargs", "parallel", "ssh", "trap", "envsubst", "zsh"}
)


_NAME = re.compile(r"\$\{?([A-Z]\w*)")


def _quotes(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find variables of the scheduler in single quotes, which stay as they are."""
    for command in lint_case.body.commands:
        if _EXPANDED_LATER & {*re.split(r"[^\w.-]+", command.text)}:
            continue
        if command.name in ("echo", "printf") and command.outputs:
            continue  # the text of another script
        # single quotes within double quotes quote nothing
        bare = re.sub(r'"(?:\\.|[^"\\$`]|\$(?!\())*"', "", command.text)
        for quoted in re.findall(r"'([^']*)'", bare):
            name = next(
                filter(lint_case.words.variables.__contains__, _variable_names(quoted)),
                "",
            )
            if name:
                effect = f"${name} in single quotes is not expanded"
                make = note if command.name in ("echo", "printf") else problem
                yield make(command, "single-quotes", effect, "use double quotes")
                return


def _variable_names(text: str) -> list[str]:
    return _NAME.findall(text)


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


_FOREIGN = {
    "PBS": re.compile(
        r"\$\{?(PBS_(?:O_\w+|JOBID|JOBNAME|NODEFILE|NP|NCPUS|NUM_\w+))\b"
    ),
    "Grid Engine": re.compile(
        r"\$\{?(SGE_O_\w+|SGE_TASK_ID|NSLOTS|NHOSTS|PE_HOSTFILE)\b"
    ),
    "LSF": re.compile(r"\$\{?(LSB_\w+|LS_SUBCWD)\b"),
    "Slurm": re.compile(r"\$\{?(SLURM_\w+)"),
}
_OWN = {"sbatch": "Slurm", "qsub": "Grid Engine"}


def _foreign(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find variables that only another scheduler sets."""
    tested = " ".join(
        one.text for one in lint_case.body.commands if one.name in ("[", "[[", "test")
    )
    tested += "".join(
        f" {word}" for one in lint_case.body.commands for word in _set_by(one)
    )
    # a `case` may choose by scheduler: then variables of all are in their place
    cases = any(one.text == "case" for one in lint_case.body.tokens)
    for command in lint_case.body.commands if not cases else ():
        if command.name in ("echo", "printf", "[", "[[", "test"):
            continue
        for owner, pattern in _FOREIGN.items():
            found = pattern.search(command.text)
            if owner == _OWN.get(lint_case.tool) or not found or found[1] in tested:
                continue
            if found[1] in lint_case.words.foreign:
                continue  # another rule
            # ${NAME:-1} has a value without the scheduler, too
            if re.search(rf"\{{{found[1]}:?[-=+?]", command.text):
                continue
            effect = f"{found[1]} is empty here: only {owner} sets it"
            yield problem(command, "variable", effect, "")
            return


def _set_by(command: ShellCommand) -> tuple[str, ...]:
    words = (*command.assigned, *command.words[1:])
    names = (word.partition("=")[0] for word in words if "=" in word)
    return (*names, *(command.words[1:] if command.name == "read" else ()))


def _only_with(lint_case: LintCase) -> Iterator[LintFinding]:
    """Note variables that the scheduler sets only if an option requests them."""
    for name, options in lint_case.words.only_with.items():
        if not lint_case.options or lint_case.option(*options) is not None:
            continue
        used = re.compile(rf"\$(?:{name}\b|\{{{name}\}})")
        tested = re.compile(rf"-[zn]\s+\"?\$\{{?{name}|\b{name}=|\{{{name}:?[-=+?]")
        if any(tested.search(one.text) for one in lint_case.body.commands):
            continue
        for command in lint_case.body.commands:
            if command.name not in ("echo", "printf") and used.search(command.text):
                effect = f"{name} is empty without --{options[0]}"
                fix = f"add --{options[0]}, or ${{{name}:-1}}"
                yield note(command, "variable", effect, fix)
                break


_COPIES = frozenset({"rsync", "cp", "scp", "mv"})
_GUARDS = re.compile(r"&&|\|\||^\s*(?:if|while|until)\b|\$\?")
# what follows a copy that failed, and goes on
_NO_GUARD = re.compile(r"\|\|\s*(?:true|:|echo|printf|logger)\b[^|&;{]*$")
_FEWEST_OF_COPY = 3  # the command, from, to


def _removes(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find `rm -r` of what a copy before it may have failed to bring home."""
    texts = {one.line: one.text for one in lint_case.script.lines}
    guarded, ends = set(_conditional(lint_case)), _ends_on_errors(lint_case)
    copied, unguarded = dict[str, int](), dict[str, int]()
    here = ""
    for command in lint_case.body.commands:
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
        elif command.name in _COPIES and len(paths) + 1 >= _FEWEST_OF_COPY:
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
    """Yield the lines within `if` and `lint_case`."""
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


def _hidden_exit(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find a program whose failure the exit code of the script hides."""
    if lint_case.script.program not in _SHELLS:
        return
    text = "\n".join(one.text for one in lint_case.script.lines)
    hidden = hidden_exit(text, lint_case.script.interpreter)
    if hidden is not None and hidden.cure != DROP_THE_BACKGROUND:  # that is no-wait's
        yield note(hidden, "hidden-exit", hidden.effect, hidden.cure)


RULES: tuple[Rule, ...] = (
    _removes,
    _hidden_exit,
    _syntax_findings,
    _quotes,
    _loop_input,
    _foreign,
    _only_with,
)
