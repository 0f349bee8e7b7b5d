import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Weigh

ENV = shutil.which("env") or "env"


def _script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("code", [0, 7, 127, 255])
def test_the_jobs_exit_code_passes_through(weigh: Weigh, code: int) -> None:
    assert weigh.run("--", "sh", "-c", f"exit {code}").returncode == code


@pytest.mark.parametrize("name", ["INT", "QUIT", "KILL", "SEGV"])
def test_a_job_that_a_signal_ended_reads_as_128_plus_n(weigh: Weigh, name: str) -> None:
    number = signal.Signals[f"SIG{name}"]
    done = weigh.run("--", "sh", "-c", f"ulimit -c 0; kill -{name} $$")
    assert done.returncode == 128 + number
    assert weigh.record()["signal"] == number


def _no_such_command(folder: Path) -> str:
    return str(folder / "nowhere")


def _below_a_file(folder: Path) -> str:
    return str(_script(folder / "file", "") / "command")


def _not_executable(folder: Path) -> str:
    return str(_script(folder / "data.txt", "text", 0o644))


def _folder(folder: Path) -> str:
    return str(folder)


def _no_interpreter(folder: Path) -> str:
    return str(_script(folder / "script", "#!/no/such/interpreter\n"))


@pytest.mark.parametrize(
    "make",
    [_no_such_command, _below_a_file, _not_executable, _folder, _no_interpreter],
)
def test_what_cannot_be_started_has_the_code_that_env_gives(
    weigh: Weigh, tmp_path: Path, make: "object"
) -> None:
    assert callable(make)
    command = make(tmp_path)
    expected = subprocess.run([ENV, command], capture_output=True, check=False)
    done = weigh.run("--", command)
    assert done.returncode == expected.returncode
    assert command.encode() in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert done.stdout == b""


def test_a_script_next_to_you_gets_the_dot_slash_offered(
    weigh: Weigh, tmp_path: Path
) -> None:
    _script(tmp_path / "train.sh", "#!/bin/sh\n")
    done = weigh.run("--", "train.sh")
    assert done.returncode == 127
    assert b"did you mean ./train.sh?" in done.stderr


def _hint(weigh: Weigh, name: str) -> tuple[int, str]:
    done = weigh.run("--", name)
    assert done.stderr.count(b"\n") == 1 or b"127" in done.stderr
    return done.returncode, done.stderr.decode()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("true --now", "without the quotes: true --now"),
        ("python train.py", "without the quotes: python train.py"),
        ("./train.py --epochs 1", "without the quotes: ./train.py --epochs 1"),
        ("cat a | wc -l", "for a shell: bash -c 'cat a | wc -l'"),
        ("OMP_NUM_THREADS=1", "put env before it: env OMP_NUM_THREADS=1"),
        ("cd", "for a shell: bash -c 'cd ... && COMMAND'"),
        ("module", "for a shell: bash -c 'module ... && COMMAND'"),
    ],
)
def test_a_command_in_quotes_gets_a_hint(weigh: Weigh, name: str, hint: str) -> None:
    code, said = _hint(weigh, name)
    assert (code, hint in said) == (127, True), said


@pytest.mark.parametrize(
    ("name", "text", "mode", "code", "hints"),
    [
        ("./train.py", "print(1)\n", 0o644, 126, ["(write: python ./train.py)"]),
        ("./my job", "#!/bin/sh\n", 0o644, 126, ["(write: chmod +x './my job')"]),
        ("train.py", "print(1)\n", 0o644, 127, ["(did you mean python train.py?)"]),
        (  # not given to sh
            "./train.py",
            "import os\n",
            0o755,
            126,
            ["has no #! line", "(write: python ./train.py)"],
        ),
        (
            "./job",
            "#!/no/such/python3 -u\n",
            0o755,
            127,
            ["does not exist: /no/such/python3"],
        ),
        *(
            (
                "./job",
                f"{first}\r\nexit 0\r\n",
                0o755,
                127,
                ["first line ends as on Windows   (dos2unix ./job)"],
            )
            for first in ("#!/bin/sh", "#!/usr/bin/env python3")
        ),
    ],
)
def test_a_script_that_does_not_start_gets_a_hint(  # noqa: PLR0913, PLR0917
    weigh: Weigh, name: str, text: str, mode: int, code: int, hints: list[str]
) -> None:
    (weigh.folder / name).write_bytes(text.encode())
    (weigh.folder / name).chmod(mode)
    done, said = _hint(weigh, name)
    assert done == code, said
    assert all(hint in said for hint in hints), said


def test_an_empty_name_is_a_command_not_found(weigh: Weigh) -> None:
    done = weigh.run("--", "")
    assert done.returncode == 127
    assert b"command not found" in done.stderr


def test_a_missing_interpreter_is_named_as_the_reason(
    weigh: Weigh, tmp_path: Path
) -> None:
    _script(tmp_path / "tag", "#!/no/such/interpreter\n")
    done = weigh.run("--", "tag", env=weigh.env(PATH=str(tmp_path)))
    assert done.returncode == 127
    assert b"interpreter" in done.stderr


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


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["touch", "made"], "put -- before the command: weigh run -- touch made"),
        (["--param", "n=1", "touch", "made"], "weigh run --param n=1 -- touch made"),
        (["--repeet", "3", "--", "touch", "made"], "--repeat"),
        (["--epochs", "1", "--", "touch", "made"], "options of the command go after"),
        (["--param", "n", "--", "touch", "made"], "NAME=VALUE"),
        (["--interval", "-1", "--", "touch", "made"], "not a time: '-1'"),
        (["--repeat", "0", "--", "touch", "made"], "--repeat"),
        (["--headroom", "much", "--", "touch", "made"], "much"),
        (["-o", "no/such/folder/r.json", "--", "touch", "made"], "choose another"),
        (["--label", "last", "--", "touch", "made"], "cannot be a label"),
        (["--"], "COMMAND"),
        ([], "COMMAND"),
    ],
)
def test_bad_words_get_one_line_and_125_and_nothing_runs(
    weigh: Weigh, words: list[str], hint: str
) -> None:
    done = weigh.run(*words)
    assert done.returncode == 125
    assert hint in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert not (weigh.folder / "made").exists()
    assert not weigh.left()


def test_a_launcher_that_fails_before_it_is_measured_names_its_error() -> None:
    # no descriptor is left for what the launcher reads of itself
    code = (
        "import os\n"
        "from weigh.errors import CommandNotExecutableError\n"
        "from weigh.measure import launcher\n"
        "def fails(): raise OSError(24, 'Too many open files')\n"
        "launcher.first_environment = fails\n"
        "try: print('ran', launcher.JobLauncher().launch(['true'], {}).peak_memory)\n"
        "except CommandNotExecutableError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout == "cannot execute true: Too many open files\n"


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
