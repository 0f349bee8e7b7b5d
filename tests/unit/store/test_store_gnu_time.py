import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.store.gnu_time import Timing, is_gnu_time, read_gnu_time

OUTPUT = """\
output of the command
\tCommand being timed: "python tag.py alice.txt"
\tUser time (seconds): 11.20
\tSystem time (seconds): 0.70
\tPercent of CPU this job got: 96%
\tElapsed (wall clock) time (h:mm:ss or m:ss): 1:02:12.40
\tAverage shared text size (kbytes): 0
\tMaximum resident set size (kbytes): 401408
\tFile system inputs: 2048
\tFile system outputs: 128
\tPage size (bytes): 4096
\tExit status: 0
"""


def test_every_figure_is_read_in_bytes_and_seconds() -> None:
    [block] = read_gnu_time(OUTPUT)
    assert block.number == 2
    assert block.timing == Timing(
        command="python tag.py alice.txt",
        user_time=11.2,
        system_time=0.7,
        wall_time=3732.4,
        max_process_memory=392 << 20,
        read_bytes=1 << 20,
        write_bytes=64 << 10,
        exit_code=0,
        signal=None,
    )


def test_a_signal_is_reported_by_the_line_before() -> None:
    [block] = read_gnu_time("Command terminated by signal 9\n" + OUTPUT[22:])
    assert block.timing is not None
    assert block.timing.signal == 9


def test_runs_of_one_file_are_kept_apart() -> None:
    second = OUTPUT.replace("alice", "bob").replace("Exit status: 0", "Exit status: 3")
    blocks = list(read_gnu_time(OUTPUT + second))
    timings = [block.timing for block in blocks]
    assert [(t.command[-9:], t.exit_code) for t in timings if t] == [
        ("alice.txt", 0),
        ("y bob.txt", 3),
    ]


def test_a_command_of_several_lines_is_read_whole() -> None:
    text = OUTPUT.replace("alice.txt", "-c\nprint()")
    [block] = read_gnu_time(text)
    assert block.timing is not None
    assert block.timing.command == "python tag.py -c\nprint()"


def test_windows_line_ends_are_taken_off() -> None:
    [block] = read_gnu_time(OUTPUT.replace("\n", "\r\n"))
    assert block.timing is not None
    assert block.timing.command == "python tag.py alice.txt"


def test_output_cut_short_names_the_missing_line() -> None:
    [block] = read_gnu_time(OUTPUT[: OUTPUT.index("\tFile system outputs")])
    assert block.timing is None
    assert "File system outputs" in (block.problem or "")


@given(figure=st.text(max_size=20))
def test_no_figure_whatever_is_more_than_a_problem(figure: str) -> None:
    [block] = read_gnu_time(OUTPUT.replace("401408", figure))
    assert block.timing or block.problem


GNU_TIME = shutil.which("time")


@pytest.mark.skipif(GNU_TIME is None, reason="GNU time is not installed")
def test_what_gnu_time_itself_prints_is_read(tmp_path: Path) -> None:
    out = tmp_path / "time.txt"
    for script in ("exit 3", "kill -9 $$"):
        argv = ["time", "-v", "-a", "-o", str(out), "sh", "-c", script]
        subprocess.run(argv, check=False)
    text = out.read_text()
    if not is_gnu_time(text):
        pytest.skip("this time is not GNU's")
    timings = [block.timing for block in read_gnu_time(text)]
    ends = [(t.command, t.exit_code, t.signal) for t in timings if t]
    assert ends == [("sh -c exit 3", 3, None), ("sh -c kill -9 $$", 0, 9)]
