import itertools
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weigh.sweep.grid import make_grid
from weigh.sweep.quoting import shell_line
from weigh.sweep.tasks import make_entries
from weigh.sweep.values import parse_axis

# every character a word can hold, bytes that are no UTF-8 among them
WORDS = st.text(
    st.one_of(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
        st.sampled_from(
            list(" \t\n\r\\'\"$`!*?~#&;|<>(){}[]=%^,\x0b\x0c\x1c\x85\u2028")
        ),
        st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF),
    )
)


def run_by_bash(line: str, locale: str) -> list[bytes]:
    """Give the arguments that bash makes of *line*, as bytes."""
    done = subprocess.run(
        ["bash", "-c", line],
        env={"LC_ALL": locale, "PATH": "/usr/bin:/bin", "HOME": "/home/nobody"},
        capture_output=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split(b"\0")[:-1]


@example(words=["", "\n", "~", "a\tb", "'", "\\'\n", "$HOME", "\udcff", "\r\n7"])
@given(words=st.lists(WORDS, min_size=1))
def test_bash_reads_every_word_back(words: list[str]) -> None:
    line = shell_line(["printf", "%s\\0", *words])
    expected = [word.encode("utf-8", "surrogateescape") for word in words]
    assert run_by_bash(line, "C") == expected
    assert run_by_bash(line, "C.UTF-8") == expected


@given(st.lists(WORDS, min_size=1, max_size=4, unique=True), WORDS)
def test_bash_gives_each_task_the_words_that_were_meant(
    values: list[str], prefix: str
) -> None:
    quoted = ",".join("'" + value.replace("'", "''") + "'" for value in values)
    # a dollar before a field makes it the shell's own
    word = prefix.replace("{", "(").rstrip("$") + "{x}"
    grid = make_grid([parse_axis(f"x={quoted}")])
    argv = ("printf", "%s\\0", word, "{x}")
    # one call of bash for all: a task's line has no end of a line in it
    tasks = [entry.task.line for entry in make_entries(grid, range(len(values)), argv)]
    expected = itertools.chain(*((word.replace("{x}", one), one) for one in values))
    meant = [text.encode("utf-8", "surrogateescape") for text in expected]
    assert run_by_bash("\n".join(tasks), "C.UTF-8") == meant


@given(st.lists(WORDS, min_size=1))
def test_a_task_is_one_line_of_utf_8_for_every_reader(words: list[str]) -> None:
    line = shell_line(words)
    assert line.splitlines() == [line]
    assert line.encode().decode() == line
    assert line[0] not in "# \ufeff"


@pytest.mark.parametrize("name", ["A=1", "time", "if", "my program", "naïve", "-x"])
def test_the_first_word_is_the_program_whatever_it_is_called(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / name).write_text('#!/bin/sh\nprintf "%s\\0" "$(basename -- "$0")" "$@"\n')
    (folder / name).chmod(0o755)
    line = f"PATH={folder}:$PATH; " + shell_line([name, "B=2"])
    assert run_by_bash(line, "C.UTF-8") == [name.encode(), b"B=2"]


def test_plain_words_are_left_plain() -> None:
    line = "python run.py --lr=1e-3 out/a_b.txt"
    assert shell_line(line.split()) == line
