"""What holds for every scheduler: Slurm, Grid Engine and this machine alike."""

import json
import os

import pytest
from following import Weigh, until
from rigs import mainly

from weigh.schedulers import KINDS
from weigh.schedulers.kind import known_answer

# some clusters look at the memory now and then only
TOUCHES = "python3 -c 'import time; x = b\"x\" * (330 << 20); time.sleep(3)'"


def fails_once(number: int) -> str:
    """Return a task that fails the first time, and says each time that it ran."""
    return (
        f"echo {number} >>began; test -e flag{number} || "
        f"{{ touch flag{number}; exit 1; }}; echo {number} >>succeeded"
    )


def ran(weigh: Weigh, name: str) -> list[int]:
    path = weigh.folder / name
    return sorted(map(int, path.read_text().split())) if path.exists() else []


@mainly("slurm")
def test_the_throttle_bounds_what_runs_at_a_time(weigh: Weigh) -> None:
    counts = "touch runs_{0}; ls runs_* | wc -l >>at_once; sleep 0.2; rm runs_{0}"
    plan = weigh.plan(*map(counts.format, range(10)))

    assert weigh.finish(weigh.submit(plan, "--jobs", "2")) == {"COMPLETED": 10}
    at_once = (weigh.folder / "at_once").read_text().split()
    assert (len(at_once), {*at_once} <= {"1", "2"}) == (10, True)


@mainly("gridengine")
def test_exactly_the_three_that_failed_are_run_again(weigh: Weigh) -> None:
    lines = [f"echo {n} >>began; echo {n} >>succeeded" for n in range(1, 9)]
    for number in (2, 5, 8):
        lines[number - 1] = fails_once(number)
    job = weigh.submit(weigh.plan(*lines))
    assert weigh.finish(job) == {"COMPLETED": 5, "FAILED": 3}

    again = weigh.resume(job)["again"]

    assert [one["tasks"] for one in again] == [[2, 5, 8]]
    assert weigh.finish(again[0]["job"]["id"]) == {"COMPLETED": 8}
    assert ran(weigh, "began") == sorted([*range(1, 9), 2, 5, 8])
    assert ran(weigh, "succeeded") == list(range(1, 9))


def test_what_ran_out_of_memory_gets_twice_as_much(weigh: Weigh) -> None:
    if weigh.scheduler == "local":
        pytest.skip("nothing limits the memory of a job on this machine")
    space = ("-l", "h_vmem=300M") if weigh.scheduler == "gridengine" else ()
    job = weigh.submit(weigh.plan(TOUCHES), "--memory", "260M", *space, "--no-checks")
    assert weigh.finish(job) == {"OUT_OF_MEMORY": 1}

    again = weigh.resume(job)["again"][0]

    assert again["reasons"] == ["ran out of memory"]
    assert again["wanted"]["memory"] >= 2 * (260 << 20)
    assert weigh.finish(again["job"]["id"]) == {"COMPLETED": 1}


@mainly("local")
def test_what_ran_out_of_time_gets_twice_as_much(weigh: Weigh) -> None:
    task = "trap 'touch told; exit 1' TERM; sleep 5 & wait $!; touch whole"
    job = weigh.submit(weigh.plan(task), "--time", "23s")
    assert weigh.finish(job) == {"TIMEOUT": 1}
    assert (weigh.folder / "told").exists()

    again = weigh.resume(job)["again"][0]

    assert again["wanted"]["time_limit"] >= 46
    assert weigh.finish(again["job"]["id"]) == {"COMPLETED": 1}
    assert (weigh.folder / "whole").exists()


def test_a_cancelled_job_stops_its_tasks(weigh: Weigh) -> None:
    # qdel kills the runner at once: what outlives it ends while leftovers may
    saves = "trap 'touch saved; exit 1' TERM; touch began; sleep 20 & wait $!"
    job = weigh.submit(weigh.plan(saves, "sleep 20"), "--jobs", "1")
    until((weigh.folder / "began").exists)

    code, out, _ = weigh("cancel", job)

    assert (code, out.split()[:2]) == (0, ["cancelled", job])
    assert not {"COMPLETED", "FAILED"} & set(weigh.finish(job))
    if weigh.scheduler != "gridengine":  # qdel kills at once
        assert (weigh.folder / "saved").exists()


@mainly("gridengine", "htcondor")
def test_a_task_s_words_are_shown_and_followed(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("echo begins; sleep 1; echo ends", "echo other"))
    until(lambda: "begins" in weigh("logs", f"{job}_1")[1])

    _, followed, _ = weigh("logs", "-f", f"{job}_1")

    assert followed == "begins\nends\n"
    weigh.finish(job)
    assert weigh("logs", f"{job}_2")[1] == "other\n"


@mainly("slurm")
def test_one_command_keeps_every_word_as_it_is(weigh: Weigh) -> None:
    words = [
        "a b",
        "$(touch pwned)",
        "it's",
        'say "hi"',
        "`id`",
        "new\nline",
        ";ls",
        "*",
    ]
    program = "import json, sys; json.dump(sys.argv[1:], open('words', 'w'))"
    job = weigh.submit("--", "python3", "-c", program, *words)

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert json.loads((weigh.folder / "words").read_text()) == words
    assert not (weigh.folder / "pwned").exists()


@mainly("slurm")
def test_no_name_of_a_plan_is_taken_for_code(weigh: Weigh) -> None:
    names = 'it\'s "a b"', "$(touch pwned) `touch pwned`", "100%j", "a,b:c é"
    jobs = {}
    for at, name in enumerate(names):
        (weigh.folder / name).mkdir()
        plan = weigh.plan(f"touch done{at}", name=name)
        jobs[name] = weigh.submit(plan)

    ends = {name: weigh.finish(job) for name, job in jobs.items()}

    assert ends == {name: {"COMPLETED": 1} for name in names}
    assert all((weigh.folder / f"done{at}").exists() for at in range(len(names)))
    # not rglob: an empty output folder may go meanwhile
    assert not [d for d, _, files in os.walk(weigh.folder) if "pwned" in files]
    for job in jobs.values():
        until(lambda job=job: "weigh: exit code 0" in weigh("logs", job)[1])  # type: ignore[misc]


@mainly("slurm")
def test_an_array_too_long_for_one_job_is_several(
    weigh: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weigh.scheduler == "local":
        pytest.skip("this machine takes an array of any length")
    commands = type(KINDS[weigh.scheduler].backend)
    monkeypatch.setattr(commands, "array_limit", lambda *_: known_answer(3))
    plan = weigh.plan(*[fails_once(n) if n == 7 else f"touch {n}" for n in range(1, 8)])
    job = weigh.submit(plan)
    assert weigh.finish(job) == {"COMPLETED": 6, "FAILED": 1}
    assert len(weigh.status(job)["jobs"]) == 3
    assert all((weigh.folder / str(n)).exists() for n in range(1, 7))

    again = weigh.resume(job)["again"]

    assert [one["tasks"] for one in again] == [[7]]
    assert weigh.finish(job) == {"COMPLETED": 7}


@mainly("slurm")
def test_a_missing_program_is_reported_before_anything_runs(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("no-such-program --epochs 3"))

    assert weigh.finish(job) == {"FAILED": 1}
    assert "not found on" in weigh.status(job)["failures"][0]["reason"]
    # it will not be found again: status and resume leave it to a person
    assert weigh.status(job)["way_out"].endswith("--also bugs")
    assert weigh.resume(job)["again"] == []


@mainly("gridengine")
def test_a_missing_environment_is_reported_in_the_log(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("true"), "--setup", "venv:nowhere")

    assert weigh.finish(job) == {"FAILED": 1}
    words = weigh.status(job)["failures"][0]
    assert "nowhere" in (words["reason"] or "") + (words["words"] or "")


@mainly("slurm")
def test_what_was_cancelled_is_shown_and_resumed_at_once(
    weigh: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = weigh.submit(weigh.plan("sleep 100", "sleep 100"))
    weigh.wait_for(job, lambda one: "RUNNING" in one["elements"])
    monkeypatch.setenv("WEIGH_POLL", "10m")
    weigh.status(job)

    assert weigh("cancel", job)[0] == 0
    standing = weigh.status(job)
    again = weigh.resume(job, "--dry-run")["again"]

    assert standing["cancelling"] or standing["tasks"] == {"CANCELLED": 2}
    assert [len(one["tasks"]) for one in again] == [2]
