"""Read a task file: index its tasks once, read each text when it is needed.

Only the position of each task and a hash of its text stay in memory.
"""

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import BinaryIO

from weigh.errors import FormatError, UsageError, cannot_read
from weigh.model.mask import SIGNS
from weigh.runner.shell import does_shell_accept, plain_words
from weigh.sweep.task_file import (
    TaskLine,
    has_open_quote,
    lines_of_task_file,
    read_task_lines,
    table_path,
    task_text,
)

Value = int | float | str


class TaskParameters:
    """The parameters of tasks, read from the table of a sweep as needed."""

    def __init__(self, task_file: str) -> None:
        """Index the rows of the table next to *task_file*; none if it has none."""
        self._offsets = array("Q")
        try:
            self._file = open(table_path(task_file), "rb")  # noqa: SIM115
        except OSError:
            self._file = open(os.devnull, "rb")  # noqa: SIM115
        self._header = _decoded_task_line(self._file.readline())
        offset = self._file.tell()
        for line in self._file:
            self._offsets.append(offset)
            offset += len(line)

    def of(self, task_number: int, command: str) -> dict[str, Value]:
        """Return a task's parameters; none if the task file was edited since."""
        if task_number > len(self._offsets):
            return {}
        from weigh.sweep.table import read_table  # noqa: PLC0415 - start-up time

        self._file.seek(self._offsets[task_number - 1])
        row = _decoded_task_line(self._file.readline())
        try:
            task = next(read_table([self._header, row]), None)
        except FormatError:  # a cell with a newline, or another kind of table
            return {}
        # a task file that was edited no longer has the table's lines in their places
        known = task is not None and task.line == command
        return task.parameters if task is not None and known else {}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _decoded_task_line(task_line: bytes) -> str:
    return task_line.decode("utf-8", "surrogateescape")


_PIECE = 512  # bytes read first: most lines are shorter
_HOW = "weigh sweep writes a task file"
_LONGEST = 1 << 20  # bytes read at once
_OVERLAP = 16  # longer than any sign of a secret
_WORD = 32 * os.sysconf("SC_PAGE_SIZE")  # Linux: MAX_ARG_STRLEN, its NUL included

_SIGNS = tuple(map(str.encode, SIGNS))


class TaskSource:
    """The tasks of one file, by their numbers from 1.

    ``name`` is the path as the user wrote it. ``keys`` are hashes that are valid in
    this process only; ``suspects`` are the numbers of tasks that may hold a secret.
    """

    def __init__(self, file_path: str) -> None:
        """Read the file once.

        Raises:
            UsageError: it cannot be read, or has no task.
            FormatError: a line is not a valid command.
        """
        self.name = "standard input" if file_path == "-" else file_path
        self.keys = array("q")
        self.suspects = array("Q")
        self.then: bytes | None = None  # the command when all are done
        self._offsets = array("Q")
        self._file = _open_task_file(file_path)
        self._fd = self._file.fileno()
        try:
            self._index()
        except BaseException:
            self._file.close()
            raise

    def __len__(self) -> int:
        return len(self.keys)

    def text(self, task_number: int) -> bytes:
        """Read the command of a task.

        Raises:
            FormatError: the file was changed meanwhile.
        """
        begin = self._offsets[task_number - 1]
        text = task_text(self._line_at(begin), is_first=begin == 0)
        # the joblog would name a command that did not run
        if hash(text) != self.keys[task_number - 1]:
            raise FormatError(
                f"{self.name} was changed while its tasks ran: task {task_number} is a "
                "different one now (run it again: completed tasks are kept)"
            )
        return text

    def line_number_of_task(self, task_number: int) -> int:
        """Return the number of a task's line, which comments come before."""
        before = os.pread(self._fd, self._offsets[task_number - 1], 0)
        return before.count(b"\n") + 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _line_at(self, begin: int) -> bytes:
        line = os.pread(self._fd, _PIECE, begin)
        end = line.find(b"\n")
        while end < 0:
            piece = os.pread(self._fd, _LONGEST, begin + len(line))
            if not piece:
                return line
            line += piece
            end = line.find(b"\n")
        return line[: end + 1]

    def _index(self) -> None:
        lines = lines_of_task_file(self._file)
        for task in read_task_lines(lines, self.name, self._take_then):
            self._check(task)
            self.keys.append(hash(task.text))
            self._offsets.append(task.offset)
        # what stands before the first task is a comment
        self.suspects.extend(sorted(set(self._find_suspects()) - {0}))
        if not self.keys:
            raise UsageError(
                f"no task in {self.name}: write one command per line (weigh sweep)"
            )

    def _take_then(self, command: bytes) -> None:
        self.then = command

    def _find_suspects(self) -> Iterator[int]:
        """Yield the tasks with a sign of a secret: blocks are searched, not lines."""
        at = 0
        while block := os.pread(self._fd, _LONGEST, at).lower():
            for sign in _SIGNS:
                place = block.find(sign)
                while place >= 0:
                    # the task that begins last before the sign; once for each line
                    yield bisect_right(self._offsets, at + place)
                    end = block.find(b"\n", place + 1)
                    place = block.find(sign, end) if end >= 0 else -1
            if len(block) < _LONGEST:
                return
            at += len(block) - _OVERLAP

    def _check(self, task_line: TaskLine) -> None:
        if len(task_line.text) >= _WORD and _has_a_long_word(task_line.text):
            raise FormatError(
                f"{self.name}:{task_line.line}: command too long: "
                f"{len(task_line.text):,} of "
                f"{_WORD - 1:,} bytes (put it into a script)"
            )
        if not has_open_quote(task_line.text):
            return
        # a backslash at the end: a shell would take the line as if it had none
        escapes = len(task_line.text) - len(task_line.text.rstrip(b"\\"))
        if not escapes % 2 and does_shell_accept(task_line.text):
            return
        raise FormatError(
            f"{self.name}:{task_line.line}: a quote is never closed, or the line ends "
            "in a backslash (a task is one line)"
        )


def _has_a_long_word(text: bytes) -> bool:
    """Return whether *text* has a word too long for exec; a shell gets it as one."""
    return any(len(word) >= _WORD for word in plain_words(text) or [text])


def _open_task_file(file_path: str) -> BinaryIO:
    """Open a file so that it can be read again; copy a pipe to memory."""
    try:
        is_stdin = file_path == "-"
        file = open(0 if is_stdin else file_path, "rb", closefd=not is_stdin)  # noqa: SIM115
        # a pipe can be read once, and tasks are read when they start
        if file.seekable():
            return file
        with file:
            copy = os.fdopen(os.memfd_create("weigh-tasks"), "w+b")
            while piece := file.read(_LONGEST):
                copy.write(piece)
        copy.seek(0)
    except IsADirectoryError as error:
        what = f"{file_path} is a folder, not a task file"
        if os.path.isfile(os.path.join(file_path, "plan.json")):
            what = f"{file_path} is a plan, not a task file (weigh submit {file_path})"
        raise UsageError(what) from error
    except OSError as error:
        raise UsageError(cannot_read(file_path, error, _HOW)) from error
    return copy
