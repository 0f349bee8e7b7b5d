import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from called_weigh import CalledWeigh, called_here, work_alone_in


@pytest.fixture
def doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CalledWeigh:
    """Call ``weigh doctor`` in a home of its own, with no other program on PATH."""
    work_alone_in(tmp_path, monkeypatch)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    return called_here(capsys, "doctor", "--json")


NO_CLUSTER = "sinfo: fatal: Could not establish a configuration source"


@pytest.mark.parametrize(
    ("sinfo", "code", "found"),
    [
        ("no controller", 1, ("scheduler", "broken", "Slurm: no controller")),
        (NO_CLUSTER, 0, ("scheduler", "warning", "Slurm: no cluster is set up here")),
        (None, 1, ("script", "broken", "nosuch.sh: it is not there")),
    ],
)
def test_what_is_broken_is_the_exit_code_and_nothing_is_left_behind(
    doctor: CalledWeigh,
    tmp_path: Path,
    sinfo: str | None,
    code: int,
    found: tuple[str, str, str],
) -> None:
    for name in ("sbatch", "sinfo") if sinfo else ():
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{sinfo}' >&2; exit 1\n")
        (tmp_path / name).chmod(0o755)
    before = set(tmp_path.iterdir())
    ended, out, _ = doctor(*([] if sinfo else ["nosuch.sh"]))
    document = json.loads(out)
    checks = [*document["checks"], *document["job"]]
    assert found in {(one["name"], one["state"], one["text"]) for one in checks}
    assert (ended, document["broken"]) == (code, bool(code))
    assert set(tmp_path.iterdir()) == before


def test_a_driver_that_is_no_library_and_a_folder_that_is_gone_are_no_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f"/bin/rmdir {gone}; exec {sys.executable} -m weigh doctor --json"
    paths = {"PATH": str(tmp_path), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=gone,
        env=dict(os.environ) | paths,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert json.loads(done.stdout)["schema"] == "weigh.doctor/1"
    assert "Traceback" not in done.stderr
