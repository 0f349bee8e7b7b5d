"""Jobs that were submitted from another folder."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

Weigh = Callable[..., tuple[int, str, str]]


@pytest.fixture
def elsewhere(
    weigh: Weigh,
    submitted: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Weigh:
    """Submit a plan in one folder, and go to another."""
    submitted("echo hello\nsh -c 'exit 3'\n")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    return weigh


def test_status_lists_the_jobs_of_other_folders(elsewhere: Weigh) -> None:
    code, out, err = elsewhere("status")
    assert (code, err) == (0, "")
    assert "local-1  pp" in out
    assert "2 tasks: 1 done, 1 failed" in out
    assert out.splitlines()[1].endswith("/here")


def test_a_job_of_another_folder_is_found_by_its_name(elsewhere: Weigh) -> None:
    verbs = ("status", "logs", "report", "cancel", "resume")
    for verb, name in product(verbs, ("pp", "local-1")):
        code, out, err = elsewhere(verb, name)
        assert (code, err) == (0, ""), (verb, name)
        assert out, (verb, name)


def test_cancel_all_names_the_jobs_elsewhere_and_cancels_none(elsewhere: Weigh) -> None:
    code, out, err = elsewhere("cancel", "all")
    assert (code, out) == (2, "")
    assert "no job was submitted from here; yours elsewhere: local-1 (pp, /" in err


def test_a_plan_here_that_was_not_sent_is_not_that_of_another_folder(
    elsewhere: Weigh,
) -> None:
    Path("pp.txt").write_text("true\n")
    sizes = ("--memory", "100M", "--cpus", "1", "--time", "5m")
    assert elsewhere("plan", "pp.txt", *sizes)[0] == 0
    code, _, err = elsewhere("status", "pp")
    assert code == 2
    assert "pp was not submitted from here: weigh submit plan/pp" in err


def test_a_name_that_two_other_folders_have_is_not_found(
    elsewhere: Weigh,
    submitted: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    submitted("true\n")
    (tmp_path / "third").mkdir()
    monkeypatch.chdir(tmp_path / "third")
    code, _, err = elsewhere("cancel", "pp")
    assert code == 2
    assert "none was submitted from here" in err
    assert elsewhere("status")[1].count("local-1") == 2


def test_logs_are_found_where_a_folder_of_plans_lies_here(elsewhere: Weigh) -> None:
    Path("plan").mkdir()

    code, out, err = elsewhere("logs", "local-1")

    assert (code, err) == (0, "")
    assert "hello" in out
