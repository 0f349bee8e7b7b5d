import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from called_weigh import called_apart
from processes import Weigh, is_running, is_stopped, until
from run_captured import run_captured
from transcript import check_transcript

from weigh.measure.launcher import JobLauncher

ENV = shutil.which("env") or "env"


def _script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("code", [0, 7, 127, 255])
def test_the_jobs_exit_code_passes_through(each_weigh: Weigh, code: int) -> None:
    assert each_weigh.run("--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["INT", "QUIT", "KILL", "SEGV"])
def test_a_job_that_a_signal_ended_reads_as_128_plus_n(
    each_weigh: Weigh, name: str
) -> None:
    number = signal.Signals[f"SIG{name}"]
    done = each_weigh.run("--", "sh", "-c", f"ulimit -c 0; kill -{name} $$")
    assert done.returncode == 128 + number
    assert each_weigh.record()["signal"] == number


# what cannot be started, made in a folder
UNSTARTABLE: dict[str, Callable[[Path], Path]] = {
    "no such command": lambda folder: folder / "nowhere",
    "below a file": lambda folder: _script(folder / "file", "") / "command",
    "not executable": lambda folder: _script(folder / "data.txt", "text", 0o644),
    "a folder": lambda folder: folder,
    "no interpreter": lambda folder: _script(folder / "script", "#!/no/such/thing\n"),
}


@pytest.mark.parametrize("what", UNSTARTABLE)
def test_what_cannot_be_started_has_the_code_that_env_gives(
    each_weigh: Weigh, tmp_path: Path, what: str
) -> None:
    command = str(UNSTARTABLE[what](tmp_path))
    expected = subprocess.run([ENV, command], capture_output=True, check=False)
    done = each_weigh.run("--", command)
    assert done.returncode == expected.returncode
    assert command.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


@pytest.mark.parametrize("words", [("--", "no-such-command"), ("--attach", "0")])
def test_where_nothing_was_run_no_file_of_a_record_is_left(
    weigh: Weigh, words: tuple[str, ...]
) -> None:
    (weigh.folder / "earlier.json").write_text("a record")
    for name in ("new.json", "earlier.json"):
        assert weigh.run("-o", name, *words).returncode
    assert (weigh.folder / "earlier.json").read_text() == "a record"
    assert not (weigh.folder / "new.json").exists()


# a file of each line's words, and a mode: what a command line of the transcript names
FILES = {
    "train.py": ("print(1)\n", 0o644),
    "my job": ("#!/bin/sh\n", 0o644),
    "no_first_line.py": ("import os\n", 0o755),
    "no_interpreter": ("#!/no/such/python3 -u\n", 0o755),
    "windows": ("#!/bin/sh\r\nexit 0\r\n", 0o755),
    "train.sh": ("#!/bin/sh\n", 0o755),
}


def test_what_does_not_start_is_one_line_with_the_way_out(tmp_path: Path) -> None:
    for name, (text, mode) in FILES.items():
        (tmp_path / name).write_bytes(text.encode())
        (tmp_path / name).chmod(mode)

    def weigh(*words: str) -> tuple[int, str, str]:
        done = called_apart(tmp_path, "run", *words)
        return done.returncode, done.stdout, done.stderr

    transcript = Path(__file__).with_name("not_started.transcript")
    check_transcript(transcript, weigh, {str(tmp_path): "HERE"})
    assert not (tmp_path / "made").exists()


def test_an_interpreter_with_a_line_end_of_windows_that_env_looks_for_is_named(
    weigh: Weigh, tmp_path: Path
) -> None:
    script = _script(tmp_path / "job", "#!/usr/bin/env python3\r\nexit 0\r\n")
    done = weigh.run("--", str(script))
    assert done.returncode == 127
    assert b"first line ends as on Windows   (dos2unix" in done.stderr


def test_a_script_without_its_first_line_runs_as_from_a_shell(
    weigh: Weigh, tmp_path: Path
) -> None:
    script = _script(tmp_path / "plain", 'echo "$# $2"; exit 4\n')
    done = weigh.run("-q", "--", str(script), "a", "b c")
    assert (done.returncode, done.stdout) == (4, b"2 b c\n")


def test_path_is_searched_past_what_cannot_be_executed(
    weigh: Weigh, tmp_path: Path
) -> None:
    for name, mode in (("first", 0o644), ("second", 0o755)):
        (tmp_path / name).mkdir()
        _script(tmp_path / name / "tag", "#!/bin/sh\nexit 5\n", mode)
    path = f"{tmp_path}/nowhere:{tmp_path}/first:{tmp_path}/second"
    assert weigh.run("--", "tag", env=weigh.env(PATH=path)).returncode == 5


def test_a_launcher_that_fails_before_it_is_measured_names_its_error() -> None:
    # no descriptor is left for what the launcher reads of itself
    code = (
        "import os\n"
        "from weigh.errors import CommandNotExecutableError\n"
        "from weigh.measure import launcher\n"
        "def fails(): raise OSError(24, 'Too many open files')\n"
        "launcher.first_environment = fails\n"
        "try: print('ran', launcher.JobLauncher().launch(['true'], {}))\n"
        "except CommandNotExecutableError as error: print(error)\n"
    )
    done = run_captured([sys.executable, "-c", code])
    assert done.stdout == "cannot execute true: Too many open files\n"


def test_a_launcher_that_was_stopped_holds_nobody_up() -> None:
    launcher = JobLauncher()
    os.kill(launcher.pid, signal.SIGSTOP)
    until(lambda: is_stopped(launcher.pid), "it to stop")
    launcher.discard()
    assert not is_running(launcher.pid)


HOLDS_100_MIB = "b = bytearray(b'x') * (100 << 20); raise SystemExit({})"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("limit", "own", "expected"),
    [
        ("80MiB", 0, 123),
        ("200MiB", 0, 0),
        ("80MiB", 7, 7),  # the command's own failure is the one to see
        ("200MiB", 7, 7),
    ],
)
def test_fail_above_is_an_exit_code_of_its_own(
    weigh: Weigh, limit: str, own: int, expected: int
) -> None:
    program = HOLDS_100_MIB.format(own)
    words = ("-q", f"--memory={limit}")  # -q does not hide why
    done = weigh.run(*words, "--", sys.executable, "-c", program)
    code, said = done.returncode, done.stderr.decode()
    assert code == expected, said
    assert ("exceeds the 80.0 MiB of --memory" in said) == (expected == 123), said
