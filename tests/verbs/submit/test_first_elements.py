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
    assert "sized from 2 first tasks: 600 MiB -> 300 MiB" in weigh("status", job)[1]
    assert len(list(weigh.folder.glob("t?"))) == 6


def test_some_of_each_kind_run_first(here: Weigh) -> None:
    small = [HOLDS.format(100, f"{n} && : small") for n in range(5)]
    large = [HOLDS.format(300, f"l{n} && : large") for n in range(5)]
    plan = here.plan(*small, *large, memory="500M")

    job, held = submit(here, plan, "--first", "1")

    assert held == 8
    assert here.finish(job) == {"COMPLETED": 10}
    words = " ".join(here("status", job)[1].split())
    assert "4 tasks sized from 2 first tasks: 500 MiB -> 200 MiB" in words
    assert "4 tasks sized from 2 first tasks: 500 MiB -> 450 MiB" in words


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
    assert weigh.finish(job) == {"FAILED": 1}
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
        (("--first", "1", "--runner", "parallel"), "needs weigh exec"),
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
