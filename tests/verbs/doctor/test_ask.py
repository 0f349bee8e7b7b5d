import os
import sys
import threading
import time
from pathlib import Path

import pytest

from weigh.flow.site.ask import ask_all, in_time, run_query_command


def test_what_a_command_states_comes_back() -> None:
    reply = run_query_command(
        ("sh", "-c", "echo out; echo err >&2; exit 3"), env=os.environ
    )
    assert (reply.code, reply.out, reply.err) == (3, "out\n", "err\n")
    assert not reply.is_answer
    assert reply.complaint() == "err"


def test_of_several_errors_the_fatal_one_is_the_complaint() -> None:
    printed = "echo 'sinfo: error: resolve' >&2; echo 'sinfo: fatal: no source' >&2"
    reply = run_query_command(("sh", "-c", f"{printed}; exit 1"), env=os.environ)
    assert reply.complaint() == "sinfo: fatal: no source"


def test_a_command_that_is_not_there_is_a_trouble() -> None:
    reply = run_query_command(("no-such-command-here",), env=os.environ)
    assert reply.trouble == reply.complaint()
    assert reply.complaint() == "no-such-command-here is not on this machine"


def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    script = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/child; wait"
    reply = run_query_command(("sh", "-c", script), env=os.environ, patience=0.5)
    assert reply.trouble == "sh did not answer within 0.5 seconds"
    child = int((tmp_path / "child").read_text())
    stat = Path(f"/proc/{child}/stat")

    def has_ended() -> bool:
        return (
            not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
        )

    deadline = time.monotonic() + 60  # the signal is sent, and takes its time
    while not has_ended():
        assert time.monotonic() < deadline, "the child lives"
        time.sleep(0.01)


def test_a_folder_that_is_gone_is_not_taken_for_a_command_that_is() -> None:
    reply = run_query_command(("true",), env=os.environ, cwd="/no/such/folder")
    assert reply.complaint() == "cannot run true: there is no /no/such/folder"


def test_output_that_is_no_utf_8_is_read() -> None:
    reply = run_query_command(("printf", r"a\377b"), env=os.environ)
    assert reply.out == r"a\xffb"


def test_a_command_gets_no_input_and_prompts_nobody() -> None:
    assert run_query_command(("cat",), env=os.environ).out == ""


def test_replies_are_in_the_order_of_the_questions() -> None:
    commands = [("echo", str(number)) for number in range(20)]
    replies = ask_all(commands, env=os.environ, run_command=run_query_command)
    assert [int(reply.out) for reply in replies] == list(range(20))


def test_a_call_that_hangs_is_none_and_the_others_are_not() -> None:
    never = threading.Event()
    try:
        results = in_time([lambda: 1, lambda: int(never.wait()), lambda: 3], patience=1)
    finally:
        never.set()
    assert results == [1, None, 3]


def test_an_error_in_a_call_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        in_time([lambda: sys.maxsize // 0], patience=5)
