"""Staging holds under every scheduler: in and out, however the tasks end."""

import os
import signal
from pathlib import Path

import pytest
from following import Weigh, until
from rigs import mainly
from sessions import check_session

SAVES = "trap 'echo saved >saved; exit 1' TERM; echo step >>steps; touch {0}/began; "
WAITS = "for i in $(seq 600); do [ -e {0}/go ] && exit; sleep 0.1; done"


def words(weigh: Weigh, *more: str) -> tuple[str, ...]:
    """Return the options of a job that stages ``data``, in the test's own folder."""
    data = weigh.folder / "data"
    data.mkdir(exist_ok=True)
    (data / "a").write_text("hello\n")
    scratch = weigh.folder.parent / "scratch"
    scratch.mkdir(exist_ok=True)
    (weigh.folder / "weigh.toml").write_text(f'scratch = "{scratch}"\n')
    return ("--stage-in", "data", "--stage-out", "results", *more)


def left(weigh: Weigh) -> list[Path]:
    """List what lies on the node's own disk."""
    return list((weigh.folder.parent / "scratch").glob("weigh-*/*"))


def staging_shell(weigh: Weigh) -> int:
    """Return the process that stages, by the link that it leaves."""
    links = (path for folder in left(weigh) for path in folder.glob("task.*"))
    link = next(path for path in links if path.suffix != ".run")
    return int(os.readlink(link).split()[1])


def results(weigh: Weigh) -> dict[str, str]:
    found = (weigh.folder / "results").rglob("*")
    return {
        str(path.relative_to(weigh.folder / "results")): path.read_text()
        for path in found
        if path.is_file()
    }


@mainly("gridengine")
def test_results_of_every_element_come_home(weigh: Weigh) -> None:
    lines = [f"tr a-z A-Z <data/a >out{n}" for n in range(3)]

    job = weigh.submit(weigh.plan(*lines), *words(weigh))

    assert weigh.finish(job) == {"COMPLETED": 3}
    assert results(weigh) == {f"out{n}": "HELLO\n" for n in range(3)}
    until(lambda: not left(weigh))


@mainly("slurm")
def test_what_was_cancelled_comes_home_and_goes_on(weigh: Weigh) -> None:
    task = (SAVES + WAITS).format(weigh.folder)
    job = weigh.submit(weigh.plan(task), *words(weigh))
    until((weigh.folder / "began").exists)

    weigh("cancel", job)
    # Slurm at times tells a task before weigh exec: that one has failed
    assert "COMPLETED" not in weigh.finish(job)

    partial = f"partial-{job}_0"
    saved = f"{partial}/saved"
    until(lambda: saved in results(weigh), what=lambda: weigh("logs", job)[1])
    until(lambda: not left(weigh))
    (weigh.folder / "go").touch()
    again = weigh.resume(job)["again"][0]["job"]["id"]
    assert weigh.finish(again) == {"COMPLETED": 1}
    assert results(weigh) == {"saved": "saved\n", "steps": "step\nstep\n"}


@mainly("local")
def test_what_runs_into_its_time_limit_comes_home_before(weigh: Weigh) -> None:
    task = (SAVES + WAITS).format(weigh.folder)
    job = weigh.submit(weigh.plan(task), *words(weigh, "--time", "20s"))

    assert weigh.finish(job) == {"TIMEOUT": 1}

    assert results(weigh)[f"partial-{job}_0/saved"] == "saved\n"
    (weigh.folder / "go").touch()
    again = weigh.resume(job)["again"][0]
    assert again["wanted"]["time_limit"] >= 40
    assert weigh.finish(again["job"]["id"]) == {"COMPLETED": 1}
    assert results(weigh)["steps"] == "step\nstep\n"


@mainly("local")
def test_a_folder_an_element_stays_the_same_when_it_is_resumed(weigh: Weigh) -> None:
    task = "[ {0} = 2 ] || exit 0; echo {0} >>mine; [ $(wc -l <mine) = 2 ]"
    plan = weigh.plan(*[task.format(n) for n in range(3)])
    job = weigh.submit(plan, *words(weigh, "--stage-out", "results/%j/%a"))
    weigh.finish(job)

    again = weigh.resume(job)["again"][0]["job"]["id"]

    assert weigh.finish(again) == {"COMPLETED": 3}
    assert results(weigh) == {f"{job}/2/mine": "2\n2\n"}


@pytest.mark.slurm
def test_what_was_done_and_never_results_copied_is_done_again(
    real: Weigh,
) -> None:
    task = ("touch {0}/began; " + WAITS).format(real.folder)
    plan = real.plan(f"echo one >one; echo >>{real.folder}/ran", task, together=2)
    job = real.submit(plan, *words(real))
    until(lambda: real.status(job)["tasks"] == {"COMPLETED": 1, "RUNNING": 1})

    os.kill(staging_shell(real), signal.SIGKILL)
    assert "COMPLETED" not in real.finish(job)

    (real.folder / "go").touch()
    again = real.resume(job, "--also", "bugs")["again"][0]["job"]["id"]
    assert real.finish(again) == {"COMPLETED": 2}
    assert (real.folder / "ran").read_text() == "\n\n"
    assert results(real)["one"] == "one\n"


def test_a_program_that_would_stay_behind_is_staged(here: Weigh) -> None:
    (here.folder / "weigh.toml").write_text('scratch = "/disk/$USER"\n')
    (here.folder / "train.py").touch()
    (here.folder / "data.txt").touch()
    line = "cat data.txt|python train.py"
    words = ("submit", here.plan(line), "--on", "local", "--stage-out", "results")

    code, out, err = here(*words, "--dry-run")

    said = " ".join(err.split())
    assert code == 0
    assert "\nplaces=(train.py)\n" in out
    assert 'scratch=(\n  /disk/"${USER:?' in out
    assert "staged in too: train.py, without what it imports" in said
    assert "data.txt is not staged in" in said


def test_worked_examples_of_staged_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    path = Path(__file__).with_name("staged_programs.session")
    check_session(path, {"folder": folder})
