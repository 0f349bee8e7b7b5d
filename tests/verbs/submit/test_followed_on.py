"""Jobs followed where something changes late: resumed, refused."""

from following import Weigh

from weigh.schedulers.this_machine import LocalScheduler


def test_a_task_that_was_not_resumed_is_found_in_the_job_before(here: Weigh) -> None:
    first = here.submit(here.plan("echo one", "echo two; exit 3"))
    here.finish(first)
    again = here.resume(first)["again"][0]["job"]["id"]
    here.finish(again)

    assert here("logs", f"{again}_1")[1] == "one\n"
    assert here("logs", "last_2")[1] == "two\n"
    assert "no such task: 3 (tasks are 1-2)" in here("logs", "last_3")[2]


def test_one_job_that_cannot_be_cancelled_keeps_no_other(here: Weigh) -> None:
    one = here.submit(here.plan("sleep 60", name="a"))
    other = here.submit(here.plan("sleep 60", name="b"))
    process = here.folder / ".weigh" / LocalScheduler.name / one / "process"
    kept = process.read_bytes()
    process.unlink()

    code, _, err = here("cancel", "all")
    process.write_bytes(kept)

    assert code == 125
    assert f"(cancelled: {other})" in err
    assert here.finish(other) == {"CANCELLED": 1}
    here("cancel", one)
    here.finish(one)
