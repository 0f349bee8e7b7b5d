"""Words of a template that nobody replaced."""

import re
from collections.abc import Iterator

from weigh.dialect.lint.case import Case, Rule, error, warning
from weigh.model.lint import Finding

# words that templates leave to be filled in, and nobody has as a name
_ANYWHERE = re.compile(
    r"""TO_?FILL\w* | FILL_?(?:ME|IN)\w* | CHANGE_?ME\w* | REPLACE_?(?:ME|THIS)\w*
      | INSERT_\w+ | \bYOUR[_-]\w+ | \bTODO\b | \bxxx+\b | path/to(?=/|\b)
      | \bmy[_-]?(?:account|project)\b
      | [\w.+-]{1,64}@(?:domain|example|university|your\w*)\.\w+
      | \b(?:someone|somebody|your[\w.]*|user(?:name)?|me|name)@[\w.-]+""",
    re.VERBOSE | re.IGNORECASE,
)
# in a directive these are no redirections and no command of the shell's
_ANGLES = re.compile(
    r"<[A-Za-z][\w .-]*>|\[(?:your|account|user|email)[\w .-]*\]", re.IGNORECASE
)


def holds_placeholder(text: str) -> bool:
    """Tell whether a word of a template was left in *text*."""
    return bool(_ANGLES.search(text) or _ANYWHERE.search(text))


def _in_directives(case: Case) -> Iterator[Finding]:
    for option in case.options:
        found = _ANGLES.search(option.value) or _ANYWHERE.search(option.value)
        if found:
            effect = f"{found[0]} is a placeholder that was left in"
            yield error(option, "placeholder", effect)


def _in_commands(case: Case) -> Iterator[Finding]:
    said: set[str] = set()
    for command in case.body.commands:
        pieces = (command.text, *command.inputs, *command.outputs)
        found = next(filter(None, map(_ANYWHERE.search, pieces)), None)
        if found and found[0] not in said and command.name not in ("echo", "printf"):
            said.add(found[0])
            effect = f"{found[0]} looks like a placeholder that was left in"
            yield warning(command, "placeholder", effect)


RULES: tuple[Rule, ...] = (_in_directives, _in_commands)
