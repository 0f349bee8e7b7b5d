"""Rules that compare an array's indices with the files and lines it reads."""

import re
from collections.abc import Iterator

import msgspec

from weigh.model.lint import Finding
from weigh.schedulers.lint.case import (
    Case,
    Option,
    commands_with_directories,
    error,
    note,
    warning,
)
from weigh.schedulers.shell import Command, unquoted

_FOREIGN = {
    "SLURM_ARRAY_TASK_ID": "SGE_TASK_ID",
    "SGE_TASK_ID": "SLURM_ARRAY_TASK_ID",
}
_MARK = "\x01"
_MANY = 50
_READERS = frozenset({"cat", "bash", "sh", "source", ".", "python", "python3", "weigh"})


class Elements(msgspec.Struct, frozen=True):
    """The indices of an array as ranges, and its throttle."""

    ranges: tuple[range, ...]
    throttle: int | None = None

    def __len__(self) -> int:
        """Return the number of indices; duplicates count twice."""
        return sum(map(len, self.ranges))

    def __contains__(self, index: int) -> bool:
        """Return whether *index* is in the array."""
        return any(index in one for one in self.ranges)

    @property
    def first(self) -> int:
        """Return the smallest index."""
        return min(one[0] for one in self.ranges)

    @property
    def last(self) -> int:
        """Return the largest index."""
        return max(one[-1] for one in self.ranges)


def element_rules(
    case: Case, option: Option | None, elements: Elements | None
) -> Iterator[Finding]:
    """Apply all array rules; *option* requests the array."""
    yield from _other_scheduler(case)
    if option is None or elements is None or not elements.ranges:
        yield from _no_array(case, option)
        return
    yield from _files(case, option, elements)
    yield from _lines(case, option, elements)
    yield from _unused(case, option, elements)
    if len(elements) > _MANY and elements.throttle is None:
        effect = f"{len(elements):,} elements may all run at the same time"
        fix = f"{option.value}%10" if case.tool == "sbatch" else "-tc 10"
        yield note(option, "no-throttle", effect, f"{fix} runs ten at a time")


def _other_scheduler(case: Case) -> Iterator[Finding]:
    foreign = _FOREIGN[case.element]
    both = _uses(case, case.element)
    for command in case.body.commands:
        if not both and foreign in _whole(command):
            effect = f"{foreign} is empty here: it belongs to the other scheduler"
            yield error(command, "foreign-variable", effect, f"${case.element}")
            return


def _no_array(case: Case, option: Option | None) -> Iterator[Finding]:
    if option is not None or not _uses(case, case.element):
        return
    word = "--array" if case.tool == "sbatch" else "-t"
    for command, template, numbers in _templates(case):
        if numbers:
            span = f"{numbers[0]}-{numbers[-1]}"
            effect = f"{_files_words(template, numbers)}: submit with {word}"
            yield note(command, "no-array", effect, f"{case.tool} {word} {span}")
            return
    if case.tool == "sbatch":
        effect = f"{case.element} is empty unless submitted with --array"
    else:
        effect = f"{case.element} is 'undefined' unless submitted with -t"
    yield note(None, "no-array", effect)


def _files(case: Case, option: Option, elements: Elements) -> Iterator[Finding]:
    for _, template, numbers in _templates(case):
        if not numbers:
            continue
        without = [one for one in _few(elements) if one not in numbers]
        left = [one for one in numbers if one not in elements]
        there = _files_words(template, numbers)
        span = f"{numbers[0]}-{numbers[-1]}"
        if without:
            effect = f"{there}: element {without[-1]} has none"
            yield error(option, "element-without-file", effect, f"{span} matches")
        elif left:
            effect = f"{there}: no element for {left[0]}"
            yield warning(option, "file-without-element", effect, f"{span} covers all")
        return


def _lines(case: Case, option: Option, elements: Elements) -> Iterator[Finding]:
    line_of = re.compile(
        rf"(?:sed\s+-n\s+[\"']?\$\{{?{case.element}\}}?p?[\"']?p?[\"']?"
        rf"|NR\s*==\s*['\"]*\$\{{?{case.element}\}}?['\"]*)\s+([^\s)|;&]+)"
    )
    for command, place in commands_with_directories(case):
        found = line_of.search(_whole(command))
        path = case.absolute(unquoted(found[1]), place) if found else None
        count = None if path is None else case.facts.lines.get(path)
        if found is None or count is None:
            continue
        if elements.first < 1:
            effect = f"line numbers start at 1: element {elements.first} gets no line"
            yield error(option, "element-without-line", effect, f"1-{count}")
        elif elements.last > count:
            effect = (
                f"{found[1]} has {count:,} lines: element {elements.last} gets none"
            )
            yield error(option, "element-without-line", effect, f"1-{count}")
        elif elements.last < count and len(elements) > 1:
            effect = f"{found[1]} has {count:,} lines: the last ones are not used"
            yield warning(option, "line-without-element", effect, f"1-{count}")
        return


def _unused(case: Case, option: Option, elements: Elements) -> Iterator[Finding]:
    used = _uses(case, case.element) or _uses(case, _FOREIGN[case.element])
    if not case.body.commands or len(elements) == 1 or used:
        return
    effect = f"no line uses ${case.element}: all {len(elements):,} elements do the same"
    yield note(option, "elements-alike", effect, "fine if the program itself reads it")


def _templates(case: Case) -> Iterator[tuple[Command, str, tuple[int, ...]]]:
    """Yield each file name that contains the array index, with the existing numbers."""
    variable = re.compile(rf"\$\{{{case.element}\}}|\${case.element}\b")
    for command, place in commands_with_directories(case):
        for word in _read(command):
            if len(variable.findall(word)) != 1:
                continue
            path = case.absolute(variable.sub(_MARK, word), place)
            template = None if path is None else path.replace(_MARK, "{}")
            numbers = None if template is None else case.facts.files.get(template)
            if template is not None and numbers is not None:
                yield command, template, numbers


def _read(command: Command) -> Iterator[str]:
    yield from command.inputs
    if command.name in _READERS:
        yield from command.words[1:]
    elif command.name == "parallel":
        for flag, value in zip(command.words, command.words[1:], strict=False):
            if flag in ("-a", "--arg-file", "::::"):
                yield value


def _files_words(template: str, numbers: tuple[int, ...]) -> str:
    name = template.rpartition("/")[2].replace("{}", "N")
    if len(numbers) == 1:
        return f"one file {name}, N = {numbers[0]}"
    return f"{len(numbers):,} files {name}, {numbers[0]} to {numbers[-1]}"


def _few(elements: Elements) -> Iterator[int]:
    for one in elements.ranges:
        yield from one[:100_000]


def _uses(case: Case, variable: str) -> bool:
    return any(
        variable in token.text for token in case.body.tokens if token.kind != "newline"
    )


def _whole(command: Command) -> str:
    return " ".join((command.text, *command.inputs, *command.outputs))
