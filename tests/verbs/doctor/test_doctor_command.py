import json
import os
import subprocess
import sys
from pathlib import Path


def weigh_doctor(
    folder: Path, *words: str, **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weigh", "doctor", *words],
        cwd=folder,
        # no scheduler on PATH: one whose daemons are not there is asked for long
        env=dict(os.environ) | {"HOME": str(folder), "PATH": str(folder)} | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fake(folder: Path, name: str, body: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def states(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    document = json.loads(done.stdout)
    checks = [*document["checks"], *document["job"]]
    return {check["name"]: check["state"] for check in checks}


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    weigh_doctor(tmp_path, "run.sh", PATH=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_scheduler_that_fails_breaks_the_page(tmp_path: Path) -> None:
    fake(tmp_path, "sbatch", "exit 0")
    fake(tmp_path, "sinfo", "echo 'cannot contact controller' >&2; exit 1")
    done = weigh_doctor(tmp_path, "--json", PATH=str(tmp_path))
    assert done.returncode == 1
    assert states(done)["scheduler"] == "broken"
    assert json.loads(done.stdout)["broken"] is True


def test_commands_of_a_scheduler_without_a_cluster_break_nothing(
    tmp_path: Path,
) -> None:
    fake(tmp_path, "sbatch", "exit 0")
    words = "sinfo: fatal: Could not establish a configuration source"
    fake(tmp_path, "sinfo", f"echo '{words}' >&2; exit 1")
    done = weigh_doctor(tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0, done.stdout
    assert "Slurm: no cluster is set up here" in done.stdout


def test_a_driver_that_lies_about_gives_no_traceback(tmp_path: Path) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_text("not a library")
    done = weigh_doctor(tmp_path, PATH=str(tmp_path), LD_LIBRARY_PATH=str(tmp_path))
    assert "Traceback" not in done.stderr


def test_a_script_that_is_not_there_breaks_the_page(tmp_path: Path) -> None:
    done = weigh_doctor(tmp_path, "nosuch.sh")
    assert done.returncode == 1
    assert "nosuch.sh: it is not there" in done.stdout


def test_records_that_cannot_be_written_break_the_page(tmp_path: Path) -> None:
    done = weigh_doctor(tmp_path, "--json", WEIGH_DIR="/proc/self/weigh")
    assert states(done)["records"] == "broken"


def test_a_folder_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"/bin/rmdir {gone}; exec {sys.executable} -m weigh doctor --json"
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=gone,
        env=dict(os.environ) | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert json.loads(done.stdout)["schema"] == "weigh.doctor/1"
