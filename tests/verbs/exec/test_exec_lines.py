"""The lines of ``weigh exec``, at 80 columns."""

import pytest
from msgspec.structs import replace
from terminal_columns import columns_of

from weigh.model.progress import ExecReport, FailedTask
from weigh.render.exec_lines import summary_lines
from weigh.render.printable import WIDTH


def _report(*failures: FailedTask) -> ExecReport:
    return ExecReport(
        task_file="t",
        joblog="t.joblog",
        events="t.joblog.events.jsonl",
        output="t.out",
        tasks=2,
        done=1,
        failed=1,
        interrupted=0,
        left=0,
        earlier=0,
        retried=0,
        wall_time=1.0,
        slots=1,
        failures=failures,
    )


def test_a_job_s_log_names_the_plan_to_resume() -> None:
    """The user of a job has typed no `weigh exec` to which an option could be added."""
    by_hand = _report(FailedTask(2, "exit code 1", "t.out/2.out"))
    sent = replace(by_hand, task_file="/w/plan/my tasks/sent/1.plan/tasks_0.txt")
    ran_out = replace(sent, left=1)
    assert "  resume    add --resume-failed" in "\n".join(summary_lines(by_hand))
    assert "  next      weigh status 'my tasks'" in summary_lines(sent)
    assert "  next      weigh status 'my tasks'" in summary_lines(ran_out)


@pytest.mark.parametrize("reason", ["exit code 1", "a long story " * 9])
def test_a_failure_in_a_long_folder_fits_the_screen(reason: str) -> None:
    folder = "/".join(["a-folder-with-a-name"] * 5)
    one = FailedTask(1234, reason, f"{folder}/1234.out")
    lines = summary_lines(_report(one))
    assert max(map(len, lines)) <= WIDTH
    assert "            1234.out" in lines
    assert " ".join(reason.split()) in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("path", ["結果" * 9 + "/2.out", "t/" + "結果" * 20])
def test_wide_characters_of_a_path_count_as_two_columns(path: str) -> None:
    one = FailedTask(2, "a long story " * 5, path)
    lines = [line for line in summary_lines(_report(one)) if "joblog" not in line]
    assert max(map(columns_of, lines)) <= WIDTH


def test_no_path_or_reason_of_a_summary_steers_the_terminal() -> None:
    evil = "\x1b[2J"
    failures = [FailedTask(n, evil, evil) for n in range(12)]
    report = replace(
        _report(*failures),
        failed=12,
        joblog=evil,
        output=evil,
        trouble=evil,
        halted=evil,
        unsure=(evil,),
    )
    assert "\x1b" not in "".join(summary_lines(report))
