import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.model.plan import Task
from weigh.sweep.table import read_table, table_header, table_row
from weigh.sweep.task_file import table_path
from weigh.sweep.values import typed_value

# the csv module is the spreadsheet here; it reads no NUL
CELLS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.dictionaries(st.sampled_from("abc"), CELLS), CELLS, st.integers(1, 10**9))
def test_a_spreadsheet_and_weigh_read_every_cell_back(
    texts: dict[str, str], line: str, seq: int
) -> None:
    written = table_header(tuple(texts)) + table_row(Task(seq, line), texts)
    read = list(csv.reader(io.StringIO(written, newline=""), "excel-tab"))
    assert read == [["Seq", *texts, "Command"], [str(seq), *texts.values(), line]]
    values: dict[str, Any] = {name: typed_value(text) for name, text in texts.items()}
    tasks = list(read_table(io.StringIO(written, newline="")))
    assert tasks == [Task(seq, line, values)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a table of tasks"),
        ("lr\tseed\n", "not a table of tasks"),
        ("Seq\n", "not a table of tasks"),
        ("Seq\tlr\tCommand\n1\t2\n", "line 2: 3 columns"),
        ("Seq\tlr\tCommand\none\t2\tx\n", "a number first"),
        ('Seq\tlr\tCommand\n1\t"2"x\tx\n', "line 2"),
        ('Seq\tlr\tCommand\n1\t"2', "line 2"),
    ],
)
def test_what_is_no_table_of_tasks_is_refused(text: str, words: str) -> None:
    with pytest.raises(FormatError) as refused:
        list(read_table(io.StringIO(text, newline="")))
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("task_file", "table"),
    [
        ("tasks.txt", "tasks.tsv"),
        ("tasks", "tasks.tsv"),
        ("a.b/tasks", "a.b/tasks.tsv"),
        ("v1.2.txt", "v1.2.tsv"),
        (".hidden", ".hidden.tsv"),
        ("/tmp/x/.t.txt", "/tmp/x/.t.tsv"),
    ],
)
def test_the_table_lies_next_to_the_task_file(task_file: str, table: str) -> None:
    assert table_path(task_file) == table
