"""What schedulers print, read: captured from real ones and from their manuals."""

import pytest
from captured_text import captured
from hypothesis import given
from hypothesis import strategies as st
from some_requests import a_submitted_job

from weigh.errors import FormatError
from weigh.schedulers.gridengine import scheduler as gridengine_commands
from weigh.schedulers.slurm import scheduler as slurm_commands
from weigh.schedulers.words import format_ranges, parse_ranges

# squeue 22.05 -h -r -t all -o '%F|%K|%T|%S|%N|%r'
SQUEUE = captured("slurm-22.05-squeue-elements.txt")
# sacct 22.05 -X -n -P -o JobID,State,ExitCode,DerivedExitCode,Start,End,NodeList,Reason
SACCT = captured("slurm-22.05-sacct-ended.txt")
QSTAT = captured("gridengine-8.1.9-qstat-states.xml")


def qacct(*, failed: str, status: str, task: str = "undefined", job: str = "1") -> str:
    return (
        "==============================================================\n"
        "qname        serial              \n"
        "hostname     vm                  \n"
        f"jobnumber    {job}                   \n"
        f"taskid       {task}                   \n"
        "start_time   Sat Nov 21 07:51:59 2026\n"
        "end_time     11/21/2026 07:52:09.250\n"
        f"failed       {failed}\n"
        f"exit_status  {status}\n"
        "ru_maxrss    207.828KB\n"
    )


def test_squeue_s_lines_are_states_by_element() -> None:
    states = slurm_commands.COMMANDS.parse_queue(SQUEUE)

    assert [states["5"][n].state for n in range(3)] == [
        "COMPLETED",
        "FAILED",
        "PENDING",
    ]
    assert states["6"][0].started == 1795248321.0
    assert states["6"][0].node == "cn2"
    assert set(states["7"]) == {3, 4, 5, 9}
    assert states["8"][0].state == "RUNNING"
    assert states["9"][0].started is None


def test_a_reason_is_kept_where_there_is_one() -> None:
    states = slurm_commands.COMMANDS.parse_queue(SQUEUE)

    assert states["5"][2].reason == "JobArrayTaskLimit"
    assert states["5"][0].reason is states["5"][1].reason is None


@pytest.mark.parametrize(
    ("marks", "is_other"),
    [
        ("/home/u/.weigh/ab12/job.sh|weigh:ab12", False),
        ("/spool/script|weigh:ab12", False),
        ("/home/u/ab12.sh|a | b", False),
        ("/home/u/other.sh|my own | comment", False),
        ("/home/u/other.sh|mine |", False),
        ("/home/u/other.sh|two\nlines", False),
        ("/home/u/other\n.sh|one\n7|0|RUNNING", False),
        ("/home/u/other.sh|", True),
        ("(null)|(null)", True),
        ("/spool/script|weigh:cd34", True),
        ("/spool/script|of a user weigh:cd34", True),
    ],
)
def test_a_job_under_a_known_id_with_another_token_is_not_ours(
    marks: str, *, is_other: bool
) -> None:
    line = f"5|0|RUNNING|1795248320|cn1|None|{marks}|.\n"
    found = slurm_commands.COMMANDS.with_other_token(line, {"5": "ab12", "6": "ef"})
    assert found == (frozenset({"5"}) if is_other else frozenset())
    assert list(slurm_commands.COMMANDS.parse_queue(line)) == ["5"]
    assert slurm_commands.COMMANDS.parse_queue(line)["5"][0].state == "RUNNING"


# squeue 25.11 -h -r -t all -o '%F|%K|%T|%S|%N|%r|%o|%k|.'
TWO_LINES = """\
1|N/A|RUNNING|1795248320|cn1|None|(null)|two
lines|.
2|0|PENDING|N/A||Priority|/p/sent/wabc/job.sh|weigh:wabc|.
"""


def test_a_comment_of_two_lines_is_that_of_one_job() -> None:
    states = slurm_commands.COMMANDS.parse_queue(TWO_LINES)
    found = "1|(null)|two\nlines|.\n2|/p/sent/wabc/job.sh|a\nweigh:wabc|.\n"

    assert (states["1"][0].state, states["2"][0].state) == ("RUNNING", "PENDING")
    assert slurm_commands.COMMANDS.parse_found(found, "wabc") == "2"


@pytest.mark.parametrize("length", [60, len(TWO_LINES) - 1, len(TWO_LINES) - 4])
def test_a_list_whose_last_comment_is_cut_off_is_no_answer(length: int) -> None:
    with pytest.raises(FormatError, match="cut off"):
        slurm_commands.COMMANDS.parse_queue(TWO_LINES[:length])


def test_sacct_s_lines_are_states_by_element() -> None:
    states = slurm_commands.COMMANDS.parse_ended(SACCT)

    assert states["5"][1].exit_code == 3
    assert states["5"][2].state == "CANCELLED"
    assert states["5"][2].node is None
    assert states["6"][0].state == "OUT_OF_MEMORY"
    assert states["9"][0].state == "NODE_FAIL"
    assert states["7"][0].reason == "a step ran out of memory"


def test_a_squeue_that_is_cut_off_is_noticed() -> None:
    for end in range(1, len(SQUEUE)):
        if not SQUEUE[:end].endswith("\n"):
            with pytest.raises(FormatError):
                slurm_commands.COMMANDS.parse_queue(SQUEUE[:end])


def test_a_qstat_that_is_cut_off_is_noticed() -> None:
    for end in range(10, len(QSTAT) - 2, 50):
        with pytest.raises(FormatError):
            gridengine_commands.COMMANDS.parse_queue(QSTAT[:end])


def test_qstat_s_tasks_count_from_nought() -> None:
    states = gridengine_commands.COMMANDS.parse_queue(QSTAT)

    assert states["1"][0].state == "RUNNING"
    assert states["1"][0].node == "vm"
    assert {n for n, one in states["1"].items() if one.state == "PENDING"} == {
        2,
        5,
        8,
        11,
    }


def test_qstat_s_letters_are_states() -> None:
    states = gridengine_commands.COMMANDS.parse_queue(QSTAT)

    assert (states["2"][0].state, states["2"][0].reason) == ("PENDING", "held")
    assert (states["3"][0].state, states["3"][0].reason) == ("FAILED", "in error state")
    assert states["4"][0].reason == "being deleted"


def test_times_of_either_form_are_read() -> None:
    one = gridengine_commands.COMMANDS.parse_ended(qacct(failed="0", status="0"))["1"][
        0
    ]

    assert one.started is not None
    assert one.ended is not None
    assert one.ended - one.started == 10.25


def test_elements_to_cancel_are_named_as_each_scheduler_does() -> None:
    job = a_submitted_job(
        elements=9,
        tasks=9,
    )

    assert slurm_commands.COMMANDS.cancel_argv(job, (0, 1, 2, 5)) == (
        "scancel",
        "7_[0-2,5]",
    )
    assert gridengine_commands.COMMANDS.cancel_argv(job, (0, 1, 2, 5)) == (
        "qdel",
        "7.1-3",
        "7.6",
    )
    assert slurm_commands.COMMANDS.cancel_argv(job, None) == ("scancel", "7")


@given(st.sets(st.integers(min_value=0, max_value=500)))
def test_ranges_read_back_as_they_were(numbers: set[int]) -> None:
    assert sorted(parse_ranges(format_ranges(numbers))) == sorted(numbers)
