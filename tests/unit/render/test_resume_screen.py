"""What ``weigh resume`` shows of tasks that do not run again: one line per reason."""

from some_requests import a_submitted_job

from weigh.render.resume_lines import ResumedJob, TaskLeftOut, resumed_lines


def test_tasks_that_are_left_for_one_reason_share_a_line() -> None:
    job = a_submitted_job(
        elements=5,
        tasks=5,
    )
    waiting = [TaskLeftOut(task, "not ended yet") for task in (1, 2, 3, 9)]
    left = (*waiting, TaskLeftOut(4, "a bug: KeyError: 0"))

    assert list(resumed_lines(ResumedJob(job, (), left, None))) == [
        "  p: nothing resumed",
        "    left     tasks 1-3,9: not ended yet",
        "    left     task 4: a bug: KeyError: 0",
        "    fixed?   weigh resume 7 --also bugs",
    ]
