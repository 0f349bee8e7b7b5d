"""Read a task file: one shell command per line, except blank lines and ``#`` comments.

Lines are bytes, as commands are. Only a newline ends a line; a carriage return before
it comes from Windows and is dropped. Tasks are numbered from 1.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

import msgspec

from weigh.errors import FormatError, UsageError

_BOM = b"\xef\xbb\xbf"
LONGEST_LINE = 1 << 24  # bytes; Linux takes 6 MiB of arguments at most
_OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")  # UTF-16
# closed quotes, backslashes before something, and a comment after the end of a word
# each character matches in one way: possessive quantifiers are wrong before 3.11.5
_WHOLE = re.compile(
    rb"""[^'"\\$\#]* (?: (?:
        \\.\#*(?!\#) | '[^']*' | "[^"\\]*(?:\\.[^"\\]*)*"
        | \$\$ | \$'[^'\\]*(?:\\.[^'\\]*)*' | \$(?!['$])
        | \#(?<![ \t;&|()<>]\#)(?<!\A\#) | (?:(?<=[ \t;&|()<>])|\A)\#.*
    ) [^'"\\$\#]* )*""",
    re.DOTALL | re.VERBOSE,
)
# what a scheduler or the kernel reads in a script; a space in between is a typing error
# in a directive, if an option follows
_OF_A_SCRIPT = re.compile(
    rb"\s*#(?:!\s*/|(?:SBATCH|PBS|BSUB)\b|#*\s*(?:SBATCH|PBS|BSUB)\s+-|\$\s*-[a-zA-Z])"
)
_THEN = re.compile(rb"\s*#\s*weigh:\s*then\b\s*(.*?)\s*", re.IGNORECASE)
_DISBATCH = re.compile(rb"#\s*DISBATCH\s+\w")  # disBatch's own directives
# a line that only changes the shell which the next line does not get
_ONLY_SETS = re.compile(
    rb"""\s*(?:
        (?:export|unset|ulimit|umask|alias|shopt|pushd|declare|setenv)\s+[^;&|]+
        | cd(?:\s+[^;&|<>\s]+)?
        | set\s+[-+]\w[^;&|]*
        | (?:module|ml)\s+(?:load|add|purge|use|swap|restore|reset)\b[^;&|]*
        | (?:conda|mamba|micromamba|spack|pyenv)\s+(?:activate|load|shell)\b[^;&|]*
        | (?:source|\.)\s+(?:\S*/)?(?:activate|\.?bashrc|\.?profile|setup\S*)\s*
        | [A-Za-z_]\w*=(?:'[^']*'|"[^"]*"|[^\s;&|'"$`]*)
    )\s*(?:\#.*)?""",
    re.VERBOSE,
)
INTERPRETERS = {".py": "python3", ".r": "Rscript", ".jl": "julia", ".pl": "perl"}


class TaskLine(msgspec.Struct, frozen=True, gc=False):
    """One task: its number, its line, and where that line begins."""

    seq: int  # number of the task, from 1
    line: int  # of the file, from 1
    offset: int  # bytes from the start of the file
    text: bytes  # without the end of the line

    @property
    def command(self) -> str:
        """Return the line as text; bytes that are not UTF-8 survive encoding it."""
        return self.text.decode("utf-8", "surrogateescape")


def lines_of_task_file(task_file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; one too long for a command is cut, and the last."""
    while line := task_file.readline(LONGEST_LINE + 1):
        yield line
        if len(line) > LONGEST_LINE:
            return


def read_task_lines(
    file_lines: Iterable[bytes],
    file_name: str,
    take_then: Callable[[bytes], None] = lambda _: None,
) -> Iterator[TaskLine]:
    """Yield the tasks of the file *file_name* with *file_lines*.

    *take_then* is called with the command behind ``# weigh: then``, which is no task.

    Raises:
        UsageError: it is a script, whose lines belong together, or a table; a line is a
            directive of another tool, or only sets something for lines that follow.
        FormatError: a line cannot be a command; names it, and the reason.
    """
    other = _kind_of_other_file(file_name)
    if other is not None:
        raise UsageError(f"{file_name} is {other}")
    seq = offset = 0
    file_lines = iter(file_lines)
    for number, raw in enumerate(file_lines, start=1):
        if len(raw) > LONGEST_LINE:
            raise FormatError(
                f"{file_name}:{number}: a line of over {LONGEST_LINE >> 20} MiB, too "
                "long for a command (put it into a script)"
            )
        place = f"{file_name}:{number}"
        text = task_text(raw, is_first=number == 1)
        if text:
            _check_task_command(text, place)
            seq += 1
            yield TaskLine(seq, number, offset, text)
        elif (then := _THEN.fullmatch(raw)) is not None:
            take_then(_command_of_then(file_lines, place, on_line=then[1]))
            return
        else:
            _check_comment(raw, place, file_name)
        # counted in raw bytes, so that a reader can seek to the task
        offset += len(raw)


def _check_task_command(text: bytes, place: str) -> None:
    # first of all UTF-16, in which every other byte is NUL
    if text.startswith(_OTHER_BOMS) and b"\0" in text:
        raise FormatError(f"{place.rpartition(':')[0]} is in UTF-16: save it as UTF-8")
    if b"\0" in text:
        raise FormatError(f"{place}: a NUL byte, which no command can contain")
    if _ONLY_SETS.fullmatch(text):
        shown = " ".join(text.decode("utf-8", "replace").split())
        raise UsageError(
            f"{place}: {shown:.40} affects no other line, as each has its own shell: "
            "write it before each command with &&, or submit with --setup"
        )


def _check_comment(raw: bytes, place: str, file_name: str) -> None:
    if makes_a_script(raw, is_first=place.endswith(":1")):
        # a byte order mark may stand before it
        is_interpreted = b"#!" in raw[:8]
        kind = "begins with #!: a" if is_interpreted else "is a directive: a job"
        raise UsageError(
            f"{place} {kind} script, no task file (try weigh submit {file_name})"
        )
    if _DISBATCH.match(raw):
        raise UsageError(
            f"{place}: #DISBATCH is not obeyed here: write each command in full "
            "(weigh sweep repeats one), and what waits for others into a second file "
            "(weigh submit SECOND --after FIRST)"
        )


def _command_of_then(
    file_lines: Iterable[bytes], place: str, *, on_line: bytes
) -> bytes:
    """Return the one command in the lines behind ``# weigh: then``.

    Raises:
        FormatError: there is none, there are several, or one stands *on_line*.
    """
    # as a comment it would not run, and nobody notice
    if on_line:
        raise FormatError(
            f"{place}: the command of '# weigh: then' stands on the next line"
        )
    commands = [text for raw in file_lines if (text := task_text(raw))]
    if len(commands) != 1:
        raise FormatError(
            f"{place}: one command follows '# weigh: then', not {len(commands)} "
            "(a script holds several)"
        )
    return commands[0]


def task_text(raw_line: bytes, *, is_first: bool = False) -> bytes:
    """Return the command in a line of a task file; empty if there is none."""
    if is_first:
        raw_line = raw_line.removeprefix(_BOM)
    text = raw_line.removesuffix(b"\n").removesuffix(b"\r")
    bare = text.lstrip()
    return b"" if not bare or bare[:1] == b"#" else text


def is_script(
    file_lines: Iterable[bytes], also: Callable[[bytes], bool] = lambda _: False
) -> bool:
    """Return whether *file_lines* are a script, to be run as a whole.

    *also* finds other lines that only a script has.
    """
    return any(
        makes_a_script(raw, is_first=number == 0) or also(raw)
        for number, raw in enumerate(file_lines)
    )


def makes_a_script(raw_line: bytes, *, is_first: bool = False) -> bool:
    """Return whether a file with this line is a script rather than a task file.

    Such a line names an interpreter, or is a directive for a scheduler.
    """
    bare = raw_line.removeprefix(_BOM) if is_first else raw_line
    # only in the first line, where the kernel reads it; "#!" further down is a comment
    if is_first and bare.startswith(b"#!"):
        return True
    return _OF_A_SCRIPT.match(bare) is not None


def has_open_quote(text: bytes) -> bool:
    """Return whether a shell would wait for the end of a quote, or for another line.

    Quotes within ``$(...)`` within quotes are not followed: a line that seems to have
    an open one there is for a shell to decide on.
    """
    return _WHOLE.fullmatch(text) is None


def _kind_of_other_file(file_name: str) -> str | None:
    """Return what a file of this name is, and what to do; None for a task file."""
    stem, _, ending = file_name.rpartition(".")
    program = INTERPRETERS.get(f".{ending.lower()}")
    if program is not None:
        return f"a program, not a task file (weigh run -- {program} {file_name})"
    kinds = {
        "tsv": f"a table of tasks, not a task file (try {stem}.txt)",
        "joblog": f"a joblog, not a task file (try {stem})",
        "json": "JSON, not a task file (write one command per line)",
    }
    return kinds.get(ending)


def table_path(task_file: str) -> str:
    """Return the path of a task file's table: the same with the ending ``.tsv``."""
    folder, slash, name = task_file.rpartition("/")
    stem, dot, _ = name.rpartition(".")
    return f"{folder}{slash}{stem if dot and stem else name}.tsv"
