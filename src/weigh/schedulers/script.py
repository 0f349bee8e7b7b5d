"""A job script as text: its lines, interpreter and first command."""

import msgspec

BOM = "\ufeff"

SHELLS = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"})


class ScriptLine(msgspec.Struct, frozen=True):
    """One line of a script, counted from 1, without its line break."""

    line: int
    text: str


class ScriptText(msgspec.Struct, frozen=True, kw_only=True):
    """A script's lines, and what its bytes show.

    ``interpreter`` are the words after ``#!``, empty if there is no such line;
    ``first_command`` is the number of the first line that is not blank or a comment;
    ``carriage_returns`` is the first line with a Windows line ending.
    """

    lines: tuple[ScriptLine, ...]
    interpreter: tuple[str, ...] = ()
    first_command: int | None = None  # None: there is none
    bom: bool = False
    carriage_returns: int | None = None
    nul: int | None = None  # first line with a NUL

    @property
    def program(self) -> str:
        """Return the program that runs it, ``bash``; for env(1), what env runs."""
        names = [word.rpartition("/")[2] for word in self.interpreter]
        if names and names[0] == "env":
            # env -S and env NAME=value: the first plain word is the program
            names = [word for word in names[1:] if word[:1] != "-" and "=" not in word]
        return names[0] if names else ""

    @property
    def is_shell(self) -> bool:
        """Return whether a Bourne shell runs it; without ``#!`` one does."""
        return not self.interpreter or self.program in SHELLS


def read_script(text: str) -> ScriptText:
    """Read a script exactly as it is on disk, line breaks included."""
    bom = text.startswith(BOM)
    rows = text.removeprefix(BOM).split("\n")
    # behind the last line break there is no line
    if rows[-1] == "":
        rows.pop()
    lines = tuple(
        ScriptLine(number, row.removesuffix("\r")) for number, row in enumerate(rows, 1)
    )
    return ScriptText(
        lines=lines,
        interpreter=_interpreter_words(lines),
        first_command=next((one.line for one in lines if _is_command(one.text)), None),
        bom=bom,
        carriage_returns=_first_marked_row(rows, "\r", at_end=True),
        nul=_first_marked_row(rows, "\0"),
    )


def _interpreter_words(script_lines: tuple[ScriptLine, ...]) -> tuple[str, ...]:
    if not script_lines or not script_lines[0].text.startswith("#!"):
        return ()
    return tuple(script_lines[0].text[2:].split())


def _is_command(row: str) -> bool:
    # sbatch stops reading directives at the first such line, whatever language it is
    return row.strip()[:1] not in ("", "#")


def _first_marked_row(
    rows: list[str], mark: str, *, at_end: bool = False
) -> int | None:
    found = (
        number
        for number, row in enumerate(rows, 1)
        if (row.endswith(mark) if at_end else mark in row)
    )
    return next(found, None)
