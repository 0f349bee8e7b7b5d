"""Text from records made safe for a terminal: escapes, short commands, CSV cells."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.units import is_number

if TYPE_CHECKING:
    import datetime as dt
    import shlex

    from weigh.render import columns
else:  # each is imported when it is first used
    dt = lazy_module("datetime")
    shlex = lazy_module("shlex")
    columns = lazy_module("weigh.render.columns")

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_NEED_NO_QUOTES = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./"
)
# what begins a formula, also in the full width of East Asian keyboards
_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LEAST = 0.001  # hours: less is a few seconds
_SCRIPTS = (".py", ".sh", ".R", ".jl", ".pl", ".rb", ".lua", ".m")
_SHELL_LINE = 3  # sh -c LINE


def printable(text: str) -> str:
    """Write control characters and lone surrogates as backslash escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def shown(text: str) -> str:
    """Return *text* without control characters other than line feeds and tabs."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" else printable(c) for c in text)


class Terminal:
    """A text stream whose ``write`` lets no control sequence through to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        """Take the stream of the terminal; ``raw`` is there for our own sequences."""
        self.raw = stream

    def write(self, text: str) -> int:
        """Write *text* as :func:`shown` returns it."""
        return self.raw.write(shown(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.raw, name)


def unguarded(stream: TextIO) -> TextIO:
    """Return the stream behind a :class:`Terminal`, for colours and cursor moves."""
    return stream.raw if isinstance(stream, Terminal) else stream


def cell(value: object) -> object:
    """Return *value* as a CSV cell that no spreadsheet reads as a formula.

    Text that begins like a formula gets a leading apostrophe (OWASP, "CSV
    injection"); numbers, and text that is a number, are not changed. Control
    characters become escapes: csv quotes no bare carriage return, which ends a row.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text[:1] in _FORMULA and not is_number(text) else text


def utf8_text(text: str) -> str:
    """Put a mark in the place of bytes that are no UTF-8: JSON cannot hold them."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def indented_json(document: object) -> str:
    """Write a document for people and programs."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def command_line(command: Sequence[str]) -> str:
    """Write a command as it is typed in a shell."""
    line = " ".join(command)
    unusual = line.encode("utf-8", "replace").translate(None, _NEED_NO_QUOTES)
    if unusual == b" " * (len(command) - 1) and all(command):
        return line
    return printable(shlex.join(command))


def short_command(command: Sequence[str]) -> str:
    """Write a command for a list: of ``sh -c LINE`` only the line.

    Of the program and a script after it only the names: lists have no room for folders.
    """
    if len(command) == _SHELL_LINE and command[0] in _SHELLS and command[1] == "-c":
        return printable(named_words(command[2]))
    return named_words(command_line(command))


def last_line_of(text: str) -> str:
    """Return the last line that is not blank, without its blanks; empty if none."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def named_words(line: str) -> str:
    """Return a command line without the folders of the program and of its script."""
    words = line.split(" ", 2)
    for number, word in enumerate(words[:2]):
        is_named = number == 0 or word.endswith(_SCRIPTS)
        is_plain = not word.endswith("/") and "'" not in word
        if is_named and is_plain and word.count("/") > word.startswith("./"):
            words[number] = word.rpartition("/")[2]
    return " ".join(words)


def shortened(text: str, width: int) -> str:
    """Cut *text* to *width* columns, and show that it was cut."""
    if not text.isascii():
        return columns.shortened(text, width)
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def width_of(text: str) -> int:
    """Return the columns that *text* takes; wide characters take two."""
    if text.isascii():
        return len(text)
    return columns.columns_of(text)


def padded(text: str, width: int) -> str:
    """Fill *text* up with blanks to *width* columns; wide characters take two."""
    if text.isascii():
        return f"{text:<{width}}"
    return text + " " * (width - columns.columns_of(text))


def local_time(started: str) -> tuple[str, str]:
    """Convert UTC in ISO 8601 to local date and time; other text is only split.

    Returns:
        ``("2026-11-21", "10:00:00")``.
    """
    try:
        moment = dt.datetime.fromisoformat(started).astimezone()
    except (ValueError, OverflowError):
        return printable(started[:10]), printable(started[11:19])
    text = moment.isoformat()  # three times as fast as strftime
    return text[:10], text[11:19]


def count(number: int) -> str:
    """Write a number with separated thousands."""
    return f"{number:,}"


def three(value: float) -> str:
    """Write a number with three digits, from a hundred on without decimals."""
    if 0 < value < _LEAST:
        return f"<{_LEAST}"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
