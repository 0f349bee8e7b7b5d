import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from some_requests import some_plan

from weigh.flow import doctor
from weigh.flow.doctor import (
    DoctorJob,
    job_checks,
    named_paths,
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
from weigh.model.record import Record, Usage
from weigh.store.identity import this_machine
from weigh.store.shards import append_record

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


def test_outside_a_checkout_git_is_reported(tmp_path: Path) -> None:
    assert "not a git repository" in check_of(tmp_path, "code").text


@pytest.mark.parametrize(
    ("lines", "asks"),
    [
        ("#SBATCH --gres=gpu:v100:1|#SBATCH --gpus-per-node=2|#SBATCH -G 1", True),
        ("#$ -l ngpus=1|#$ -l gpu=1,h_vmem=8G", True),
        ("#$ -l ngpus=0|#SBATCH --mem=4G|echo --gres=gpu:1", False),
    ],
)
def test_a_script_requests_gpus_by_its_directives(
    tmp_path: Path,
    lines: str,
    asks: bool,  # noqa: FBT001 - a parameter of the table
) -> None:
    for line in lines.split("|"):
        a_script(tmp_path, line)
        assert (line, facts(tmp_path).asks_gpus) == (line, asks)


def test_the_files_a_script_names_are_found(tmp_path: Path) -> None:
    named = (tmp_path / "data.csv", tmp_path / "a" / "in")
    named[1].parent.mkdir()
    # a file is called as a word by chance
    for path in (*named, tmp_path / "python"):
        path.touch()
    a_script(tmp_path, "python t.py a/in --data=data.csv 'it goes on", "# x.csv'")
    paths = named_paths(facts(tmp_path).lines, str(tmp_path))
    assert set(paths) == {str(path) for path in (tmp_path, *named)}


def test_400_words_of_a_script_are_looked_at_and_40_paths_in_it(
    tmp_path: Path,
) -> None:
    names = [f"in.{number}" for number in range(50)]
    for name in names:
        (tmp_path / name).touch()
    paths = [str(tmp_path / name) for name in names]
    cwd = str(tmp_path)
    assert named_paths([" ".join(names)], cwd) == [cwd, *paths[:39]]
    assert named_paths(["x " * 399 + " ".join(names)], cwd) == [cwd, paths[0]]


def test_records_of_what_a_script_runs_are_counted(tmp_path: Path) -> None:
    ran = (["python", "a.py", "data", "7"], ["python", "b.py"], ["python", "-m", "a"])
    for number, command in enumerate(ran):
        record = Record(
            id=f"00000000000{number}",
            command=tuple(command),
            cwd=str(tmp_path),
            started="2026-11-21T10:00:00Z",
            ended="2026-11-21T10:00:01Z",
            state="COMPLETED",
            exit_code=0,
            usage=Usage(wall_time=1.0),
        )
        append_record(str(tmp_path / ".weigh"), record, this_machine())
    a_script(tmp_path, "/usr/bin/python a.py --epochs 9")
    assert facts(tmp_path.parent, f"{tmp_path.name}/run.sh").folder == str(tmp_path)
    assert facts(tmp_path, "run.sh").runs == 2


def test_a_plan_reports_its_runs_and_whether_its_files_are_there(
    tmp_path: Path,
) -> None:
    a_plan(tmp_path)
    found = facts(tmp_path, "plan/p")
    assert (found.description, found.runs) == ("plan/p: a plan of 4 tasks", 2)
    assert (found.asks_gpus, found.gpu_runs, found.trouble) == (True, 2, None)
    a_plan(tmp_path / "unknown", kinds=())
    unknown = facts(tmp_path / "unknown", "plan/p")
    assert (unknown.runs, unknown.gpu_runs) == (0, 0)
    (tmp_path / "plan" / "p" / "tasks_1.txt").unlink()
    assert "1 task files are missing: tasks_1.txt" in (
        check_of(tmp_path, "script", "plan/p").text
    )


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1}', "\x00\xff"])
def test_a_plan_that_does_not_parse_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    found = facts(tmp_path, "plan.json")
    assert found.trouble is not None
    assert "cannot be read" in found.trouble


def test_sizes_are_ticked_when_records_stand_behind_them(tmp_path: Path) -> None:
    a_plan(tmp_path)
    known = check_of(tmp_path, "RAM", "plan/p")
    assert (known.state, known.text) == ("ok", "known from 2 runs")
    assert check_of(tmp_path, "GPUs", "plan/p").state == "ok"
    a_script(tmp_path, "#SBATCH --gres=gpu:1", "python never-measured.py")
    assert check_of(tmp_path, "RAM").state == "warning"
    found = check_of(tmp_path, "GPUs")
    assert found.state == "warning"
    assert found.text == "it requests GPUs, but no record used one"


@pytest.mark.parametrize(
    ("kind", "is_shared", "text"),
    [
        ("ext4", False, "on this machine's own disk: this directory, data.csv"),
        ("nfs4", True, "its files are on a shared disk (nfs4)"),
        (None, None, "its files are on a shared disk (?)"),
    ],
)
def test_data_on_a_disk_of_this_machine_alone_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str | None,
    is_shared: bool | None,  # noqa: FBT001 - a table
    text: str,
) -> None:
    disk = DiskSpace(path="/", kind=kind, is_shared=is_shared)
    monkeypatch.setattr(doctor, "read_disk", lambda *_: disk)
    (tmp_path / "sbatch").touch(mode=0o755)
    (tmp_path / "data.csv").touch()
    a_script(tmp_path, "python train.py data.csv")
    check = check_of(tmp_path, "data", PATH=str(tmp_path))
    assert (check.state, check.text) == ("ok" if "shared" in text else "warning", text)
