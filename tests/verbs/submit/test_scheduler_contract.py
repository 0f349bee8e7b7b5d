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


@mainly("slurm")
def test_the_throttle_bounds_what_runs_at_a_time(weigh: Weigh) -> None:
    counts = "touch runs_{0}; ls runs_* | wc -l >>at_once; sleep 0.2; rm runs_{0}"
    plan = weigh.plan(*map(counts.format, range(6)))

    assert weigh.finish(weigh.submit(plan, "--jobs", "2")) == {"COMPLETED": 6}
    at_once = (weigh.folder / "at_once").read_text().split()
    assert (len(at_once), {*at_once} <= {"1", "2"}) == (6, True)


@mainly("gridengine")  # Slurm's is on the road of a healer
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


@mainly("gridengine", "local")
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
    name = 'it\'s "a b" $(touch pwned) `touch pwned` 100%j a,b:c é'
    (weigh.folder / name).mkdir()
    job = weigh.submit(weigh.plan("touch done", name=name))

    assert weigh.finish(job) == {"COMPLETED": 1}
    assert (weigh.folder / "done").exists()
    # not rglob: an empty output folder may go meanwhile
    assert not [d for d, _, files in os.walk(weigh.folder) if "pwned" in files]
    until(lambda: "weigh: exit code 0" in weigh("logs", job)[1])


@mainly("slurm")
def test_an_array_too_long_for_one_job_is_several(
    weigh: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    if weigh.scheduler == "local":
        pytest.skip("this machine takes an array of any length")
    commands = type(KINDS[weigh.scheduler].backend)
    monkeypatch.setattr(commands, "array_limit", lambda *_: known_answer(3))
    once = "[ -e once{0} ] || {{ touch once{0}; exit 1; }}; touch {0}"
    plan = weigh.plan(
        *(f"touch {n}" for n in range(1, 4)), *map(once.format, range(4, 8))
    )
    job = weigh.submit(plan)
    assert weigh.finish(job) == {"COMPLETED": 3, "FAILED": 4}
    assert len(weigh.status(job)["jobs"]) == 3

    again = weigh.resume(job)["again"]

    assert [one["tasks"] for one in again] == [[4, 5, 6, 7]]
    assert weigh.finish(job) == {"COMPLETED": 7}
    assert len(weigh.status(job)["jobs"]) == 5  # what is resumed is cut as well
    assert all((weigh.folder / str(n)).exists() for n in range(1, 8))


@mainly("gridengine")
def test_a_missing_environment_is_reported_in_the_log(weigh: Weigh) -> None:
    job = weigh.submit(weigh.plan("true"), "--setup", "venv:nowhere")

    assert weigh.finish(job) == {"FAILED": 1}
    words = weigh.status(job)["failures"][0]
    assert "nowhere" in (words["reason"] or "") + (words["words"] or "")
