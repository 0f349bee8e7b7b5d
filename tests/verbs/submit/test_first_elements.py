"""``weigh submit --first N``: the other tasks are sized from the first of each kind."""

import json
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import mainly

HOLDS = (
    "python3 -c 'import time; x = b\"1\" * ({} << 20); time.sleep(0.5)' && touch t{}"
)


def submit(weigh: Weigh, plan: str, *words: str) -> tuple[str, int]:
    """Return the job of the first tasks, and how many wait."""
    code, out, err = weigh("submit", "--json", "--on", weigh.scheduler, plan, *words)
    assert code == 0, err
    document = json.loads(out)
    return document["job"]["id"], document["held"]


def logs() -> str:
    """Return what all healers printed."""
    return "".join(p.read_text() for p in Path("plan").glob("*/sent/*/log/*.out"))


def requests(weigh: Weigh, job: str) -> list[int]:
    """Return the memory that each job of the plan requested, in MiB."""
    code, out, err = weigh("report", job, "--json")
    assert code == 0, err
    return [one["memory"] >> 20 for one in json.loads(out)["jobs"]]


@mainly("slurm", "gridengine")
def test_the_others_are_sized_from_the_first(weigh: Weigh) -> None:
    weigh.needs_waiting()
    plan = weigh.plan(*(HOLDS.format(200, n) for n in range(6)), memory="600M")

    job, held = submit(weigh, plan, "--first", "2")

    assert held == 4
    assert weigh.finish(job) == {"COMPLETED": 6}
    assert "sized from 2 first tasks: 620 MiB -> 300 MiB" in weigh("status", job)[1]
    assert len(list(weigh.folder.glob("t?"))) == 6


def test_the_largest_input_is_among_the_first(here: Weigh) -> None:
    for number, size in enumerate((10, 900, 20, 500, 30)):
        Path(f"in{number}").write_bytes(b"x" * (size << 10))
    plan = here.plan(*(f"cat in{n} >out{n}" for n in range(5)))

    code, out, err = here("submit", "--on", "local", plan, "--first", "2")

    assert code == 0, err
    assert (
        "2 of 5 tasks run first, of all sizes by the size of their files" in out + err
    )
    job = here.status("p")["jobs"][0]
    assert here.finish(job) == {"COMPLETED": 5}


def test_the_others_of_a_queue_are_pulled(here: Weigh) -> None:
    lines = [f"touch t{n}" for n in range(40)]
    plan = here.plan(*lines, together=4, words=("--hours", "1"))

    job, held = submit(here, plan, "--first", "3")

    assert held == 37
    assert here.finish(job) == {"COMPLETED": 40}
    assert len(list(Path.cwd().glob("t?*"))) >= 40
    assert list(Path("plan/p/resume_1").glob("queue_*"))


@mainly("slurm")
def test_a_first_task_that_failed_holds_the_others(weigh: Weigh) -> None:
    weigh.needs_waiting()
    plan = weigh.plan("python3 -c 'print(1 / 0)'", "python3 -c 'print(1 / 0)' && ls")

    job, _ = submit(weigh, plan, "--first", "1")

    until(lambda: "the others were not sent: task " in logs())
    assert weigh.finish(job) == {"FAILED": 1, "INTERRUPTED": 1}
    answer = weigh.resume(job)
    assert len(answer["again"]) == 1  # a person sends them all the same


def test_a_plan_that_was_not_submitted_stays_as_it_was(here: Weigh) -> None:
    plan = here.plan("true", "true", "true")
    before = Path(plan, "plan.json").read_bytes()

    assert here("submit", "--on", "local", plan, "--first", "1", "--dry-run")[0] == 0

    assert Path(plan, "plan.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--first", "2"), "none would wait"),
        (("--first", "1", "--stage-out", "x"), "staging"),
        (("--first", "1", "--no-heal"), "omit --no-heal"),
        (("--first", "0"), "--first"),
    ],
)
def test_a_first_that_cannot_be_is_refused(
    here: Weigh, words: tuple[str, ...], why: str
) -> None:
    code, _, err = here("submit", here.plan("true", "true"), "--on", "local", *words)

    assert code == 2
    assert why in err


def test_tasks_that_were_not_sent_are_counted_on_each_screen(here: Weigh) -> None:
    """While the first ones run, and when these have failed."""
    plan = here.plan(
        *(f"until [ -e go ]; do sleep 0.1; done; exit {n}" for n in "9" * 9)
    )
    job, _ = submit(here, plan, "--first", "3", "--throttle", "1")
    here.wait_for(job, lambda one: "RUNNING" in one["tasks"])

    listed = json.loads(here("status", "--json")[1])["jobs"][0]
    report = json.loads(here("report", job, "--json")[1])

    assert listed["tasks"] == {"RUNNING": 1, "PENDING": 8}
    assert sum(listed["tasks"].values()) == listed["total"] == 9
    assert report["states"] == {"RUNNING": 1, "PENDING": 8}
    Path("go").touch()
    here.wait_for(job, lambda one: one["healing"]["stopped"] is not None)
    assert here.status(job)["tasks"] == {"FAILED": 3, "INTERRUPTED": 6}
    report = json.loads(here("report", job, "--json")[1])
    assert report["states"] == {"FAILED": 3, "INTERRUPTED": 6}


@pytest.mark.parametrize("flags", [(), ("--pending",)])
def test_the_job_that_would_send_the_rest_is_cancelled_and_named(
    here: Weigh, flags: tuple[str, ...]
) -> None:
    waits = "until [ -e go ]; do sleep 0.1; done"
    job, _ = submit(
        here, here.plan(*(f"{waits}; true {n}" for n in range(4))), "--first", "1"
    )
    here.wait_for(job, lambda one: "RUNNING" in one["tasks"])
    healer = here.status(job)["healing"]["healer"]

    _, out, _ = here("cancel", job, *flags)
    Path("go").touch()

    assert f"cancelled {healer} (p-heal)" in out
    here.wait_for(job, lambda one: one["healing"]["state"] == "CANCELLED")
    assert here.finish(job)["INTERRUPTED"] == 3


def test_a_report_judges_what_the_others_requested(here: Weigh) -> None:
    plan = here.plan(*(HOLDS.format(100, n) for n in range(4)), memory="900M")
    job, _ = submit(here, plan, "--first", "1")
    here.finish(job)

    measures = json.loads(here("report", job, "--json")[1])["measures"]

    requested = {one["name"]: one["requested"] for one in measures}
    assert requested["memory"] < 400 << 20
