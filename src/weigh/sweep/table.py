"""The parameters of every task as a table: tab-separated, one line per task.

It is tab-separated rather than JSON Lines, because a spreadsheet, R, pandas, awk and
``cut`` can open it. The first column is ``Seq`` and the last ``Command``, as in GNU
parallel's joblog, so that the two can be joined by number or, if the task file was
edited since, by text. Numbers are as typed; `read_table` parses them as on the command
line.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from weigh.errors import FormatError
from weigh.model.plan import Task
from weigh.sweep.task_file import LONGEST_LINE
from weigh.sweep.values import typed_value

SEQ = "Seq"
COMMAND = "Command"


def table_header(names: Sequence[str]) -> str:
    """Return the first line of the table."""
    return _tab_separated_line((SEQ, *names, COMMAND))


def table_row(task: Task, texts: Mapping[str, str]) -> str:
    """Return the line of one task."""
    return _tab_separated_line((str(task.seq), *texts.values(), task.line))


def read_table(file_lines: Iterable[str]) -> Iterator[Task]:
    """Yield the tasks of a table.

    *file_lines* are of a file opened with ``newline=""``: a cell may contain line ends.

    Raises:
        FormatError: it is not such a table, or a row has other columns.
    """
    # Python's own limit is 131,072 characters, and a command may be longer
    csv.field_size_limit(LONGEST_LINE)
    rows = csv.reader(file_lines, "excel-tab", strict=True)
    try:
        names = next(rows, [])
        # a table without parameters has two columns
        if names[:1] != [SEQ] or names[1:][-1:] != [COMMAND]:
            raise FormatError(
                f"not a table of tasks: its first line is not {SEQ} ... {COMMAND}"
            )
        for cells in rows:
            yield _task_of_cells(names[1:-1], cells, rows.line_num)
    except csv.Error as error:
        raise FormatError(f"table of tasks, line {rows.line_num}: {error}") from error


def _task_of_cells(
    names: Sequence[str], cells: Sequence[str], line_number: int
) -> Task:
    # 18 digits, as in a joblog, fit into 64 bits
    if len(cells) != len(names) + 2 or not re.fullmatch("[0-9]{1,18}", cells[0]):
        raise FormatError(
            f"table of tasks, line {line_number}: {len(names) + 2} columns, a number "
            "first"
        )
    # parsed as on the command line, so that the values are the same
    values = map(typed_value, cells[1:-1])
    return Task(int(cells[0]), cells[-1], dict(zip(names, values, strict=True)))


def _tab_separated_line(cells: Sequence[str]) -> str:
    """Return the *cells* as a line, quoted only if necessary."""
    line = io.StringIO()
    # with this end of a line, a cell that contains either character is quoted
    csv.writer(line, "excel-tab", lineterminator="\r\n").writerow(cells)
    return line.getvalue().removesuffix("\r\n") + "\n"
