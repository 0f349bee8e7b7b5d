"""What to know and to change, the strongest first."""

from collections.abc import Sequence

import msgspec

from weigh.model.report import Note
from weigh.report.printable import printable


class NoteView(msgspec.Struct, frozen=True, kw_only=True):
    """One note, fit to be shown."""

    about: str
    words: str
    flag: str | None
    is_finding: bool


def note_views(notes: Sequence[Note]) -> tuple[NoteView, ...]:
    """Order notes by their weight."""
    return tuple(
        NoteView(
            about=printable(note.about),
            words=printable(note.words),
            flag=None if note.flag is None else printable(note.flag),
            is_finding=note.is_finding,
        )
        for note in sorted(notes, key=lambda note: -note.weight)
    )
