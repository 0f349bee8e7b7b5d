"""``{name}`` fields inside the words of a command, and what fills them.

Only ``{name}`` is a field, with nothing but the name in the braces and no ``$``
before them. ``{}``, ``{"a": 1}``, ``{ print }``, ``${HOME}`` and ``{{x}}`` stay as
they are, save that ``{{name}}`` of a parameter is written ``{name}``.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from weigh.errors import UsageError
from weigh.sweep.values import NAME

# braces doubled, then a field; a dollar before either belongs to a shell
_FIELD = re.compile(rf"\$\{{{NAME}\}}|\{{\{{({NAME})\}}\}}|\{{({NAME})\}}")


def fill(argv: Sequence[str], texts: Mapping[str, str]) -> tuple[str, ...]:
    """Put the texts in place of their fields; what is no parameter's field stays.

    A text is never looked into for more fields.
    """

    def filled(found: re.Match[str]) -> str:
        escaped, name = found[1], found[2]
        if escaped in texts:
            return f"{{{escaped}}}"
        return texts.get(name, found[0])

    return tuple(_FIELD.sub(filled, word) for word in argv)


def fields(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the fields, each once, in order."""
    found = (match[2] for word in argv for match in _FIELD.finditer(word))
    return tuple(dict.fromkeys(name for name in found if name))


def match_fields(argv: Sequence[str], names: Collection[str]) -> None:
    """Make sure that every parameter has a field in the command, and the reverse.

    Raises:
        UsageError: a field has no parameter, or a parameter no field.
    """
    used = fields(argv)
    for name in used:
        if name not in names:
            raise UsageError(
                f"{{{name}}} in the command has no values ({_offer(name, names)})"
            )
    for name in names:
        if name not in used:
            raise UsageError(
                f"{name} is not used in the command (write {{{name}}} where it goes)"
            )


def _offer(name: str, names: Collection[str]) -> str:
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {{{near[0]}}}?"
    return f"add {name}=..., or spaces inside braces that are no field"
