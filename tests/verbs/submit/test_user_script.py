"""A user's own job script: submitted as it is, and followed, resumed, measured."""

import json
import os
import re
import subprocess
import threading
from pathlib import Path

import pytest
from following import Weigh, until

from weigh.store import jobs

# scripts of the shape that groups hand on: one line of a file per element, scratch on
# the node's disk, results copied back; an environment, then a program
SCRIPTS = {
    name: (Path(__file__).parent / f"user_scripts/array.{name}.sh").read_text()
    for name in ("slurm", "gridengine")
}


CALLS = {"slurm": ("sbatch", "--parsable"), "gridengine": ("qsub", "-terse")}
MARKS = {"slurm": "_", "gridengine": "."}
BOTH = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in SCRIPTS]


@pytest.fixture(params=BOTH)
def weigh(
    request: pytest.FixtureRequest, here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> Weigh:
    """Weigh in a folder with a script for the scheduler."""
    env = request.getfixturevalue(request.param)
    here.with_cluster(request.param, env, monkeypatch)
    home = here.folder.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (here.folder / "log").mkdir()
    (here.folder / "job.sh").write_text(SCRIPTS[here.scheduler])
    lines = ["false", "echo $$ >result #", "false", "[ -e fixed ] && touch result #"]
    (here.folder / "experiments.txt").write_text(
        "\n".join([*lines, "false", "touch result; echo six #"]) + "\n"
    )
    if here.scheduler == "slurm":  # each element runs on a disk of its own
        text = (here.folder / "experiments.txt").read_text()
        (here.folder / "experiments.txt").write_text(
            text.replace("-e fixed", '-e "$SLURM_SUBMIT_DIR/fixed"')
        )
    return here


def test_a_script_is_followed_from_before_its_begin_to_its_end(weigh: Weigh) -> None:
    text = "echo begins; until [ -e go ]; do sleep .1; done; echo ends"
    lines = SCRIPTS[weigh.scheduler].splitlines()
    directives = [line for line in lines if line.startswith(("#!", "#SBATCH", "#$"))]
    array = ("--array", "--output", "#$ -t", "#$ -tc")
    plain = [line for line in directives if not any(word in line for word in array)]
    (weigh.folder / "job.sh").write_text("\n".join([*plain, text]) + "\n")
    (weigh.folder / "log").mkdir(exist_ok=True)
    threading.Timer(2, (weigh.folder / "go").touch).start()
    job = weigh.submit("job.sh")

    code, out, err = weigh("logs", "-f", job)

    assert (code, out) == (0, "begins\nends\n"), err


def test_an_array_is_submitted_as_it_is_and_only_its_failed_index_again(
    weigh: Weigh,
) -> None:
    before = (weigh.folder / "job.sh").read_bytes()
    job = weigh.submit("job.sh", "--", "a b")
    code, _, err = weigh("submit", "job.sh", "--", "a b")
    assert code == 2 or weigh.status(job)["tasks"].get("COMPLETED") == 2, err

    assert weigh.finish(job) == {"COMPLETED": 2, "FAILED": 1}
    assert sorted(os.listdir(weigh.folder / "results")) == ["2", "6"]
    # while squeue still lists it, nothing shows its exit code
    is_known = weigh.scheduler == "gridengine"
    how = "exit code 1\n" if is_known else "(failed|exit code 1)\n"
    assert re.search(f"element 4  {how}", weigh("status", job)[1])
    assert weigh("logs", f"{job}{MARKS[weigh.scheduler]}6")[1].strip() == "six"
    assert "3 elements" in weigh("status", job)[1]
    report = json.loads(weigh("report", job, "--json")[1])
    assert {row["task"] for row in report["rows"]} == {2, 4, 6}

    (weigh.folder / "fixed").touch()
    code, out, err = weigh("resume", job)
    assert code == 0, err
    assert "resumed 1 element" in out
    assert weigh.finish(job) == {"COMPLETED": 3}

    assert (weigh.folder / "job.sh").read_bytes() == before
    known = jobs.read_jobs(str(weigh.folder / ".weigh"))
    last = known[-1]
    assert last.own is not None
    assert (last.elements, last.own.indices.partition("-")[0]) == (1, "4")
    assert known[0].name == {"slurm": "job.sh", "gridengine": "tagger"}[weigh.scheduler]


def test_a_job_submitted_by_hand_is_followed_by_its_id(
    weigh: Weigh,
) -> None:
    hold = {"slurm": "--hold", "gridengine": "-h"}[weigh.scheduler]
    call = [*CALLS[weigh.scheduler], hold, "job.sh"]
    out = subprocess.run(call, check=True, capture_output=True, text=True).stdout
    job = re.match(r"\d+", out)[0]  # type: ignore[index]
    mark = MARKS[weigh.scheduler]

    until(lambda: weigh.status(job)["tasks"] == {"PENDING": 3})
    assert weigh.status(f"{job}{mark}4")["tasks"] == {"PENDING": 1}
    assert "resume" not in weigh("cancel", f"{job}{mark}2")[1]
    until(lambda: weigh.status(job)["tasks"].get("PENDING") == 2)
    assert weigh("cancel", job)[0] == 0

    assert not (weigh.folder / ".weigh" / "jobs.jsonl").exists()
    code, _, err = weigh("status", "987654")
    assert (code, "no such job: 987654" in err) == (2, True)


def test_a_measured_script_keeps_its_directives_and_its_exit_codes(
    weigh: Weigh,
) -> None:
    here = {"slurm": ("--array=4,6",), "gridengine": ("-t", "4-6:2", "-V")}
    job = weigh.submit("job.sh", "--measure", *here[weigh.scheduler])

    assert weigh.finish(job) == {"COMPLETED": 1, "FAILED": 1}

    report = json.loads(weigh("report", job, "--json")[1])
    rows = {row["task"]: row for row in report["rows"]}
    assert {number: row["exit_code"] for number, row in rows.items()} == {4: 1, 6: 0}
    assert all(row["memory"] > 1 << 20 for row in rows.values())
    assert report["elements"] == 2
    name = {"slurm": "job.sh", "gridengine": "tagger"}[weigh.scheduler]
    assert jobs.read_jobs(str(weigh.folder / ".weigh"))[-1].name == name
    assert weigh("logs", f"{job}{MARKS[weigh.scheduler]}6")[1].strip() == "six"


@pytest.mark.parametrize(("size", "has_room"), [("", None), ("8G", "room")])
def test_a_measured_script_requests_what_weigh_takes_too(
    weigh: Weigh, size: str, has_room: str | None
) -> None:
    """Grid Engine killed jobs of which the limit was just enough without weigh."""
    text = re.sub("=[25]00M", f"={size}", SCRIPTS[weigh.scheduler]) if size else ""
    (weigh.folder / "job.sh").write_text(text or SCRIPTS[weigh.scheduler])

    _, _, err = weigh("submit", "job.sh", "--dry-run", "--measure")

    command = " ".join(err.partition("would run ")[2].split())
    flag = {"slurm": "--mem=220M", "gridengine": "-l h_vmem=596M"}[weigh.scheduler]
    assert command.startswith(CALLS[weigh.scheduler][0])
    assert (flag in command) == (has_room is None)
    assert (flag.partition("=")[0] in command) == (has_room is None)


def test_what_the_scheduler_would_refuse_is_refused_before(weigh: Weigh) -> None:
    wrong = {"slurm": "--memory=4G", "gridengine": "--mem=4G"}[weigh.scheduler]
    code, _, err = weigh("submit", "job.sh", wrong)
    assert (code, "no option --mem" in err) == (2, True), err

    (weigh.folder / "dos.sh").write_text(SCRIPTS[weigh.scheduler].replace("\n", "\r\n"))
    code, _, err = weigh("submit", "dos.sh")
    assert (code, "not submitted" in err) == (2, True), err
    assert not (weigh.folder / ".weigh" / "jobs.jsonl").exists()


HEALED = {
    "slurm": """#!/bin/bash
#SBATCH --mem=60M --time=5 --array=1-3
i=$SLURM_ARRAY_TASK_ID
""",
    "gridengine": """#!/bin/bash
#$ -S /bin/bash -l h_vmem=500M,h_rt=00:05:00 -cwd -t 1-3
i=$SGE_TASK_ID
""",
}
# 1 is fine, 2 fails once, 3 is a bug
FAILS_ONCE = """echo x >>began_$i
[ $i != 2 ] || [ -e second ] || { touch second; exit 7; }
[ $i != 3 ] || { echo "ValueError: wrong" >&2; exit 1; }
"""


def test_a_script_of_the_user_s_own_is_healed_until_only_bugs_are_left(
    weigh: Weigh,
) -> None:
    text = HEALED[weigh.scheduler] + FAILS_ONCE
    (weigh.folder / "job.sh").write_text(text)
    job = weigh.submit("job.sh", "--heal=memory=2G")

    ended = weigh.wait_for(job, lambda one: one["healing"]["stopped"] is not None)

    assert ended["healing"]["stopped"] == "nothing left that a retry could fix"
    assert weigh.status(job)["tasks"] == {"COMPLETED": 2, "FAILED": 1}
    began = [(weigh.folder / f"began_{n}").read_text() for n in (1, 2, 3)]
    assert began == ["x\n", "x\nx\n", "x\n"]
    assert (weigh.folder / "job.sh").read_text() == text


@pytest.mark.parametrize("weigh", BOTH[1:], indirect=True)
def test_an_element_that_prints_that_memory_ran_out_gets_more(weigh: Weigh) -> None:
    words = 'echo "Error: cannot allocate vector of size 3.2 Gb" >&2; exit 1 #'
    gpu = 'echo "RuntimeError: CUDA out of memory. Tried" >&2; exit 1 #'
    lines = ["", words, "", gpu, "", "touch result; echo six #"]
    (weigh.folder / "experiments.txt").write_text("\n".join(lines) + "\n")
    job = weigh.submit("job.sh")
    assert weigh.finish(job) == {"OUT_OF_MEMORY": 2, "COMPLETED": 1}

    again = weigh.resume(job)

    (one,) = again["again"]
    assert one["wanted"]["virtual_memory"] >> 20 == 2 * 500
    assert one["tasks"] == [2]  # more does not help the one on a GPU


@pytest.mark.parametrize("weigh", BOTH[:1], indirect=True)
def test_an_element_killed_for_memory_gets_more_each_time(weigh: Weigh) -> None:
    allocates = """[ $i = 1 ] || python3 -c 'b = bytearray(300 << 20)'\n"""
    (weigh.folder / "job.sh").write_text(HEALED["slurm"] + allocates)

    job = weigh.submit("job.sh", "--heal")

    weigh.wait_for(job, lambda one: one["tasks"] == {"COMPLETED": 3})
    known = jobs.read_jobs(str(weigh.folder / ".weigh"))
    sizes = [round((one.request.memory or 0) / (1 << 20)) for one in known]
    assert sorted(set(sizes)) == [60, 150, 600]  # rounded up
    assert {one.round for one in known} == {1, 2, 3}
