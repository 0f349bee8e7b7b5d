import os
import subprocess
import sys
import threading
from pathlib import Path

from sessions import check_session

from weigh.probe.filesystem import read_disk
from weigh.probe.python_environment import (
    environment_of,
    find_python,
)


def test_worked_examples_of_probes_and_questions(tmp_path: Path) -> None:
    never = threading.Event()
    try:
        for name in ("doctor_probes.session", "ask.session"):
            names = {"folder": tmp_path, "never": never}
            check_session(Path(__file__).with_name(name), names)
    finally:
        never.set()


def test_a_disk_is_as_df_shows(tmp_path: Path) -> None:
    disk = read_disk(str(tmp_path))
    argv = ["df", "-B1", "--output=size,fstype", str(tmp_path)]
    words = subprocess.check_output(argv, text=True).splitlines()[1].split()
    assert (str(disk.size), disk.kind) == tuple(words)


def test_a_folder_that_is_not_there_is_on_the_disk_of_the_one_above(
    tmp_path: Path,
) -> None:
    disk = read_disk(str(tmp_path / "a" / "b"))
    assert disk.size == read_disk(str(tmp_path)).size
    assert disk.writable


def test_the_python_found_is_the_one_a_shell_would_start() -> None:
    shells = subprocess.check_output(["sh", "-c", "command -v python"], text=True)
    assert find_python(os.environ) == shells.strip()


def test_a_real_venv_is_known_as_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")]
    subprocess.run(argv, check=True, timeout=120)
    found = environment_of(str(tmp_path / "v" / "bin" / "python"))
    assert (found.kind, found.name) == ("venv", "v")
