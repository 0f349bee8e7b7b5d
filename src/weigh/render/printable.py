"""Text for a terminal: escapes, widths, short commands; and cells of CSV."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from weigh.lazy_modules import lazy_module
from weigh.units import Bytes, is_number, size_or_dash

if TYPE_CHECKING:
    import datetime as dt
    import shlex
    import unicodedata
else:  # each is imported when it is first used
    dt = lazy_module("datetime")
    shlex = lazy_module("shlex")
    unicodedata = lazy_module("unicodedata")

_SHELLS = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_NEED_NO_QUOTES = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./"
)
# what begins a formula, also in the full width of East Asian keyboards
_FORMULA = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_LEAST = 0.001  # hours: less is a few seconds
# endings by which a script is recognised
_SCRIPTS = (".py", ".sh", ".R", ".jl", ".pl", ".rb", ".lua", ".m")
_SHELL_LINE = 3  # sh -c LINE
WIDTH = 80  # columns of all screens: what terminals and logs of jobs have
NARROWEST = 8  # columns of a text that was cut with dots


def printable_text(untrusted_text: str) -> str:
    """Write control characters and lone surrogates as backslash escapes."""
    if untrusted_text.isprintable():
        return untrusted_text
    # a lone surrogate stands for a byte that was no UTF-8
    return "".join(
        c if c.isprintable() else _escaped_control_character(c) for c in untrusted_text
    )


def without_control_characters(untrusted_text: str) -> str:
    """Return a text without control characters other than line feeds and tabs."""
    if untrusted_text.isprintable():
        return untrusted_text
    return "".join(c if c in "\n\t" else printable_text(c) for c in untrusted_text)


def weigh_line(untrusted_text: str) -> str:
    """Return what weigh reports on stderr: one line, whatever a name in it holds."""
    return f"weigh: {printable_text(untrusted_text)}\n"


class SafeTerminal:
    """A text stream whose ``write`` lets no control sequence through to a terminal."""

    def __init__(self, stream: TextIO) -> None:
        """Take the stream of the terminal; ``raw`` is there for our own sequences."""
        self.raw = stream

    def write(self, text: str) -> int:
        """Write *text* as :func:`without_control_characters` returns it."""
        return self.raw.write(without_control_characters(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each line."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a stream has
        return getattr(self.raw, name)


def unguarded_stream(stream: TextIO) -> TextIO:
    """Return the stream behind a :class:`SafeTerminal`, for colours and moves."""
    return stream.raw if isinstance(stream, SafeTerminal) else stream


def csv_cell(cell_value: object) -> object:
    """Return *cell_value* as a CSV cell that no spreadsheet reads as a formula.

    Text that begins like a formula gets a leading apostrophe (OWASP, "CSV
    injection"); numbers, and text that is a number, are not changed. Control
    characters become escapes: csv quotes no bare carriage return, which ends a row.
    """
    if not isinstance(cell_value, str):
        return cell_value
    text = printable_text(cell_value)
    return f"'{text}" if text[:1] in _FORMULA and not is_number(text) else text


def indented_json(document: object) -> str:
    """Write a document for people and programs; JSON holds nothing but UTF-8."""
    try:
        text = msgspec.json.encode(document)
    except UnicodeEncodeError:  # of a command, a path or an output
        text = msgspec.json.encode(_utf8_tree(msgspec.to_builtins(document)))
    return msgspec.json.format(text, indent=2).decode()


def _utf8_tree(json_tree: Any) -> Any:  # noqa: ANN401 - what JSON is made of
    """Put a mark in the place of bytes that are no UTF-8."""
    if isinstance(json_tree, str):
        return json_tree.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(json_tree, dict):
        return {_utf8_tree(name): _utf8_tree(one) for name, one in json_tree.items()}
    if isinstance(json_tree, list | tuple):
        return [_utf8_tree(one) for one in json_tree]
    return json_tree


def quoted_command_line(command: Sequence[str]) -> str:
    """Write a command as it is typed in a shell."""
    # counted in bytes, as translate() on bytes is much faster than a pattern on text
    line = " ".join(command)
    unusual = line.encode("utf-8", "replace").translate(None, _NEED_NO_QUOTES)
    # what is left are the blanks between the words, so nothing needs quotes
    if unusual == b" " * (len(command) - 1) and all(command):
        return line
    return printable_text(shlex.join(command))


def short_command(command: Sequence[str]) -> str:
    """Write a command for a list: of ``sh -c LINE`` only the line.

    Of the program and a script after it only the names: lists have no room for folders.
    """
    if len(command) == _SHELL_LINE and command[0] in _SHELLS and command[1] == "-c":
        return printable_text(named_words(command[2]))
    return named_words(quoted_command_line(command))


def last_line_of(output_text: str) -> str:
    """Return the last line that is not blank, without its blanks; empty if none."""
    lines = output_text.strip().splitlines()
    return lines[-1].strip() if lines else ""


def named_words(command_text: str) -> str:
    """Return a command line without the folders of the program and of its script."""
    words = command_text.split(" ", 2)
    for number, word in enumerate(words[:2]):
        is_named = number == 0 or word.endswith(_SCRIPTS)
        # a quote shows that the word goes on behind the blank
        is_plain = not word.endswith("/") and "'" not in word
        # "./run.py" has a slash of its own, which does not name a folder
        if is_named and is_plain and word.count("/") > word.startswith("./"):
            words[number] = word.rpartition("/")[2]
    return " ".join(words)


def shortened_text(screen_text: str, width: int) -> str:
    """Cut *screen_text* to *width* columns, and show that it was cut."""
    if width_of(screen_text) <= width:
        return screen_text
    # below that dots would take up most of what is shown
    dots = "..." if width >= NARROWEST else ""
    room = max(0, width - len(dots))
    if screen_text.isascii():
        return screen_text[:room] + dots
    kept, taken = 0, 0
    for character in screen_text:
        taken += width_of(character)
        if taken > room:
            break
        kept += 1
    return screen_text[:kept] + dots


def shortened_from_start(command_text: str, width: int) -> str:
    """Cut a command to its last *width* columns: runs and tasks differ in their end."""
    if width_of(command_text) <= width or width < NARROWEST:
        return shortened_text(command_text, width)
    kept = command_text[3 - width :]
    while width_of(kept) > width - 3:
        kept = kept[1:]
    rest = kept.partition(" ")[2]
    # from a whole word on, unless that is much shorter
    return "..." + (f" {rest}" if 3 * len(rest) > 2 * len(kept) else kept)


def width_of(screen_text: str) -> int:
    """Return the columns that *screen_text* takes on a terminal, at most."""
    if screen_text.isascii():
        return len(screen_text)
    return sum(
        # combining marks are drawn over the letter before
        0
        if unicodedata.combining(letter)
        else 2
        if unicodedata.east_asian_width(letter) in "WF"
        else 1
        for letter in screen_text
    )


def padded_text(screen_text: str, width: int) -> str:
    """Fill *screen_text* up with blanks to *width* columns.

    Wide characters take two.
    """
    if screen_text.isascii():
        return f"{screen_text:<{width}}"
    return screen_text + " " * (width - width_of(screen_text))


def local_time(started: str) -> tuple[str, str]:
    """Convert UTC in ISO 8601 to local date and time; other text is only split.

    Returns:
        ``("2026-11-21", "10:00:00")``.
    """
    try:
        moment = dt.datetime.fromisoformat(started).astimezone()
    except (ValueError, OverflowError):
        # the date may be one that no calendar has, or beyond those of the system
        return printable_text(started[:10]), printable_text(started[11:19])
    text = moment.isoformat()  # three times as fast as strftime
    return text[:10], text[11:19]


def range_text(low_text: str, high_text: str, joiner: str = "to") -> str:
    """Write a range, with the unit once if both ends share it: ``1.2 to 1.4 GiB``."""
    if low_text == high_text:
        return low_text
    number, _, unit = low_text.partition(" ")
    # "3 m 20 s" ends in the unit of "9.1 s", but is no number with one unit
    is_shared = unit and high_text.count(" ") == 1 and high_text.endswith(f" {unit}")
    return f"{number if is_shared else low_text} {joiner} {high_text}"


def three_digit_text(shown_number: float) -> str:
    """Write a number with three digits, from a hundred on without decimals."""
    if 0 < shown_number < _LEAST:
        return f"<{_LEAST}"
    return f"{shown_number:,.0f}" if shown_number >= 99.5 else f"{shown_number:.3g}"  # noqa: PLR2004 - three digits


def _escaped_control_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def peak_text(peak: Bytes | None, *, is_bound: bool) -> str:
    """Write a peak; a bound is weigh's own memory, of a command that ended at once."""
    return f"up to {size_or_dash(peak)}" if is_bound else size_or_dash(peak)
