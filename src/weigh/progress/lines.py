"""Cuts what a run prints into lines, in bounded memory and bounded time."""

import re
from typing import NamedTuple

from weigh.units import KIB, Seconds

TICK: Seconds = 0.2
HEAD = 3 * KIB
TAIL = 3 * KIB
LONGEST = 4 * KIB

_ENDS = re.compile(rb"[\r\n\b]+")


class Line(NamedTuple):
    """One line without its end, and the time of its last byte."""

    text: bytes
    time: Seconds


class Lines:
    """Lines of a stream of bytes, wherever that is cut.

    Carriage returns and backspaces end a line too. Of what comes within 0.2 s the first
    and the last 3 KiB are looked at: a run that prints 10 MB/s costs no more than one
    that prints 30 kB/s.
    """

    def __init__(self) -> None:
        self._open = Line(b"", 0.0)
        self._in_gap = False  # what comes first belongs to a line that began in the gap
        self._tick = float("-inf")
        self._room = 0
        self._late = Line(b"", 0.0)
        self._is_skipping = False

    def feed(self, chunk: bytes, now: Seconds) -> list[Line]:
        """Take in *chunk* and give the lines that ended. *now* never goes back."""
        found: list[Line] = []
        if now - self._tick >= TICK:
            found = self.catch_up()
            self._tick, self._room = now, HEAD
        if self._room:
            head = chunk[: self._room]
            self._room -= len(head)
            found += self._cut(head, now)
            chunk = chunk[len(head) :]
        if chunk:
            late = self._late.text if len(chunk) < TAIL else b""
            self._is_skipping |= len(self._late.text) + len(chunk) > TAIL
            self._late = Line((late + chunk)[-TAIL:], now)
        return found

    def catch_up(self) -> list[Line]:
        """Give the lines that were set aside since the tick began."""
        late, self._late = self._late, Line(b"", 0.0)
        if self._is_skipping:
            self._open, self._in_gap, self._is_skipping = Line(b"", 0.0), True, False
        return self._cut(late.text, late.time)

    def unended(self) -> Line:
        """Give the line that has no end yet."""
        return self._open

    def _cut(self, data: bytes, now: Seconds) -> list[Line]:
        if not data:
            return []
        first, *more = _ENDS.split(data)
        joined = (self._open.text + first)[-LONGEST:]
        pieces = [Line(joined, now if first else self._open.time)]
        pieces += [Line(piece[-LONGEST:], now) for piece in more]
        if self._in_gap:
            pieces[0] = Line(b"", now)
            self._in_gap = not more
        self._open = pieces.pop()
        return [piece for piece in pieces if piece.text]
