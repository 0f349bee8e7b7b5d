"""``weigh top`` on a terminal: draws each view over the last one.

rich is imported here and nowhere else.
"""

import os
from contextlib import suppress
from typing import Self, TextIO

from rich.console import Console
from rich.text import Text

from weigh.render.printable import printable
from weigh.render.top_lines import TopView, top_lines

_USUAL = (80, 24)  # if the terminal reports no size


class TopScreen:
    """The terminal's second screen, opened on entry and closed on exit."""

    def __init__(self, out: TextIO, *, colour: bool) -> None:
        self._out = out
        self._console = Console(
            file=out,
            force_terminal=True,
            force_interactive=True,
            no_color=not colour,
            color_system="standard" if colour else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def __enter__(self) -> Self:
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # the terminal may be gone
            self._console.show_cursor(True)
            self._console.set_alt_screen(False)

    def show(self, view: TopView) -> None:
        """Draw *view* at the window's current size.

        Raises:
            OSError: the terminal is gone.
        """
        width, height = self._size()
        self._console.size = (width, height)
        self._console.update_screen(renderable(view, width, height))

    def _size(self) -> tuple[int, int]:
        try:
            width, height = os.get_terminal_size(self._out.fileno())
        except OSError:
            width, height = 0, 0
        return width or _USUAL[0], height or _USUAL[1]


def renderable(view: TopView, width: int, height: int) -> Text:
    """Convert *view* to rich's text: lines that fit the window."""
    lines = top_lines(view, width, height, keys=True)
    text = Text("\n", no_wrap=True, overflow="crop", end="").join(
        Text(printable(line.text), style=line.style) for line in lines
    )
    text.no_wrap, text.overflow = True, "crop"
    return text
