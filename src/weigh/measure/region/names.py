"""Names that a program gives its regions and events, made fit to print and keep."""

from weigh.errors import UsageError

_LONGEST = 100


def clean_name(name: object, *, of: str) -> tuple[str, bool]:
    """Give *name* as one short printable line, and whether it had to be changed.

    Raises:
        UsageError: it is no text, or empty.
    """
    if not isinstance(name, str):
        raise UsageError(f"{of}: a name is text, not {type(name).__name__}")
    if not name.strip():
        raise UsageError(f"{of}: the name is empty")
    if name.isprintable() and len(name) <= _LONGEST:
        return name, False
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
    text = "".join(c if c.isprintable() else _escaped(c) for c in short)
    return text[:_LONGEST], True


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
