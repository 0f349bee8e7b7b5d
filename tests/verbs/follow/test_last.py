"""Names of jobs, ``last`` after ``weigh exec``, ``scan`` and ``run``, or a job runs."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
from processes import until

Weigh = Callable[..., tuple[int, str, str]]
TASKS = "true\nsh -c 'echo no luck; exit 3'\ntrue\n"


def test_an_exec_run_has_a_report_of_all_its_tasks_and_attempts(weigh: Weigh) -> None:
    Path("tasks.txt").write_text(TASKS)
    assert weigh("exec", "-q", "tasks.txt")[0] == 1
    for name in ("last", "tasks.txt", "tasks.txt.joblog"):
        code, out, err = weigh("report", name)
        assert (code, err) == (0, ""), name
        assert "tasks.txt   3 tasks, 2 completed, 1 failed" in out, name
        assert "failed    task 2: no luck" in out, name
    said = (
        "weigh: no job was submitted from here: the last run is weigh exec tasks.txt "
        "(weigh report last)\n"
    )
    for verb in ("status", "logs", "resume", "cancel"):
        assert weigh(verb, "last") == (2, "", said), verb

    weigh("exec", "-q", "--resume-failed", "tasks.txt")
    rows = json.loads(weigh("report", "tasks.txt", "--json")[1])["rows"]
    assert [(row["task"], row["attempts"]) for row in rows] == [(1, 1), (2, 2), (3, 1)]


def test_a_joblog_of_another_program_is_reported_by_its_times(weigh: Weigh) -> None:
    Path("t.joblog").write_text(
        "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
        "1\t:\t1795713793.687\t     4.000\t0\t0\t0\t0\ttrue\n"
        "2\t:\t1795713793.687\t     2.000\t0\t0\t1\t0\tfalse\n"
    )
    out = weigh("report", "t.joblog")[1]
    assert "2 tasks, 1 completed, 1 failed" in out
    assert "3.00 s     4.00 s" in out


def test_a_task_file_that_did_not_run_is_named_with_the_way_to_run_it(
    weigh: Weigh,
) -> None:
    Path("new.txt").write_text("true\n")
    code, out, err = weigh("report", "new.txt")
    assert (code, out) == (2, "")
    assert err.startswith("weigh: new.txt did not run yet: weigh exec new.txt")


def test_last_is_the_newest_of_job_and_exec_run(
    weigh: Weigh, submitted: Callable[..., None]
) -> None:
    submitted("true\ntrue\n")
    for name in ("pp.txt", "last"):  # a submitted task file means its job
        assert "pp local-1   2 tasks" in weigh("report", name)[1]
    # its elements are no runs of exec
    assert not Path(".weigh/execs.jsonl").exists()
    Path("tasks.txt").write_text("sleep .1\nsleep .2\nsleep .1\n")
    assert weigh("exec", "-q", "tasks.txt")[0] == 0
    assert "tasks.txt   3 tasks" in weigh("report", "last")[1]
    assert "3 runs" in weigh("request", "last")[2]


def test_after_a_scan_last_is_all_of_its_sizes(weigh: Weigh) -> None:
    assert weigh("scan", "n=1,2", "--", "sh", "-c", "echo {n}")[0] == 0
    assert "2 runs, 2 completed" in weigh("report", "last")[1]
    assert "from 2 runs" in weigh("request", "last")[2]
    weigh("run", "-q", "--", "true")
    assert "1 run, 1 completed" in weigh("report", "last")[1]


VERBS = ("status", "logs", "report", "resume", "cancel")


def test_a_plan_submitted_under_another_name_keeps_its_own(
    weigh: Weigh, submitted: Callable[..., None]
) -> None:
    submitted("true\n", "--name", "renamed")
    for verb, name in product(VERBS, ("pp", "plan/pp", "renamed", "last")):
        code, out, err = weigh(verb, name)
        assert (code, err) == (0, ""), (verb, name)
        assert "renamed" in out or verb in {"logs", "cancel"}, (verb, name)


@pytest.mark.parametrize("plan", [("--node", "2"), ("--node", "1", "--hours", "0")])
def test_status_and_report_count_the_same_states(
    weigh: Weigh, submitted: Callable[..., None], plan: tuple[str, ...]
) -> None:
    wait = "until [ -e go ]; do sleep 0.1; done"
    submitted("true\n" * 8 + f"touch begun; {wait}\n" * 4, plan=plan, wait=False)
    until(Path("begun").exists)
    shown = []
    for verb in ("status", "report", "status"):
        document = json.loads(weigh(verb, "last", "--json")[1])
        states = (
            document["jobs"][0]["tasks"] if verb == "status" else document["states"]
        )
        shown.append({state: number for state, number in states.items() if number})
    Path("go").touch()
    assert weigh("status", "last", "--wait")[0] == 0
    if shown[0] == shown[2]:  # else a task began in between
        assert shown[1] == shown[0]
