"""The summary of a run: lines of 80 columns that break where a reader would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import PeakMemory, Record, RunOutcome, SampleSeries, Usage
from weigh.render.printable import short_command
from weigh.render.record_lines import render_summary
from weigh.units import MIB

SIZES = st.integers(1, 900).map(lambda size: round(size * 1.037 * MIB))


@given(low=SIZES, value=SIZES, high=SIZES, time=st.floats(0.01, 1e5))
def test_the_line_of_memory_breaks_before_its_course(
    low: int, value: int, high: int, time: float
) -> None:
    low, value, high = sorted((low, value, high))
    peak = PeakMemory(value, low, high, None, None, None, "pages", time=time)
    usage = Usage(wall_time=2 * time, peak_memory=peak, growing=False)
    series = SampleSeries(
        t=tuple(2 * time * n / 50 for n in range(51)),
        memory=tuple(round(value * min(1, n / 25)) for n in range(51)),
    )
    record = Record(id="a" * 12, command=("x",), started="", usage=usage, series=series)
    lines = render_summary(record).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  memory"))
    assert max(map(len, lines)) <= 80
    more = [line.strip() for line in lines[at + 1 :] if line.startswith(" " * 11)]
    assert all(line.startswith("peak at ") for line in more)
    assert " ".join([lines[at], *more]).count("peak at") == 1


def test_how_a_run_ended_is_written_with_that_word_once() -> None:
    record = Record(
        id="a" * 12,
        command=("x",),
        started="",
        state="FAILED",
        signal=11,
        outcome=RunOutcome("ended by SIGSEGV"),
        usage=Usage(wall_time=1.0),
    )
    (line,) = [one for one in render_summary(record).splitlines() if "SIGSEGV" in one]
    assert line.split() == ["ended", "by", "SIGSEGV"]


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["/home/me/env/bin/python", "/home/me/train.py", "-x"], "python train.py -x"),
        (["python3", "train.py", "/data/a"], "python3 train.py /data/a"),
        (["/bin/sh", "-c", "/opt/env/bin/python /a/b.py > /c"], "python b.py > /c"),
        (["/opt/my tool/run", "x"], "'/opt/my tool/run' x"),
        ([".venv/bin/python", "code/train.py"], "python train.py"),
        (["ls", "/"], "ls /"),
        (["cat", "/etc/hosts"], "cat /etc/hosts"),
        (["../run"], "run"),
        (["./train.py"], "./train.py"),
    ],
)
def test_lists_name_program_and_script_without_folders(
    command: list[str], shown: str
) -> None:
    assert short_command(command) == shown
