"""Roads over several verbs, on defaults: what one prints or keeps the next one uses."""

import itertools
import json
import re
import shlex

import pytest
from roads import Road

from weigh.schedulers import KINDS

JOB = ("python3", "job.py")
MIB = 2**20


def only_on(first: str, *others: str) -> pytest.MarkDecorator:
    """Take the road on one in ``make test``, on the others in ``make integrations``."""
    cases = []
    for name in (first, *others):
        marks = [getattr(pytest.mark, name)] if name in KINDS else []
        marks += [pytest.mark.integrations] if name in others else []
        cases.append(pytest.param(name, marks=marks))
    return pytest.mark.parametrize("road", cases, indirect=True)


def command_after(title: str, screen: str) -> list[str]:
    """Return the words of the command of weigh that a screen names behind a title."""
    joined = re.sub(r"\n {11,}(?=\S)", " ", screen)  # lines are folded at 80 columns
    (command,) = re.findall(rf"(?m)^ *{re.escape(title)}:? +weigh (.+)$", joined)
    return shlex.split(command)


def follow_next(road: Road, screen: str, *options: str) -> str:
    """Type what a plan names as next, on the road's scheduler."""
    verb, *words = command_after("next", screen)
    assert verb == "submit"
    return road.submit(*options, *words)


def held_by_tasks(road: Road) -> list[float]:
    """Return what the tasks that ran held, in bytes, by their own words."""
    words = (dict(itertools.pairwise(task)) for task in road.ended())
    return [float(given.get("--mb", 1)) * MIB for given in words]


def memory_reported(road: Road) -> dict[str, float]:
    """Return what the report of the last job says of memory: requested, most."""
    measures = road.read("report", "last")["measures"]
    (memory,) = (one for one in measures if one["name"] == "memory")
    return {name: float(memory[name]) for name in ("requested", "most")}


def check_each_ran_once(road: Road, tasks: int) -> None:
    """Check that so many tasks ran to their ends, and that all screens say so."""
    assert road.wait() == {"COMPLETED": tasks}
    assert [*road.ended().values()] == [1] * tasks
    road.check_screens()
    assert "all tasks are done" in road("resume", "last")


def test_tasks_of_sizes_run_in_what_a_scan_of_others_predicted(road: Road) -> None:
    road.program()
    road("scan", "mb=8,16,32,64", "--", *JOB, "--mb", "{mb}", "--x", "0")
    assert sorted(held_by_tasks(road)) == [8 * MIB, 16 * MIB, 32 * MIB, 64 * MIB]
    road.forget()

    words = (*JOB, "--mb", "{mb}", "--x", "{x}")
    road("sweep", "mb=20,40,100", "x=1..2", "--", *words)
    planned = road("plan", "tasks.txt")
    kinds = road.read("plan", "tasks.txt", "--dry-run")["kinds"]
    needs = sorted(kind["item"]["memory"] for kind in kinds)
    for held, need in zip((20 * MIB, 40 * MIB, 100 * MIB), needs, strict=True):
        assert 1.2 * held <= need <= 1.5 * held + 40 * MIB

    follow_next(road, planned)
    check_each_ran_once(road, 6)
    memory = memory_reported(road)
    assert memory["requested"] >= memory["most"] >= max(held_by_tasks(road))


def test_only_the_task_with_the_bug_that_check_finds_is_run_again(road: Road) -> None:
    road.program()
    bug = ("--fails", "bug", "--each", "4")
    road("sweep", "x=1..8", "--", *JOB, "--x", "{x}", *bug)
    checked = road("check", "tasks.txt", ok=(1,))
    assert "ValueError: no value for x" in checked
    tried = len(road.begun())
    assert f"1 of {tried} failed" in checked
    road.forget()

    follow_next(road, road("plan", "tasks.txt"))
    assert road.wait() == {"COMPLETED": 6, "FAILED": 2}
    left = road("resume", "last", ok=(0, 1))
    assert [*road.begun().values()] == [1] * 8  # a bug is not run again
    road.fix()
    road(*command_after("fixed?", left))
    check_each_ran_once(road, 8)
    assert sorted(road.begun().values()) == [1] * 6 + [2] * 2


@only_on("slurm")
def test_a_healer_gives_a_task_what_it_needs_above_its_record(road: Road) -> None:
    road.program()
    road("run", "-q", "--", *JOB, "--mb", "5", "--seconds", "1", "--x", "0")
    road.forget()
    sizes = {x: 300 if x == 3 else 5 for x in range(1, 5)}
    (road.folder / "tasks.txt").write_text(
        "".join(
            f"python3 job.py --mb {size} --seconds 1 --x {x}\n"
            for x, size in sizes.items()
        )
    )
    follow_next(road, road("plan", "tasks.txt"), "--heal")
    road("status", "last", "--wait")
    check_each_ran_once(road, 4)
    assert max(held_by_tasks(road)) == 300 * MIB
    began = {words: times for words, times in road.begun().items() if times > 1}
    assert [words[1] for words in began] == ["300"]


@only_on("slurm", "gridengine")
def test_a_script_runs_again_with_the_request_from_its_history(road: Road) -> None:
    road.program()
    script, job = road.folder / "job.sh", "python3 job.py --mb 60 --seconds 1 --x 1\n"
    lines = {
        "slurm": "#SBATCH --time=5 --mem=900M\n",
        "gridengine": "#$ -l h_rt=300,h_vmem=900M\n",
    }[road.scheduler]
    script.write_text(f"#!/bin/bash\n#$ -cwd\n{lines}{job}")
    road.submit("job.sh", "--measure")
    road("status", "last", "--wait")
    memory = memory_reported(road)
    assert 60 * MIB <= memory["most"] <= 100 * MIB
    assert memory["requested"] >= 900 * MIB  # and what weigh needs beside it

    # its comments go to standard error, for a user to read
    asked = road("request", "--from", "history", "--for", road.scheduler)
    lines = "".join(f"{line}\n" for line in asked.splitlines() if line[:2] != "# ")
    script.write_text(f"#!/bin/bash\n#$ -cwd\n{lines}{job}")
    road.submit("job.sh", "--measure")
    road("status", "last", "--wait")
    assert sum(road.ended().values()) == 2
    memory = memory_reported(road)
    assert 1.2 * memory["most"] <= memory["requested"] <= 400 * MIB


def test_staged_tasks_that_were_measured_here_read_copies(road: Road) -> None:
    road.program()
    text = "import os, sys\nprint(open('data/words').read(), os.getcwd())\n"
    (road.folder / "read.py").write_text(text)
    (road.folder / "data").mkdir()
    (road.folder / "data" / "words").write_text("two words")
    job = "python3 read.py"
    road("run", "-q", "--", *job.split(), "0")
    (road.folder / "tasks.txt").write_text(
        "".join(f"{job} {x} >out.{x}\n" for x in range(1, 4))
    )
    staged = ("--stage-in", "data", "--stage-in", "read.py", "--stage-out", "results")
    follow_next(road, road("plan", "tasks.txt"), *staged)
    assert road.wait() == {"COMPLETED": 3}
    for x in range(1, 4):
        *words, place = (road.folder / f"results/out.{x}").read_text().split()
        assert words == ["two", "words"]
        assert not place.startswith(str(road.folder))
    assert {path.name for path in road.folder.glob("results/*")} == {
        f"out.{x}" for x in range(1, 4)
    }


@only_on("local")
def test_what_exec_measured_is_reported_and_planned(road: Road) -> None:
    road.program()
    words = (*JOB, "--mb", "40", "--x", "{x}")
    road("sweep", "x=1..4", "--", *words)
    road("exec", "tasks.txt")
    assert [*road.ended().values()] == [1] * 4
    assert road.read("report", "last")["states"] == {"COMPLETED": 4}
    (asked,) = re.findall(r"--mem=(\d+)M", road("report", "last"))

    road.forget()
    road("sweep", "x=5..8", "-o", "more.txt", "--", *words)
    planned = road("plan", "more.txt")
    for kind in road.read("plan", "more.txt", "--dry-run")["kinds"]:
        assert kind["item"]["memory"] == int(asked) * MIB
    assert 1.2 * 40 * MIB <= int(asked) * MIB <= 90 * MIB
    follow_next(road, planned)
    check_each_ran_once(road, 4)


@only_on("local")
def test_two_runs_differ_by_what_the_second_holds_more(road: Road) -> None:
    road.program()
    for size in ("40", "120"):
        road("run", "-q", "--label", size, "--", *JOB, "--mb", size, "--x", "1")
    rows = road.read("compare", "40", "120")["rows"]
    (memory,) = (row for row in rows if row["name"] == "peak_memory")
    assert abs(memory["changes"][1]["difference"] - 80 * MIB) <= 5 * MIB


def test_a_job_after_another_begins_when_that_has_ended(road: Road) -> None:
    road.program()
    road.submit("--name", "first", "--", *JOB, "--x", "1", "--seconds", "1")
    road.submit("--after", "first", "--name", "second", "--", *JOB, "--x", "2")
    road("status", "second", "--wait")
    notes = [json.loads(line) for line in road.ran.read_text().splitlines()]
    order = [(what, words[1]) for what, words in notes]
    assert order == [("begun", "1"), ("ended", "1"), ("begun", "2"), ("ended", "2")]


def test_a_job_after_one_that_fails_does_not_run(road: Road) -> None:
    road.program()
    fails = ("--seconds", "1", "--fails", "exit", "--each", "1")
    road.submit("--name", "first", "--", *JOB, "--x", "1", *fails)
    second = ("--after", "first", "--name", "second", "--", *JOB, "--x", "2")
    said = road.submit(*second, ok=(0, 2))
    assert road.called("status", "first", "--wait")[0] == 1
    if "cannot succeed" not in said:  # it had not failed yet
        assert road.called("status", "second", "--wait")[0] == 1
    assert {words[1] for words in road.begun()} == {"1"}


def test_the_tasks_of_a_plan_run_where_it_was_made(road: Road) -> None:
    road.program()
    road("sweep", "x=1..3", "--", "python3", "job.py", "--x", "{x}")
    road("plan", "tasks.txt", "--memory", "150M", "--time", "1m")
    road("run", "-q", "--", "true")  # the store, for both folders
    (road.folder / "elsewhere").mkdir()
    words = ("submit", "../plan/tasks", "--on", road.scheduler)
    code, text = road.called(*words, cwd=road.folder / "elsewhere")
    assert code == 0, text
    assert f"the tasks run in {road.folder}, as planned" in " ".join(text.split())
    assert road.wait() == {"COMPLETED": 3}


def test_a_plan_that_replaces_a_submitted_one_names_how_to_run_it(road: Road) -> None:
    road.program()
    for tasks, again in ((1, ""), (2, " --again")):
        sweep = ("sweep", f"x=1..{tasks}", "-o", f"{tasks}.txt")
        road(*sweep, "--", "python3", "job.py", "--x", "{x}")
        options = ("--memory", "150M", "--time", "1m", "--name", "r", "--replace")
        said = road("plan", f"{tasks}.txt", *options)
        assert f"  next: weigh submit plan/r{again}\n" in said
        road.submit("plan/r", *again.split())
        assert road.wait("r") == {"COMPLETED": tasks}
