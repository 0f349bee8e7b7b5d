"""The programs that tasks begin with: looked for on the node before the first task."""

import shlex
from collections.abc import Iterator

from weigh.model.plan import Plan

_MOST = 5
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-"
)
_STARTERS = frozenset({"time", "exec", "nice", "env", "command"})


def programs_of(plan: Plan) -> tuple[str, ...]:
    """Give the first words of the tasks' commands, where they are plain names."""
    found = dict.fromkeys(
        word for kind in plan.kinds for word in _program(kind.example)
    )
    return tuple(found)[:_MOST]


def _program(line: str) -> Iterator[str]:
    try:
        words = shlex.split(line)
    except ValueError:
        return
    for word in words:
        is_assignment = "=" in word and word.partition("=")[0].isidentifier()
        if is_assignment or word in _STARTERS:
            continue
        if word and _PLAIN.issuperset(word) and word[0] != "-":
            yield word
        return
