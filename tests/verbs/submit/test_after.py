"""--after JOB: a job starts when all tasks of another one are done, in any round."""

from pathlib import Path
from typing import Any

import pytest
from following import Weigh, until
from rigs import mainly

from weigh.flow.follow import dependency

ONCE = "[ -e once ] || {{ touch once; exit 9; }}; echo {} >>order"
BUG = "{{ [ -e fixed ] || python3 -c 'print(1 / 0)'; }} && echo {} >>order"


def chained(
    weigh: Weigh, line: str, *words: str, begin: bool = True
) -> tuple[str, str]:
    """Submit a job, and one that starts after it; return their ids."""
    weigh.needs_waiting()
    line = f"until [ -e begin ]; do sleep 0.1; done; {line.format('a')}"
    first = weigh.submit(weigh.plan(line, name="a"), *words)
    second = weigh.submit(weigh.plan("echo b >>order", name="b"), "--after", "a")
    if begin:
        Path("begin").touch()
    return first, second


@mainly("slurm", "gridengine")
def test_a_job_waits_where_healing_gives_up_and_starts_when_a_person_resumes(
    weigh: Weigh,
) -> None:
    first, second = chained(weigh, BUG, "--heal", begin=False)
    weigh.wait_for(second, lambda one: bool(one["waiting"]))
    waits = weigh("status", second)[1]
    Path("begin").touch()
    weigh.wait_until_blocked(second)
    weigh.wait_until_held_back(second)
    shown = " ".join(weigh("status", second)[1].split())
    Path("fixed").touch()

    answer = weigh.resume(first, "--also", "bugs")

    assert "after    a (job " in waits
    # it is not called held: qrls would not free it
    on_a_cluster = "a job that it depends on has not ended"
    why = "waits for local-2 to end" if weigh.scheduler == "local" else on_a_cluster
    assert (why in waits, "qrls" in waits) == (True, False)
    assert "1 of 1 task failed" in shown
    assert f"weigh resume {first} --also bugs" in shown
    if weigh.scheduler == "gridengine":  # which starts it, and its script checks
        assert f"did not start: a (job {first}) has not succeeded" in shown
    assert [one["name"] for one in answer["followers"]] == ["b"]
    assert weigh.finish("b") == {"COMPLETED": 1}
    assert weigh.order() == ["a", "b"]


@mainly("slurm")
def test_a_job_waits_for_one_that_was_cancelled_until_that_is_resumed(
    weigh: Weigh,
) -> None:
    first, second = chained(weigh, "[ -e again ] || sleep 300; echo {} >>order")
    weigh.wait_for(first, lambda one: "RUNNING" in one["tasks"])
    weigh("cancel", first)
    weigh.finish(first)
    weigh.wait_until_held_back(second)
    Path("again").touch()

    out = weigh("resume", first)[1]

    assert "after b (job" in " ".join(out.split())  # sent again, or moved
    assert weigh.finish("b") == {"COMPLETED": 1}
    assert weigh.order() == ["a", "b"]


@mainly("local")
def test_two_jobs_and_one_that_waits_for_both_are_led_on(weigh: Weigh) -> None:
    first, second = chained(weigh, ONCE, begin=False)
    weigh.submit(weigh.plan("echo c >>order", name="c"), "--after", first)
    plan = weigh.plan("echo d >>order", name="d")
    last = weigh.submit(plan, "--after", "b", "--after", "c")
    Path("begin").touch()
    weigh.finish(first)
    weigh.wait_until_held_back(second)
    if weigh.scheduler != "slurm":  # there it hangs on b, which still waits
        weigh.wait_until_held_back(last)

    weigh.resume(first)

    assert weigh.finish("d") == {"COMPLETED": 1}
    first_to_last = weigh.order()
    assert sorted(first_to_last) == [*"abcd"]
    assert (first_to_last[0], first_to_last[3]) == ("a", "d")


@mainly("slurm")
def test_a_job_may_be_chained_while_healing_decides(weigh: Weigh) -> None:
    """The array has failed then, and only the healer runs or waits."""
    weigh.needs_waiting()
    first = weigh.submit(weigh.plan(ONCE.format("a"), name="a"), "--heal")
    until(Path("once").exists)

    plan = weigh.plan("echo b >>order", name="b")
    second = weigh.submit(plan, "--after", "a")

    assert first != second
    assert weigh.finish(second) == {"COMPLETED": 1}
    assert weigh.order() == ["a", "b"]


@mainly("slurm", "local")
def test_a_job_sent_while_a_healer_sends_the_next_round_waits_for_that(
    weigh: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The healer knows nothing of it, and the job that it hangs on fails."""
    weigh.needs_waiting()
    waits = f"until [ -e begin ]; do sleep 0.1; done; {ONCE.format('a')}"
    weigh.submit(weigh.plan(waits, name="a"), "--heal")
    jobs_to_await = dependency.await_jobs

    def await_jobs_slowly(*args: Any, **options: Any) -> dependency.AwaitedJobs:
        found = jobs_to_await(*args, **options)
        Path("begin").touch()
        weigh.wait_for("a", lambda one: "COMPLETED" in one["tasks"])
        return found

    monkeypatch.setattr(dependency, "await_jobs", await_jobs_slowly)
    second = weigh.submit(weigh.plan("echo b >>order", name="b"), "--after", "a")

    assert weigh.finish(second) == {"COMPLETED": 1}
    assert weigh.order() == ["a", "b"]


@mainly("local")
def test_what_has_failed_for_good_is_not_waited_for(weigh: Weigh) -> None:
    weigh.needs_waiting()
    first = weigh.submit(weigh.plan("exit 1", name="a"))
    weigh.finish(first)
    plan = weigh.plan("true", name="b")

    code, _, err = weigh("submit", plan, "--on", weigh.scheduler, "--after", "a")

    assert code == 2
    assert f"--after: a (job {first}) cannot succeed: 1 of 1 task failed" in err
    assert f"weigh resume {first}" in err


def test_jobs_run_in_the_environment_that_an_earlier_one_makes_or_has_made(
    here: Weigh,
) -> None:
    here.submit(here.plan("sleep 0.5; python3 -m venv --without-pip env", name="make"))
    for name, task, *options in (
        ("a", "./env/bin/python -V >version"),
        ("b", "python -V >version", "--setup", "venv:env"),
        ("c", "python -V >version", "--setup", "source env/bin/activate"),
    ):
        job = here.submit(here.plan(task, name=name), "--after", "make", *options)

        assert here.finish(job) == {"COMPLETED": 1}


def test_a_job_of_this_machine_names_the_one_that_it_waits_for(here: Weigh) -> None:
    first, second = chained(here, "true {}", begin=False)
    here.wait_for(first, lambda one: "RUNNING" in one["tasks"])
    (wait,) = here.status(second)["waiting"]
    assert wait["reason"] == f"waits for {first} to end"
    Path("begin").touch()
    assert here.finish(second) == {"COMPLETED": 1}


@pytest.mark.slurm
def test_a_script_after_one_that_failed_is_cancelled_and_not_sent_to_wait_again(
    real: Weigh,
) -> None:
    (real.folder / "first.sh").write_text(
        "#!/bin/bash\nuntil [ -e begin ]; do sleep 0.1; done\nexit 3\n"
    )
    (real.folder / "next.sh").write_text("#!/bin/bash\necho next\n")
    first = real.submit("first.sh", "--mem=50M", "--time=1")
    words = ("next.sh", "--mem=50M", "--time=1", f"--dependency=afterok:{first}")
    second = real.submit(*words)
    submitted = real.status(second)
    (real.folder / "begin").touch()
    real.wait_until_held_back(second)

    assert submitted["job"]["expected"] is None  # not now: it waits for the first
    assert f"next     weigh cancel {second}" in real("status", second)[1]
    kept = real("resume", second)[1]
    assert (
        f"left     task 1: can never start\n    next     weigh cancel {second}" in kept
    )
    real("cancel", second)
    assert real.finish(second) == {"CANCELLED": 1}
    code, _, err = real("resume", second)

    assert code == 2
    assert f"next.sh: job {first} ended FAILED" in err
    assert "then submit this with its new id" in " ".join(err.split())
