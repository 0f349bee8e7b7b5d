"""What a terminal would show of a line: colours gone, cursor moves understood."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_PAINT = re.compile(r"\x1b\[[\d;:]*m|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_OTHER = re.compile(r"\x1b\[[\d;:?]*[B-LN-Za-ln-z]|\x1b[^\[]")
_PIECE = re.compile(r"([^\x1b]*)((?:\x1b\[\d*A)+|\x1b|$)")


class Shown(NamedTuple):
    """A piece of text, and how many lines below its neighbours it was drawn."""

    text: str
    below: int


def shown(line: bytes) -> Iterator[Shown]:
    """Yield the pieces of *line* between cursor moves.

    A bar that is not the first goes down, draws, and up again: the moves up after it
    say which line of the display it is.
    """
    text = line.decode("utf-8", "replace")
    if "\x1b" not in text:
        yield Shown(text, 0)
        return
    text = _OTHER.sub("\x1b", _PAINT.sub("", text))
    for piece in _PIECE.finditer(text):
        if piece[1].strip():
            yield Shown(piece[1], piece[2].count("A"))
