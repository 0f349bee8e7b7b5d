"""--then COMMAND: it runs once, when all tasks of a plan are done, in any round."""

import json
from pathlib import Path

import pytest
from following import Weigh
from rigs import mainly

from weigh.errors import SchedulerError
from weigh.flow.follow import dependency
from weigh.flow.here import Here

ONCE = "[ -e once ] || { touch once; exit 9; }; echo task >>order"
BUG = "[ -e fixed ] && echo task >>order"
GATHER = "echo gathered $(wc -l <order) >>order"


def submitted(weigh: Weigh, plan: str, *words: str) -> tuple[str, str]:
    """Submit a plan with what follows it; return the ids of both jobs."""
    weigh.needs_waiting()
    words = ("--json", "--on", weigh.scheduler, "--then", GATHER, *words)
    code, out, err = weigh("submit", plan, *words)
    assert code == 0, err
    document = json.loads(out)
    return document["job"]["id"], document["then"]


@mainly("slurm")
def test_the_command_runs_once_after_the_healed_rounds(weigh: Weigh) -> None:
    plan = weigh.plan("sleep 1; echo task >>order", ONCE, name="a")

    first, then = submitted(weigh, plan, "--heal")

    assert weigh.finish(then) == {"COMPLETED": 1}
    assert weigh.order() == ["task", "task", "gathered 2"]
    assert weigh.status(first)["tasks"] == {"COMPLETED": 2}


@mainly("gridengine")
def test_what_fails_before_the_command_is_sent_is_waited_for_all_the_same(
    weigh: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    awaits = dependency.await_jobs

    def late(here: Here, sent: tuple[str, ...], kind: str, *, are_new: bool) -> object:
        weigh.finish(sent[0])
        return awaits(here, sent, kind, are_new=are_new)

    plan = weigh.plan(BUG, name="a")
    with monkeypatch.context() as patched:
        patched.setattr(dependency, "await_jobs", late)
        first, then = submitted(weigh, plan)
    weigh.wait_until_held_back(then)
    Path("fixed").touch()
    weigh.resume(first)

    assert weigh.finish("bash") == {"COMPLETED": 1}
    assert weigh.order() == ["task", "gathered 1"]


def test_it_asks_for_little_and_is_named_on_the_screen(here: Weigh) -> None:
    plan = here.plan("true", name="a")

    code, out, err = here(
        "submit", plan, "--on", "local", "--cpus", "2", "--then", "sh -c true"
    )

    assert code == 0, err
    (line,) = (one for one in out.splitlines() if one.startswith("  then"))
    assert " ".join(line.split()) == "then job local-2 (sh), when all are done"
    job = json.loads(here("status", "local-2", "--json")[1])["jobs"][0]["job"]
    assert (job["wanted"]["cpus"], job["wanted"]["memory"]) == (1, 1 << 30)


def test_where_it_is_refused_the_line_that_sends_it_is_printed(
    here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise SchedulerError("sbatch refused the job")

    monkeypatch.setattr(dependency, "await_jobs", refuse)
    plan = here.plan("true", name="a")

    code, _, err = here("submit", plan, "--on", "local", "--then", "sh 'a b'")

    assert code == 125
    assert "job local-1 is submitted, --then not: sbatch refused the job" in err
    assert "(weigh submit --after local-1 -- sh 'a b')" in " ".join(err.split())
    assert here.finish("local-1") == {"COMPLETED": 1}


def test_a_dry_run_shows_what_would_follow_and_sends_nothing(here: Weigh) -> None:
    plan = here.plan("true", name="a")

    code, out, err = here("submit", plan, "--dry-run", "--then", "sh gather.sh")

    assert (code, out[:2]) == (0, "#!")
    assert "then, when all tasks are done: sh gather.sh" in err
    assert sorted(path.name for path in Path("plan").iterdir()) == ["a"]
    assert here("status")[0] == 2


def test_a_task_file_may_name_what_follows_its_plan(here: Weigh) -> None:
    plan = here.plan(
        "echo task >>order", "echo task >>order", "# weigh: then", GATHER, name="a"
    )

    code, out, err = here("submit", plan, "--json", "--on", "local")

    assert code == 0, err
    document = json.loads(out)
    assert document["job"]["tasks"] == 2
    assert here.finish(document["then"]) == {"COMPLETED": 1}
    assert here.order() == ["task", "task", "gathered 2"]
