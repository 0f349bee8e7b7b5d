import os
import sys
import threading

import pytest

from weigh.flow.site.ask import ask_all, in_time, run_query_command


@pytest.mark.parametrize(
    ("words", "cwd", "trouble", "complaint"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 3"), None, None, "err"),
        (("sh", "-c", "exit 3"), None, None, "exit code 3 and no word"),
        # of several errors the fatal one
        (
            ("sh", "-c", "printf 's: error: dns\\ns: fatal: no source\\n'; exit 1"),
            None,
            None,
            "s: fatal: no source",
        ),
        (("no-such-command",), None, "no-such-command is not on this machine", ""),
        (("true",), "/nowhere", "cannot run true: there is no /nowhere", ""),
        # what it started is killed with it: test_scheduler_command
        (("sleep", "60"), None, "sleep did not answer within 0.5 seconds", ""),
    ],
)
def test_why_a_command_has_no_answer_is_known(
    words: tuple[str, ...], cwd: str | None, trouble: str | None, complaint: str
) -> None:
    reply = run_query_command(words, env=os.environ, cwd=cwd, patience=0.5)
    assert not reply.is_answer
    assert reply.trouble == trouble
    assert reply.complaint() == (trouble or complaint)


def test_output_that_is_no_utf_8_is_read_and_no_input_is_given() -> None:
    reply = run_query_command(("sh", "-c", r"cat; printf a\\377b"), env=os.environ)
    assert (reply.code, reply.out) == (0, r"a\xffb")


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
