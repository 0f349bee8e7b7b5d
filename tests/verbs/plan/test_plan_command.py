"""What ``weigh plan`` writes."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from called_weigh import work_alone_in
from planning import HUNDRED, gpu_run, read_plan
from sessions import check_session
from some_runs import keep_runs

from weigh.cli.main import run_cli


def call(*words: str) -> tuple[int, str, str]:
    """Call weigh in a session, which has an output of its own."""
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2)]
    with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        code = run_cli(words, [])
    for one in streams:
        one.seek(0)
    return code, streams[0].read(), streams[1].read()


def test_a_long_name_is_refused_with_the_option_and_none_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_alone_in(tmp_path, monkeypatch)
    needs = "--memory", "1G", "--time", "5m"
    (tmp_path / f"{'é' * 125}.txt").write_text("true\n")

    code, _, err = call("plan", f"{'é' * 125}.txt", *needs)
    assert (code, err.count("\n"), "--name" in err) == (2, 1, True)
    assert call("plan", f"{'é' * 125}.txt", "--name", "é" * 100, *needs)[0] == 0
    assert call("submit", "--on", "local", "--dry-run", *needs, "--", "é" * 250)[0] == 0


def files_of(folder: Path) -> list[Path]:
    return list(folder.glob("tasks_*.txt"))


def test_worked_examples_of_written_plans(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def a_folder() -> Path:
        folder = tmp_path_factory.mktemp("plan")
        work_alone_in(folder, monkeypatch)
        (folder / "tasks.txt").write_text(HUNDRED)
        return folder

    def keep(command: str, *held: int, busy: float | None = None) -> None:
        keep_runs(Path.cwd(), gpu_run(command, *held, busy=busy))

    names = {
        "HUNDRED": HUNDRED,
        "a_folder": a_folder,
        "files_of": files_of,
        "keep": keep,
        "lines_of": lambda folder: [
            line for one in files_of(folder) for line in one.read_text().splitlines()
        ],
        "read_plan": read_plan,
        "weigh": call,
    }
    check_session(Path(__file__).with_name("written_plans.session"), names)


def plan_files(folder: Path) -> dict[Path, bytes]:
    """Return what all files of plans hold, also those that are hidden."""
    paths = (folder / "plan").rglob("*")
    return {path: path.read_bytes() for path in paths if path.is_file()}


@pytest.mark.parametrize("earlier", [True, False])
def test_a_full_disk_leaves_no_half_of_a_plan(tmp_path: Path, *, earlier: bool) -> None:
    said = ["--memory", "1G", "--cpus", "1", "--time", "5m", "--replace"]
    argv = [sys.executable, "-m", "weigh", "plan", "tasks.txt", *said]
    (tmp_path / "tasks.txt").write_text("true 1\n")
    if earlier:
        subprocess.run(argv, cwd=tmp_path, check=True, capture_output=True)
    before = plan_files(tmp_path)
    (tmp_path / "tasks.txt").write_text(f"true {'1' * 3000}\n")

    # no file may be larger than 1 KiB
    limited = ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", *argv]
    done = subprocess.run(
        limited, cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert (done.returncode, "cannot write" in done.stderr) == (125, True)
    assert plan_files(tmp_path) == before
    assert (tmp_path / "plan").exists() == earlier
