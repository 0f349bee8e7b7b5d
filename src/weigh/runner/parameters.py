"""The parameters of each task, from the table that ``weigh sweep`` wrote beside it."""

import os
from array import array

from weigh.errors import FormatError
from weigh.sweep.table import read_table

Value = int | float | str


class Parameters:
    """The rows of one table, read when they are asked for."""

    def __init__(self, path: str) -> None:
        """Find the rows; of a table that cannot be read there are none."""
        self._offsets = array("Q")
        try:
            self._file = open(path, "rb")  # noqa: SIM115
        except OSError:
            self._file = open(os.devnull, "rb")  # noqa: SIM115
        self._header = _text(self._file.readline())
        offset = self._file.tell()
        for line in self._file:
            self._offsets.append(offset)
            offset += len(line)

    def of(self, seq: int, command: str) -> dict[str, Value]:
        """Give a task's parameters; none where the task file was edited since."""
        if seq > len(self._offsets):
            return {}
        self._file.seek(self._offsets[seq - 1])
        row = _text(self._file.readline())
        try:
            task = next(read_table([self._header, row]), None)
        except FormatError:  # a cell with a line end in it, or no such table
            return {}
        known = task is not None and task.line == command
        return task.parameters if task is not None and known else {}

    def close(self) -> None:
        """Let the file go."""
        self._file.close()


def _text(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")
