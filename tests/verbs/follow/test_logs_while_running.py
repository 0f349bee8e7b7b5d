"""``weigh logs -f``: all that the tasks print, while they begin, fail and end.

The oracle is what the programs themselves write to files of the test.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import until

Weigh = Callable[..., tuple[int, str, str]]
Submit = Callable[..., None]
# two elements run at once, of which each pulls one task after the other
HALF = ("--cpus", str(max(1, len(os.sched_getaffinity(0)) // 2)))
# each line is printed, and kept in a file of its own
JOB = """\
import sys, time
number, wait = sys.argv[1], float(sys.argv[2])
with open(f"said.{number}", "a") as kept:
    for word in ("begins", "ends"):
        line = f"task {number} {word} {time.time_ns()}\\n"
        for each in (sys.stdout, kept):
            print(line, end="", file=each, flush=True)
        time.sleep(wait)
"""


def _printed_lines(folder: Path) -> list[str]:
    files = folder.glob("said.*")
    return sorted(line for file in files for line in file.read_text().splitlines())


def _lines_of_programs(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if not line.startswith("==> "))


WAITS = "until [ -e go ]; do sleep 0.1; done"


@contextmanager
def _followed(*words: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Follow a job by another process; what it prints is in a file."""
    path = Path("followed")
    argv = [sys.executable, "-m", "weigh", "logs", "-f", *words]
    with path.open("wb") as out, subprocess.Popen(argv, stdout=out) as process:
        try:
            yield process, path
        finally:
            process.kill()


def test_each_task_that_is_pulled_is_followed_to_its_end_and_one_that_waits_alone(
    weigh: Weigh, submitted: Submit
) -> None:
    """Two elements pull twelve tasks of .6 s from a queue."""
    Path("job.py").write_text(JOB)
    lines = "".join(f"python3 job.py {number} 0.3\n" for number in range(1, 13))
    submitted(lines, plan=HALF, wait=False)
    assert list(Path("plan/pp").glob("queue_*"))
    last = max(n for n in range(1, 13) if not Path(f"said.{n}").exists())
    with _followed("last") as (process, followed):
        code, out, _ = weigh("logs", "-f", f"last_{last}")
        assert (code, out) == (0, Path(f"said.{last}").read_text())
        assert process.wait(60) == 0

    said = _printed_lines(Path())
    assert len(said) == 24
    assert _lines_of_programs(followed.read_text()) == said
    # of a job that has ended the same is shown again
    assert _lines_of_programs(weigh("logs", "-f", "last")[1]) == said


def test_a_task_is_followed_into_its_next_attempts(submitted: Submit) -> None:
    submitted(f"echo first; {WAITS}; echo end\n", wait=False)
    with _followed("last") as (process, followed):
        until(lambda: "first" in followed.read_text(), "the first line")
        (first,) = Path().glob("plan/pp/log/*.out/1.out")
        # two attempts begin between two looks, as those that lacked memory
        first.with_name("1.2.out").write_text("second\n")
        first.with_name("1.3.out").write_text("third\n")
        until(lambda: "third" in followed.read_text())
        Path("go").touch()
        assert process.wait(60) == 0
        out = followed.read_text()

    assert [line for line in out.splitlines() if "==>" not in line][:3] == [
        "first",
        "second",
        "third",
    ]


def test_a_task_is_followed_into_the_job_that_resumes_it(
    weigh: Weigh, submitted: Submit
) -> None:
    once = "if [ -e again ]; then echo good; else touch again; echo bad; exit 3; fi"
    submitted(f"{once}\necho waits; {WAITS}; echo end\n", wait=False)
    with _followed("last") as (process, followed):
        until(lambda: "bad" in followed.read_text(), "the first line")
        # what is printed is there before the end is: until then it is not resumed
        joblogs = [*Path().glob("plan/*/log/*.joblog")]
        until(lambda: any("\t3\t" in one.read_text() for one in joblogs), "its end")
        code, _, err = weigh("resume", "last", "--also", "bugs")
        assert code == 0, err
        until(lambda: "good" in followed.read_text())
        Path("go").touch()
        assert process.wait(60) == 0
        out = followed.read_text()

    assert _lines_of_programs(out) == ["bad", "end", "good", "waits"]


def test_last_stays_the_job_that_it_was(submitted: Submit) -> None:
    submitted(f"echo first; {WAITS}; echo end\n", wait=False)
    with _followed("last") as (process, followed):
        until(lambda: "first" in followed.read_text(), "the first line")
        submitted("echo another\n", name="qq", wait=False)
        Path("go").touch()
        assert process.wait(60) == 0
        out = followed.read_text()

    assert out == "first\nend\n"


def test_a_task_of_the_queue_that_was_run_by_hand_is_shown_where_it_ran(
    weigh: Weigh, submitted: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = f'[ -n "$BY_HAND" ] || {WAITS}'
    lines = "".join(f"echo this is {number}; {waits}\n" for number in range(1, 13))
    submitted(lines, plan=HALF, wait=False)
    until(lambda: len([*Path().glob("plan/pp/log/*.out/*")]) == 2, "tasks to run")
    (queue,) = Path("plan/pp").glob("queue_*")
    monkeypatch.setenv("BY_HAND", "1")
    argv = ("exec", "--jobs", "4", "--pull", str(queue), "--joblog", "hand.joblog")
    assert weigh(*argv)[0] == 0
    assert len([*Path().glob("hand.out/*")]) == 10
    Path("go").touch()
    assert weigh("status", "last", "--wait")[0] == 0

    code, out, _ = weigh("logs", "-f", "last")

    said = sorted(f"this is {number}" for number in range(1, 13))
    assert (code, _lines_of_programs(out)) == (0, said)
