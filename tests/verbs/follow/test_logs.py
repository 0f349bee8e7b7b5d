"""``weigh logs``: what the tasks print, by the numbers that status shows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

Weigh = Callable[..., tuple[int, str, str]]
Submit = Callable[..., None]
LINES = "".join(f"echo this is {number}\n" for number in range(1, 6))


def test_the_log_of_one_task_is_what_its_program_prints(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted("echo hello\n")
    assert weigh("logs", "last") == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("last", "x"), "weigh: TASK|failed: 'x' is not a whole number"),
        ((), "weigh: JOB is missing: weigh logs JOB   (see weigh logs --help)\n"),
    ],
)
def test_words_that_name_no_log_are_refused_in_one_line(
    weigh: Weigh, words: tuple[str, ...], line: str
) -> None:
    code, _, err = weigh("logs", *words)
    assert code == 2
    assert err.startswith(line)
    assert err.count("\n") == 1


def test_the_log_of_a_silent_task_is_that_of_its_element(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted("true\n")
    # the element writes its summary after the task's line in the joblog
    until(lambda: "1 of 1 task done" in weigh("logs", "last")[1])


def test_a_task_is_named_in_several_ways(weigh: Weigh, submitted: Submit) -> None:
    submitted(LINES)
    ways = (("last_4",), ("last", "4"), ("pp", "4"))
    assert {weigh("logs", *words) for words in ways} == {(0, "this is 4\n", "")}


def test_a_task_has_one_number_in_titles_file_names_and_status(
    weigh: Weigh, submitted: Submit
) -> None:
    submitted(f"{LINES}sh -c 'echo bad; exit 3'\n")
    out = weigh("logs", "last")[1].splitlines()
    titles = [line for line in out if line.startswith("==> ")]
    assert len(titles) == 6
    for number, title in enumerate(titles, start=1):
        assert title.startswith(f"==> task {number}: ")
        assert title.endswith(f"/{number}.out")
        words = f"this is {number}" if number < 6 else "bad"
        assert out[out.index(title) + 1] == words
    status = weigh("status", "last")[1]
    assert "task 6" in status
    assert "/6.out" in status


def test_a_resumed_task_keeps_its_number(weigh: Weigh, submitted: Submit) -> None:
    fails_once = "if [ -e again ]; then echo good; else touch again; exit 3; fi"
    submitted(f"{LINES}{fails_once}\n")
    assert weigh("resume", "pp", "--also", "bugs")[0] == 0
    assert weigh("status", "pp", "--wait")[0] == 0
    assert weigh("logs", "pp", "6") == (0, "good\n", "")
    (only,) = json.loads(weigh("logs", "pp", "6", "--json")[1])["files"]
    assert only["path"].endswith("/6.out")


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
