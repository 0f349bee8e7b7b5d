import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import FormatError
from weigh.joblog import (
    parse_line,
    read_task_ends,
)

LINE = "1\t:\t1763700000.123\t     1.250\t0\t12\t0\t0\techo hello"


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
    assert parse_line(line).command == command


@pytest.mark.parametrize(
    "line",
    [
        "3",
        LINE.replace("1\t:", "x\t:"),
        LINE.replace("1\t:", "0\t:"),
        LINE.replace("1\t:", "9" * 5000 + "\t:"),
        LINE.replace("1763700000.123", "nan"),
        LINE.replace("1763700000.123", "1e300"),
        LINE.replace("1.250", "soon"),
        LINE.replace("1.250", "-1"),
        LINE.replace("\t0\t0\techo", "\t-3\t0\techo"),
    ],
)
def test_a_line_that_is_off_is_refused(line: str) -> None:
    with pytest.raises(FormatError):
        parse_line(line)


def test_a_carriage_return_of_the_command_stays() -> None:
    [(_, _, command)] = read_task_ends([f"{LINE}\r\n".encode()])
    assert command == b"echo hello\r"
