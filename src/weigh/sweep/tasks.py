"""Turn combinations into tasks: fill in the ``{name}`` fields of the command.

Only ``{name}`` is a field: nothing but a name in the braces, and no ``$`` before them.
``{}``, ``{"a": 1}``, ``{ print }``, ``${HOME}`` and ``{{x}}`` are left as they are,
except that ``{{name}}`` of a parameter becomes ``{name}``.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import UsageError, close_names
from weigh.model.plan import Task
from weigh.sweep import variables
from weigh.sweep.grid import ParameterGrid
from weigh.sweep.quoting import bash_quoted, shell_line
from weigh.sweep.values import NAME

# doubled braces, then a field; a dollar before either belongs to a shell
_FIELD = re.compile(rf"\$\{{{NAME}\}}|\{{\{{({NAME})\}}\}}|\{{({NAME})\}}")


def fill_fields(argv: Sequence[str], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Replace the fields of *argv* by *texts*; leave anything else as it is.

    Fields inside a text are not replaced.
    """

    def filled(match: re.Match[str]) -> str:
        escaped, name = match[1], match[2]
        # {{name}} of a parameter, written so that it stays in the command
        if escaped in texts:
            return f"{{{escaped}}}"
        return texts.get(name, match[0])

    return tuple(_FIELD.sub(filled, word) for word in argv)


def field_names(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the fields in order, without repetition."""
    found = (match[2] for word in argv for match in _FIELD.finditer(word))
    return tuple(dict.fromkeys(name for name in found if name))


def match_fields(argv: Sequence[str], names: Collection[str]) -> None:
    """Check that every parameter has a field in the command, and vice versa.

    Raises:
        UsageError: a field has no parameter, or a parameter has no field.
    """
    used = field_names(argv)
    for name in used:
        if name not in names and name not in variables.NAMES:
            near = close_names(name, names, n=1)
            hint = f"add {name}=..., or write {{ {name} }} for plain braces"
            if near:
                hint = f"did you mean {{{near[0]}}}?"
            raise UsageError(f"{{{name}}} has no values ({hint})")
    for name in names:
        if name not in used:
            raise UsageError(
                f"{name} is not used in the command (write {{{name}}} where it goes)"
            )


class SweepTask(msgspec.Struct, frozen=True):
    """A task, and its parameters as they were typed."""

    task: Task
    texts: dict[str, str]


def make_entry(
    grid: ParameterGrid, index: int, argv: Sequence[str], *, task_number: int
) -> SweepTask:
    """Return the task of one combination."""
    combination = grid.combination(index)
    texts = combination.texts
    # a placeholder cannot be the program, so the first word stays as it is
    first, *rest = argv
    program = shell_line(fill_fields((first,), texts))
    line = " ".join([program, *(_quoted_with_variables(word, texts) for word in rest)])
    return SweepTask(Task(task_number, line, combination.values), texts)


def _quoted_with_variables(command_word: str, texts: Mapping[str, str]) -> str:
    """Quote a word, except for the variables of its placeholders."""
    variables.check_heap(command_word)
    parts: list[str] = []
    end = 0
    for found in variables.PLACEHOLDER.finditer(command_word):
        # a sweep's own parameter called memory or cpus takes precedence
        if found[1] not in texts:
            # the text in between is quoted by itself; the shell joins the parts again
            parts.append(_quoted_filled(command_word[end : found.start()], texts))
            parts.append(variables.placeholder_expression(found[1], found[2]))
            end = found.end()
    # a word that consists of placeholders alone needs no empty quotes
    parts.append(_quoted_filled(command_word[end:], texts))
    return "".join(parts) or bash_quoted("")


def _quoted_filled(text: str, texts: Mapping[str, str]) -> str:
    return bash_quoted(*fill_fields((text,), texts)) if text else ""


def make_entries(
    grid: ParameterGrid, indices: Sequence[int], argv: Sequence[str]
) -> Iterator[SweepTask]:
    """Yield the tasks, numbered from 1."""
    for seq, index in enumerate(indices, start=1):
        yield make_entry(grid, index, argv, task_number=seq)


def with_distinct_lines(
    grid: ParameterGrid, indices: Sequence[int], argv: Sequence[str]
) -> Sequence[int]:
    """Drop combinations with the line of another one: of ``{a}{b}``, 1,11 and 11,1."""
    # every line would be in memory otherwise
    if _are_all_distinct(grid, argv):
        return indices
    by_line: dict[str, int] = {}
    for index in indices:
        line = make_entry(grid, index, argv, task_number=0).task.line
        by_line.setdefault(line, index)
    return list(by_line.values())


def _are_all_distinct(grid: ParameterGrid, argv: Sequence[str]) -> bool:
    """Return whether every parameter has a word of the command to itself.

    Then no two combinations have the same line, unless a value is given twice.
    """
    for dimension in grid.dimensions:
        rows = set(zip(*(axis.texts for axis in dimension.axes), strict=True))
        if len(rows) < len(dimension):
            return False
    # with a second field in the word, two different pairs may give the same text
    fields = (field_names((word,)) for word in argv)
    alone = {names[0] for names in fields if len(names) == 1}
    return alone >= set(grid.names)
