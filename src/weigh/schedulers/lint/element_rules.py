"""Rules for arrays: indices against files, lines and lists, and shared outputs."""

import itertools
import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    ArrayElements,
    LintCase,
    Rule,
    ScriptOption,
    commands_with_directories,
    note,
    problem,
)
from weigh.schedulers.shell import ShellCommand, unquoted

_MARK = "\x01"
_MANY = 50
_READERS = frozenset({"cat", "bash", "sh", "source", ".", "python", "python3", "weigh"})
# options whose value is most likely a file that is read; and those whose value is
# written
_READS = re.compile(r"-+(?:\w+[-_])?(?:in|input|infile|config|conf|params?|data|i|c)")
_WRITES = re.compile(r"out|save|log|dest|result|ckpt|checkpoint|resume|write|-o$|-d$")


def _array_option_and_elements(
    lint_case: LintCase,
) -> tuple[ScriptOption, ArrayElements] | None:
    option, elements = (
        lint_case.requested.by.get("array"),
        lint_case.requested.elements,
    )
    if option is None or elements is None or not elements.ranges:
        return None
    return option, elements


def _no_array(lint_case: LintCase) -> Iterator[LintFinding]:
    if "array" in lint_case.requested.by or not lint_case.uses(lint_case.element):
        return
    word = lint_case.words.array
    for command, template, numbers, _ in _templates(lint_case):
        if numbers:
            span = f"{numbers[0]}-{numbers[-1]}"
            effect = f"{_files_words(template, numbers)}: submit with {word}"
            yield note(command, "no-array", effect, f"{lint_case.tool} {word} {span}")
            return
    if _copes_without(lint_case):
        return
    effect = f"{lint_case.element} {lint_case.words.unset} unless submitted with {word}"
    yield note(None, "no-array", effect)


def _copes_without(lint_case: LintCase) -> bool:
    """Return whether the script provides for a job without an index, or prints it."""
    element = lint_case.element
    default = re.compile(rf"\$\{{{element}:?[-=+]|\b{element}:?=")
    used = [
        one for one in lint_case.body.commands if element in _whole_command_text(one)
    ]
    return (
        any(
            "ARRAY_" in text or element in text
            for text in map(_whole_command_text, lint_case.body.named(*_TESTS))
        )
        or any(default.search(_whole_command_text(one)) for one in used)
        or all(one.name in _PRINTS for one in used)
    )


def _files(lint_case: LintCase) -> Iterator[LintFinding]:
    array = _array_option_and_elements(lint_case)
    for _, template, numbers, is_sure in _templates(lint_case) if array else ():
        if array is None or not numbers:
            continue
        option, elements = array
        without = [one for one in _first_elements(elements) if one not in numbers]
        left = [one for one in numbers if one not in elements]
        there = _files_words(template, numbers)
        span = f"{numbers[0]}-{numbers[-1]}"
        if without:
            effect = f"{there}: element {without[-1]} has none"
            # a file that only looks like an input may be made by the script itself
            make = problem if is_sure else note
            yield make(option, "element-without-input", effect, f"{span} matches")
        elif left:
            effect = f"{there}: no element for {left[0]}"
            yield note(option, "input-without-element", effect, f"{span} covers all")
        return


def _line_patterns(element: str) -> tuple[re.Pattern[str], ...]:
    one = rf"\$\{{?{element}\}}?"
    file = r"([^\s)|;&]+)"
    return (
        re.compile(rf"sed\s+(?:-n\s+)?[\"']?{one}(?:p|q;\s*d)?[\"']?p?[\"']?\s+{file}"),
        re.compile(rf"NR\s*==\s*['\"]*{one}['\"]*\s+{file}"),
        re.compile(rf"-v\s*(?:\w+)=[\"']?{one}[\"']?\s+'NR\s*==[^']*'\s+{file}"),
        re.compile(rf"head\s+-(?:n\s*)?[\"']?{one}[\"']?\s+{file}\s*\|\s*tail"),
    )


def _line_of_file_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    array = _array_option_and_elements(lint_case)
    patterns = _line_patterns(lint_case.element)
    for command, place in commands_with_directories(lint_case) if array else ():
        text = _text_with_element(lint_case, _command_with_pipes(lint_case, command))
        found = next(filter(None, (one.search(text) for one in patterns)), None)
        path = lint_case.absolute(unquoted(found[1]), place) if found else None
        if array is None or found is None or path is None:
            continue
        count = lint_case.facts.lines.get(path)
        if not count:
            continue
        option, elements = array
        what = f"{found[1]} has {count:,} lines"
        # sed -n 0p is an error, and NR begins at 1
        if elements.first < 1:
            effect = f"line numbers start at 1: element {elements.first} gets no line"
            yield problem(option, "element-without-input", effect, f"1-{count}")
        elif elements.last > count:
            effect = f"{what}: element {elements.last} gets none"
            yield problem(option, "element-without-input", effect, f"1-{count}")
        # one element of a long list may be a try
        elif elements.last < count and len(elements) > 1:
            effect = f"{what}: the last ones are not used"
            yield note(option, "input-without-element", effect, f"1-{count}")
        return


def _command_with_pipes(lint_case: LintCase, command: ShellCommand) -> str:
    """Return a command with those that its output is piped to."""
    pieces = [_whole_command_text(command)]
    same = command.is_substituted
    others = [one for one in lint_case.body.commands if one.is_substituted == same]
    for before, after in itertools.pairwise(others[others.index(command) :]):
        if not before.piped:
            break
        pieces.append(_whole_command_text(after))
    return " | ".join(pieces)


_TESTS = frozenset({"[", "[[", "test"})
_PRINTS = frozenset({"echo", "printf"})
_ALONE = frozenset({"echo", "printf", "cat", "env", "date", "hostname", "nvidia-smi"})
_OF_A_NODE = ("/tmp", "/dev/", "/var/tmp", "/local", "/proc", "/run/")  # noqa: S108
_VARIABLE = re.compile(r"\$\{?(\w+)")


def _shared_outputs(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find outputs that all elements of an array write, over each other."""
    array = _array_option_and_elements(lint_case)
    if array is None or len(array[1]) == 1:
        return
    constants = _variables_with_one_value(lint_case)
    moved = is_tested = False
    for command in lint_case.body.commands:
        # what runs in some elements only is not written by all
        depends = is_tested or {*command.blocks} & lint_case.body.branches
        is_tested = command.after == "&&" and (is_tested or command.name in _TESTS)
        if depends:
            continue
        if command.name in ("cd", "pushd"):
            # behind `cd $element` a relative path is another one in each element
            moved = moved or not _is_constant(" ".join(command.words[1:]), constants)
        for path in _possible_output_files(command):
            if moved and not path.startswith("/"):
                continue
            # the same path on a node's own disk is another file on each node
            if path.startswith(_OF_A_NODE) or not _is_constant(path, constants):
                continue
            # a log of a few words, or lines that are added: nothing is lost
            is_trifle = command.name in _ALONE or path in command.appended
            effect = f"all elements write to {path}, over each other"
            make = note if is_trifle else problem
            fix = f"put ${lint_case.element} into the name"
            yield make(command, "output-shared", effect, fix)
            return


def _possible_output_files(command: ShellCommand) -> Iterator[str]:
    yield from command.outputs
    if command.name == "tee" and "-a" not in command.words:
        yield from (word for word in command.words[1:] if not word.startswith("-"))


def _variables_with_one_value(lint_case: LintCase) -> frozenset[str]:
    """Return the variables that have one value in all elements."""
    known = {*lint_case.words.common, "HOME", "USER"}
    for _, name, value in lint_case.assignments():
        if _is_constant(value, frozenset(known)):
            known.add(name)
        else:
            known.discard(name)
    return frozenset(known)


def _is_constant(text: str, constants: frozenset[str]) -> bool:
    if "`" in text or "$(" in text or "$$" in text:
        return False
    names = _VARIABLE.findall(text)
    # a dollar that is no plain variable ($1, ${a[1]}) may be anything
    return all(name in constants for name in names) and len(names) == text.count("$")


def _unused_element_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    array = _array_option_and_elements(lint_case)
    if array is None or not lint_case.body.commands or len(array[1]) == 1:
        return
    option, elements = array
    if any(
        lint_case.uses(one) for one in (lint_case.element, *lint_case.words.foreign)
    ):
        return
    if elements.throttle == 1:
        return  # a chain of jobs that go on with one run
    effect = (
        f"no line uses ${lint_case.element}: all {len(elements):,} elements do the same"
    )
    yield note(option, "elements-alike", effect, "fine if the program itself reads it")


def _throttle(lint_case: LintCase) -> Iterator[LintFinding]:
    array = _array_option_and_elements(lint_case)
    if array is not None and len(array[1]) > _MANY and array[1].throttle is None:
        effect = f"{len(array[1]):,} elements may all run at the same time"
        fix = "-tc 10"
        if lint_case.words.array.startswith("--"):
            fix = f"{array[0].value}%10"
        yield note(array[0], "no-throttle", effect, f"{fix} runs ten at a time")


def _templates(
    lint_case: LintCase,
) -> Iterator[tuple[ShellCommand, str, tuple[int, ...], bool]]:
    """Yield each file name that contains the array index, with the existing numbers.

    The last value is whether the command certainly reads the file.
    """
    variable = re.compile(rf"\$\{{{lint_case.element}\}}|\${lint_case.element}\b")
    for command, place in commands_with_directories(lint_case):
        for written, is_sure in _possible_input_files(command):
            word = _text_with_element(lint_case, written)
            # with the index twice in a name the numbers of files do not show what
            # exists
            if len(variable.findall(word)) != 1:
                continue
            path = lint_case.absolute(variable.sub(_MARK, word), place)
            template = None if path is None else path.replace(_MARK, "{}")
            numbers = None if template is None else lint_case.facts.files.get(template)
            if template is not None and numbers is not None:
                yield command, template, numbers, is_sure


def _text_with_element(lint_case: LintCase, text: str) -> str:
    """Replace variables that hold the element by the element itself."""
    element = lint_case.element
    assigned = [(name, value) for _, name, value in lint_case.assignments()]
    for name, value in assigned:
        # assigned twice: which value it holds is not known
        is_alias = value in (f"${element}", f"${{{element}}}")
        if is_alias and [one for one, _ in assigned].count(name) == 1:
            text = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", f"${{{element}}}", text)
    return text


def _possible_input_files(command: ShellCommand) -> Iterator[tuple[str, bool]]:
    """Yield the words that may be files to read, and whether they certainly are."""
    for word in command.inputs:
        yield word, True
    if command.name == "parallel":
        for flag, value in zip(command.words, command.words[1:], strict=False):
            if flag in ("-a", "--arg-file", "::::"):
                yield value, True
        return
    before = ""
    for place, word in enumerate(command.words[1:]):
        flag, equals, value = word.partition("=")
        if equals and flag.startswith("-"):
            before = ""  # it has its value: what follows is another's
        else:
            flag, value = before, word
            before = word if word.startswith("-") else ""
        if _WRITES.search(flag.lower()):
            continue
        is_first = command.name in _READERS and not place
        if is_first or _READS.fullmatch(flag.lower()):
            yield value, True
        elif command.name in _READERS:
            yield value, command.name in ("cat", "source", ".")


def _files_words(template: str, numbers: tuple[int, ...]) -> str:
    name = template.rpartition("/")[2].replace("{}", "N")
    if len(numbers) == 1:
        return f"one file {name}, N = {numbers[0]}"
    return f"{len(numbers):,} files {name}, {numbers[0]} to {numbers[-1]}"


def _first_elements(elements: ArrayElements) -> Iterator[int]:
    for one in elements.ranges:
        # an array of millions is not compared one by one
        yield from one[:100_000]


def _whole_command_text(command: ShellCommand) -> str:
    return " ".join((command.text, *command.inputs, *command.outputs))


RULES: tuple[Rule, ...] = (
    _no_array,
    _files,
    _line_of_file_findings,
    _shared_outputs,
    _unused_element_findings,
    _throttle,
)
