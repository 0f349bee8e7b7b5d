"""``weigh logs``: what the tasks print, by the numbers that status shows."""

import json
from collections.abc import Callable
from pathlib import Path

from processes import until
from transcript import check_transcript

Weigh = Callable[..., tuple[int, str, str]]
Submit = Callable[..., None]
# what differs from call to call
MASKS = {
    r"/\S*/here/": "",
    r"CPU, .*": "CPU",
}


def test_logs_print_what_was_reviewed(weigh: Weigh, submitted: Submit) -> None:
    def given(words: str) -> None:
        verb, name, *lines = words.split(" ", 2)
        if verb == "wait":
            assert weigh("status", name, "--wait")[0] == 0
            return
        submitted(lines[0].replace("\\n", "\n") + "\n", name=name)

    path = Path(__file__).with_name("logs.transcript")
    check_transcript(path, weigh, MASKS, given)
    status = weigh("status", "five")[1]
    assert "task 6" in status
    assert "/6.out" in status


def test_the_log_of_a_silent_task_is_that_of_its_element(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted("true\n")
    # the element writes its summary after the task's line in the joblog
    until(lambda: "1 of 1 task done" in weigh("logs", "last")[1])


def test_of_many_tasks_those_that_printed_last_are_shown(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted("echo x\n" * 25)
    _, out, err = weigh("logs", "last")
    assert out.count("==> ") == 20
    assert err == (
        "weigh: 20 of 25 tasks, those that printed last (weigh logs last TASK)\n"
    )
    document = json.loads(weigh("logs", "last", "--json")[1])
    assert document["schema"] == "weigh.logs/1"
    paths = [Path(file["path"]) for file in document["files"]]
    assert [path.read_text() for path in paths] == ["x\n"] * 25


def test_a_task_that_succeeded_when_run_again_is_judged_by_its_last_attempt(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted("echo fine\n")
    (first,) = Path().glob("plan/pp/log/*.out/1.out")
    first.rename(first.with_name("1.2.out"))
    first.write_text("Traceback (most recent call last):\nValueError: bad\n")

    code, out, err = weigh("status", "pp")

    assert (code, err) == (0, "")
    assert "ends in" not in out
