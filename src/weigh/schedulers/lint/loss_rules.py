"""Rules for results that are removed, and for what a loop or Java takes away."""

import re
from collections.abc import Iterator, Mapping

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import LintCase, Rule, note, problem
from weigh.schedulers.shell import ShellCommand, read_body
from weigh.schedulers.words import parsed_or_none
from weigh.units import MIB, format_size, parse_size

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
    memory = lint_case.granted.memory
    for command in lint_case.body.commands if memory else ():
        found = _HEAP.search(command.text)
        unit = f"{found[2].upper()}iB" if found and found[2] else ""
        size = parsed_or_none(parse_size, f"{found[1]}{unit}") if found else None
        if size and memory and size >= memory:
            after = "it does not start" if lint_case.granted.is_virtual else "is killed"
            effect = (
                f"the job gets {format_size(memory)}, and the JVM needs more than its "
                f"heap: {after}"
            )
            # a quarter of the job's memory is left to the JVM itself
            fix = f"-Xmx{max(1, memory * 3 // 4 // MIB)}m"
            yield problem(command, "heap-beyond-memory", effect, fix)
            return


RULES: tuple[Rule, ...] = (_removes, _loop_input, _heap)
