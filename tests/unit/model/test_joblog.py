import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.joblog import (
    HEADER,
    JoblogEntry,
    is_joblog,
    parse_line,
    read_joblog,
    read_task_ends,
)

LINE = "1\t:\t1763700000.123\t     1.250\t0\t12\t0\t0\techo hello"


def test_a_line_is_read_into_its_nine_columns() -> None:
    assert parse_line(LINE) == JoblogEntry(
        seq=1,
        host=":",
        started=1763700000.123,
        wall_time=1.25,
        sent=0,
        received=12,
        exit_code=0,
        signal=0,
        command="echo hello",
    )


@pytest.mark.parametrize(
    ("code", "signal", "succeeded"),
    [("0", "0", True), ("1", "0", False), ("0", "9", False), ("-1", "15", False)],
)
def test_only_exit_0_without_a_signal_is_success(
    code: str, signal: str, *, succeeded: bool
) -> None:
    entry = parse_line(f"1\t:\t1.0\t1.0\t0\t0\t{code}\t{signal}\ttrue")
    assert (entry.exit_code, entry.signal) == (int(code), int(signal))
    assert entry.succeeded is succeeded


@given(command=st.text(st.characters(exclude_characters="\n\0")))
def test_a_command_is_raw_to_the_end_of_its_line(command: str) -> None:
    line = LINE.replace("echo hello", command)
    [read] = read_joblog(f"{HEADER}\n{line}\n")
    assert read.entry is not None
    assert read.entry.command == command


def test_a_newline_in_a_command_was_written_as_nul() -> None:
    assert parse_line(LINE + "\0echo more").command == "echo hello\necho more"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("3", "only 1 of 9 columns"),
        (LINE.replace("1\t:", "x\t:"), "Seq is not a number"),
        (LINE.replace("1\t:", "0\t:"), "Seq is out of range"),
        (LINE.replace("1\t:", "9" * 5000 + "\t:"), "Seq is out of range"),
        (LINE.replace("1763700000.123", "nan"), "Starttime is not a time"),
        (LINE.replace("1763700000.123", "1e300"), "Starttime is not a time"),
        (LINE.replace("1.250", "soon"), "JobRuntime is not a time"),
        (LINE.replace("1.250", "-1"), "JobRuntime is not a time"),
        (LINE.replace("\t0\t0\techo", "\t-3\t0\techo"), "Exitval is out of range"),
    ],
)
def test_a_line_that_is_off_states_where(line: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse_line(line)


def test_a_torn_last_line_is_never_taken_for_a_shorter_command() -> None:
    *whole, incomplete = read_joblog(f"{HEADER}\n{LINE}\n{LINE[:-3]}")
    assert [line.number for line in whole] == [2]
    assert (incomplete.number, incomplete.entry) == (3, None)
    assert "incomplete" in (incomplete.problem or "")


def test_windows_line_ends_are_taken_off() -> None:
    [line] = read_joblog(f"{HEADER}\r\n{LINE}\r\n")
    assert line.entry is not None
    assert line.entry.command == "echo hello"


def test_a_carriage_return_of_the_command_stays() -> None:
    [line] = read_joblog(f"{HEADER}\n{LINE}\r\n")
    assert line.entry is not None
    assert line.entry.command == "echo hello\r"


def test_a_bad_line_does_not_hide_the_next() -> None:
    lines = list(read_joblog(f"{HEADER}\n335\t:\n\n{HEADER}\n{LINE}\n"))
    assert [(line.number, line.entry is None) for line in lines] == [
        (2, True),
        (5, False),
    ]


@given(text=st.text())
def test_no_text_whatever_is_more_than_a_problem(text: str) -> None:
    assert all(line.entry or line.problem for line in read_joblog(text))


def test_a_joblog_is_known_by_its_header() -> None:
    assert is_joblog(f"\ufeff{HEADER}\r\n")
    assert not is_joblog(LINE)


def test_the_quick_way_steps_over_a_torn_line_and_one_that_is_none() -> None:
    whole = f"{LINE}\r\n".encode()

    found = list(read_task_ends([HEADER.encode() + b"\n", whole, whole[:-4]]))

    assert found == [(1, True, b"echo hello")]
