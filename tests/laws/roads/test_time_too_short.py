"""An element for whose tasks time is too short fails, says why, and is not repeated."""

import json

from roads import Road


def plan_too_short(road: Road) -> None:
    """Plan two tasks; their elements know of longer ones than the request is for."""
    road.program()
    road("sweep", "x=1..2", "--", "python3", "job.py", "--x", "{x}")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "20s", "--hours", "1")
    (of_queue,) = road.folder.glob("plan/tasks/queue_*/plan.json")
    plan = json.loads(of_queue.read_text())
    plan["kinds"][0]["used"]["time"] = 200.0
    of_queue.write_text(json.dumps(plan))


def test_tasks_that_nobody_starts_for_want_of_time_fail_their_job(road: Road) -> None:
    plan_too_short(road)
    road.submit("plan/tasks")
    assert road.wait() == {"INTERRUPTED": 2}
    assert not road.begun()

    why = "tasks 1-2 not started: the shortest needs 6 m 40 s, 4 m "
    assert why in " ".join(road("status", "last", ok=(0, 1)).split())
    report = " ".join(road("report", "last", ok=(0, 1)).split())
    assert "not started: the shortest needs 6 m 40 s, 4 m " in report
    assert road.called("status", "last", "--wait")[0] == 1

    assert "00:10:00" in road("resume", "last")
    assert road.wait() == {"COMPLETED": 2}
    road.check_screens()


def test_a_healer_grants_tasks_that_nobody_started_more_time(road: Road) -> None:
    plan_too_short(road)
    road.submit("plan/tasks", "--heal")
    road("status", "last", "--wait")
    assert road.states() == {"COMPLETED": 2}
    road.check_screens()


def test_a_time_limit_in_which_no_task_would_start_is_not_sent(road: Road) -> None:
    road.program()
    road("sweep", "x=1..12", "--", "python3", "job.py", "--x", "{x}")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1m")
    said = " ".join(road.submit("plan/tasks", "--time", "2m").split())
    assert (
        "00:02:30 instead of 00:02:00: a task starts only if 2 m 00 s is left" in said
    )
    assert road.wait() == {"COMPLETED": 12}


def test_a_time_limit_in_which_few_tasks_run_is_noted(road: Road) -> None:
    (road.folder / "tasks.txt").write_text("sleep 60\n" * 300)
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1m")
    words = " ".join(road.submit("plan/tasks", "--time", "10m", "--dry-run").split())
    assert "in 00:10:00 the elements run about 38% of the tasks: omit --time" in words


def test_a_run_by_hand_names_what_it_leaves(road: Road) -> None:
    road.program()
    road("sweep", "x=1..12", "--", "python3", "job.py", "--x", "{x}")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "5m")
    code, text = road.called("exec", "--pull", "plan/tasks", "--time", "5m")
    assert code == 124
    assert "12 tasks not started: the shortest needs 10 m 00 s, 4 m " in text
