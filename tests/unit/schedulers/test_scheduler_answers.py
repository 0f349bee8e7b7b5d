"""What schedulers print, read: what their rows and whole texts do not show."""

from pathlib import Path

import pytest
from captured_text import captured
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.errors import FormatError
from weigh.schedulers.gridengine import scheduler as gridengine
from weigh.schedulers.slurm import scheduler as slurm
from weigh.schedulers.words import count_elements, format_ranges, parse_ranges

# squeue 22.05 -h -r -t all -o '%F|%K|%T|%S|%N|%r'
SQUEUE = captured("slurm-22.05-squeue-elements.txt")
# squeue 25.11 -h -r -t all -o '%F|%K|%T|%S|%N|%r|%o|%k|.'
TWO_LINES = """\
1|N/A|RUNNING|1795248320|cn1|None|(null)|two
lines|.
2|0|PENDING|N/A||Priority|/p/sent/wabc/job.sh|weigh:wabc|.
"""
QSTAT = captured("gridengine-8.1.9-qstat-states.xml")
QHOST_HEAD = (
    "HOSTNAME                ARCH         NCPU  LOAD  MEMTOT  MEMUSE  SWAPTO  SWAPUS\n"
    "-------------------------------------------------------------------------------\n"
    "global                  -               -     -       -       -       -       -\n"
)


def test_worked_examples_of_answers(tmp_path: Path) -> None:
    here = Path(__file__).parent
    names: dict[str, object] = {"two_lines": TWO_LINES, "head": QHOST_HEAD}
    names |= {"job_ad": (here / "htcondor_job.ad.txt").read_text(), "folder": tmp_path}
    check_session(here / "scheduler_answers.session", names)


@pytest.mark.parametrize("text", [SQUEUE, TWO_LINES], ids=["states", "comments"])
def test_a_squeue_that_is_cut_off_is_no_answer(text: str) -> None:
    for end in range(1, len(text)):
        if not text[:end].endswith("\n"):
            with pytest.raises(FormatError, match="cut off"):
                slurm.COMMANDS.parse_queue(text[:end])


def test_a_qstat_that_is_cut_off_is_noticed() -> None:
    for end in range(10, len(QSTAT) - 2, 50):
        with pytest.raises(FormatError):
            gridengine.COMMANDS.parse_queue(QSTAT[:end])


@given(st.integers(0, 500), st.integers(0, 500), st.integers(1, 20))
def test_a_range_counts_as_pythons_does(first: int, more: int, step: int) -> None:
    oracle = len(range(first, first + more + 1, step))
    assert count_elements(f"{first}-{first + more}:{step}") == oracle


@given(st.sets(st.integers(0, 500)), st.integers(1, 50))
def test_ranges_read_back_as_they_were(numbers: set[int], throttle: int) -> None:
    text = format_ranges(numbers)
    assert sorted(parse_ranges(text)) == sorted(numbers)
    assert not numbers or count_elements(f"{text}%{throttle}") == len(numbers)
