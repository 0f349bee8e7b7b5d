import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
import some_runs
from sessions import check_session
from some_requests import some_plan
from some_runs import a_run

from weigh.flow import doctor
from weigh.flow.doctor import (
    DoctorJob,
    job_checks,
    read_job,
)
from weigh.flow.here import here_of
from weigh.flow.site.ask import run_query_command
from weigh.model.doctor import DiskSpace, DoctorCheck
from weigh.model.plan import (
    PlannedElement,
    PlanRequest,
    TaskKind,
    TaskNeed,
)

ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
}


def facts(folder: Path, named: str = "run.sh") -> DoctorJob:
    return read_job(here_of(str(folder), ENV), named)


def check_of(folder: Path, name: str, named: str = "run.sh", **env: str) -> DoctorCheck:
    """Give the check of that name."""
    checks = job_checks(here_of(str(folder), ENV | env), named, run_query_command)
    return next(check for check in checks if check.name == name)


def git(folder: Path, *words: str) -> None:
    argv = ["git", "-C", str(folder), *words]
    subprocess.run(argv, check=True, env=ENV, capture_output=True, timeout=60)


def a_script(folder: Path, *lines: str) -> None:
    (folder / "run.sh").write_text("\n".join(("#!/bin/bash", *lines)) + "\n")


def a_plan(folder: Path, **changed: object) -> None:
    plan = some_plan(
        tasks=4,
        request=PlanRequest(cpus=1, gpus=1),
        kinds=(TaskKind(TaskNeed(), TaskNeed(gpu_memory=1), 4, "python a.py", runs=2),),
        elements=(PlannedElement("tasks_1.txt", (1, 2, 3, 4), 0, 0, 1),),
    )
    (folder / "plan" / "p").mkdir(parents=True)
    (folder / "plan" / "p" / "tasks_1.txt").touch()
    whole = msgspec.structs.replace(plan, **changed)
    (folder / "plan" / "p" / "plan.json").write_bytes(msgspec.json.encode(whole))


def keep_runs(folder: Path, *commands: str) -> None:
    for number, command in enumerate(commands):
        run = a_run(command, id=f"{number:012}", cwd=str(folder), wall_time=1.0)
        some_runs.keep_runs(folder, run)


def test_worked_examples_of_jobs(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk(kind: str | None, *, is_shared: bool | None) -> None:
        """Let every folder be on a disk of this kind."""
        found = DiskSpace(path="/", kind=kind, is_shared=is_shared)
        monkeypatch.setattr(doctor, "read_disk", lambda *_: found)

    def a_folder(*files: str) -> Path:
        folder = tmp_path_factory.mktemp("job")
        for name in files:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        return folder

    helpers = (a_folder, a_plan, a_script, check_of, disk, facts, keep_runs)
    names = {one.__name__: one for one in helpers}
    check_session(Path(__file__).with_name("doctor_job.session"), names)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_a_real_checkout_is_followed_from_nothing_to_pushed(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    git(tmp_path, "init", "-q", "--bare", str(there))
    git(tmp_path, "init", "-q", str(here))
    a_script(here)
    assert check_of(here, "code").text == "not committed: 1 file"
    git(here, "add", "-A")
    git(here, "commit", "-qm", "one")
    assert check_of(here, "code").text == "committed, but not pushed"
    git(here, "remote", "add", "origin", str(there))
    git(here, "push", "-qu", "origin", "HEAD")
    assert check_of(here, "code").state == "ok"
    a_script(here, "true")
    git(here, "commit", "-qam", "two")
    assert check_of(here, "code").text == "committed, but not pushed"
