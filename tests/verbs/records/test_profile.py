import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from weigh.errors import CommandNotFoundError, FormatError, UsageError, WeighError
from weigh.flow.run import profile as profile_flow
from weigh.flow.run import profiled
from weigh.flow.run.profile import Ended, read_command, refuse_in_job, require_scalene
from weigh.render.profile_lines import (
    Line,
    Profile,
    read_profile,
    render_profile,
    top_lines,
)

needs_scalene = pytest.mark.skipif(
    importlib.util.find_spec("scalene") is None,
    reason="scalene is not installed: pip install scalene",
)
PROGRAM = """\
import json, sys
held = [bytes(1000) for _ in range(100_000)]
total = 0
for number in range(4_000_000):
    total += number * number
print(json.dumps([sys.argv, sys.stdin.read(), __name__]))
sys.exit(3)
"""
ARGUMENTS = ("--lr", "0.1", "--", "-x", "two words", "other.py", "---", "-h")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def weigh(folder: Path) -> Run:
    """Give ``weigh profile`` as a person calls it, in a folder of its own."""
    outside = {"SLURM_JOB_ID", "SGE_TASK_ID", "NSLOTS", "JOB_ID", "WEIGH_CHANNEL"}
    kept = {name: value for name, value in os.environ.items() if name not in outside}

    def run(
        *words: str, stdin: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "weigh", "profile", *words],
            input=stdin,
            env={**kept, "WEIGH_DIR": str(folder / "store"), **env},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def profiled_run(folder: Path, weigh: Run) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PROGRAM)
    command = (sys.executable, "train.py", *ARGUMENTS)
    return weigh("-o", "copy.json", "--", *command, stdin="some words")


class Sources(HTMLParser):
    """Collects what a page has a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe"):
            self.found += [v or "" for name, v in attrs if name in ("src", "href")]


def kept(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "store" / "profiles").glob(f"*.{ending}"))


@needs_scalene
def test_the_program_gets_its_arguments_streams_and_name(
    profiled_run: subprocess.CompletedProcess[str],
) -> None:
    argv, words, name = json.loads(profiled_run.stdout.splitlines()[0])
    assert (argv, words, name) == (["train.py", *ARGUMENTS], "some words", "__main__")


@needs_scalene
def test_the_programs_exit_code_passes_through(
    profiled_run: subprocess.CompletedProcess[str],
) -> None:
    assert profiled_run.returncode == 3


@needs_scalene
def test_the_lines_that_took_the_most_are_named_within_80_columns(
    profiled_run: subprocess.CompletedProcess[str],
) -> None:
    said = profiled_run.stderr
    table = said[said.index("weigh  profile ") :].splitlines()
    assert any("train.py:2 " in line and "MiB" in line for line in table)
    assert any("train.py:5 " in line and "%" in line for line in table)
    assert max(map(len, table)) <= 80


@needs_scalene
@pytest.mark.usefixtures("profiled_run")
def test_the_profile_is_kept_with_a_page_and_copied(folder: Path) -> None:
    (path,) = kept(folder, "json")
    (page,) = kept(folder, "html")
    assert page.stem == path.stem
    assert path.read_bytes() == (folder / "copy.json").read_bytes()
    assert str(folder / "train.py") in json.loads(path.read_bytes())["files"]


@needs_scalene
@pytest.mark.usefixtures("profiled_run")
def test_the_page_loads_nothing_from_elsewhere(folder: Path) -> None:
    (page,) = kept(folder, "html")
    sources = Sources()
    sources.feed(page.read_text())
    assert [word for word in sources.found if not word.startswith("data:")] == []


def test_what_scalene_runs_has_no_neighbours_that_a_library_could_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    neighbours: list[list[str]] = []

    def run(argv: Sequence[str], env: Mapping[str, str]) -> Ended:
        assert env
        neighbours.append(os.listdir(os.path.dirname(argv[-2])))
        return Ended(0)

    monkeypatch.setattr(profile_flow, "run_scalene", run)
    monkeypatch.setattr(profile_flow, "require_scalene", lambda _: None)
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()

    profile_flow.profile(["python", "train.py"], environ={"PATH": os.environ["PATH"]})

    assert [len(names) for names in neighbours] == [1]


@needs_scalene
def test_a_program_too_short_to_see_leaves_no_file_and_ends_as_it_would(
    folder: Path, weigh: Run
) -> None:
    (folder / "short.py").write_text("import sys; sys.exit(None)\n")
    before = kept(folder, "json")
    done = weigh("--no-html", "--", sys.executable, "short.py")
    assert done.returncode == 0
    assert "too short to see" in done.stderr
    assert kept(folder, "json") == before


@needs_scalene
def test_a_module_runs_as_python_m_and_its_error_is_its_own(
    folder: Path, weigh: Run
) -> None:
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tool.py").write_text(
        "import sys\nprint(__package__, sys.argv[1:])\nraise ValueError('bad')\n"
    )
    done = weigh("--no-html", "--", sys.executable, "-m", "package.tool", "-v")
    assert done.returncode == 1
    assert "package ['-v']" in done.stdout
    trace = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert trace[1].strip() == f'File "{package / "tool.py"}", line 3, in <module>'


def to_weigh(process: subprocess.Popen[str], number: int) -> None:
    process.send_signal(number)


def to_its_group(process: subprocess.Popen[str], number: int) -> None:
    os.killpg(process.pid, number)


@needs_scalene
@pytest.mark.skipif(sys.platform == "win32", reason="no process groups to signal")
@pytest.mark.parametrize(
    ("send", "number"),
    [(to_its_group, 2), (to_its_group, 15), (to_weigh, 15)],
    ids=["Ctrl-C", "timeout", "kill"],
)
def test_a_signal_ends_the_program_and_keeps_the_profile_up_to_there(
    folder: Path, send: Callable[[subprocess.Popen[str], int], None], number: int
) -> None:
    (folder / "long.py").write_text(
        "import sys\nprint('ready', flush=True)\nn = 0\n"
        "while n < 10_000_000:\n    n += 1\n"
        "print('half', flush=True)\nwhile True:\n    n += 1\n"
    )
    argv = [sys.executable, "-m", "weigh", "profile", "--no-html", "--"]
    store = str(folder / "interrupted")
    with subprocess.Popen(
        [*argv, sys.executable, "long.py"],
        env={**os.environ, "WEIGH_DIR": store},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert [next(child.stdout).strip() for _ in range(2)] == ["ready", "half"]
        send(child, number)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 128 + number
    assert "long.py:5 " in said


@needs_scalene
@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_what_the_program_leaves_behind_is_stopped_and_reported(
    folder: Path, weigh: Run
) -> None:
    (folder / "leaves.py").write_text(
        "import subprocess\n"
        "left = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print(left.pid, flush=True)\nleft.returncode = 0\n"
        "for n in range(3_000_000):\n    n += 1\n"
    )
    done = weigh("--no-html", "--", sys.executable, "leaves.py")
    pid = int(done.stdout.split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "stopped  a process that outlived the program" in done.stderr


@needs_scalene
def test_a_batch_job_is_profiled_when_forced(folder: Path, weigh: Run) -> None:
    (folder / "short.py").write_text("print('ran')\n")
    command = ("--", sys.executable, "short.py")
    refused = weigh(*command, SLURM_JOB_ID="481516")
    forced = weigh("--force", "--no-html", *command, SLURM_JOB_ID="481516")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert forced.stdout.startswith("ran")


@pytest.mark.parametrize(
    "environ",
    [{"SLURM_JOB_ID": "481516"}, {"JOB_ID": "481516", "SGE_TASK_ID": "undefined"}],
    ids=["Slurm", "Grid Engine"],
)
def test_inside_a_batch_job_one_line_names_the_job_and_the_way_out(
    environ: dict[str, str],
) -> None:
    with pytest.raises(UsageError, match=r"batch job 481516.*--force"):
        refuse_in_job(environ)


def test_outside_a_batch_job_nothing_is_refused() -> None:
    refuse_in_job({"JOB_ID": "nightly-build"})  # a name that others use too


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["bash", "run.sh"], "not a Python command: bash"),
        (["pythonista", "x.py"], "not a Python command: pythonista"),
        (["./train.py"], r"weigh profile -- python3 \./train\.py"),
        ([sys.executable], "needs a file or a module"),
        ([sys.executable, "-c", "pass"], "needs a file or a module"),
        ([sys.executable, "-m"], "needs a file or a module"),
        ([sys.executable, "-i", "x.py"], "option -i"),
        ([sys.executable, "no_such.py"], "no such file: no_such.py"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_one_line(
    command: list[str], says: str
) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        read_command(command)
    assert "\n" not in str(refused.value)


def test_a_python_that_is_not_there_is_named() -> None:
    with pytest.raises(CommandNotFoundError, match=r"python3\.99"):
        read_command(["python3.99", "train.py"])


def test_python_options_become_variables_that_outlive_scalenes_restart(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    program = read_command([sys.executable, "-u", "-O", str(script), "-u"])
    assert program.variables == {"PYTHONUNBUFFERED": "1", "PYTHONOPTIMIZE": "1"}
    assert program.words == ("-u",)


@pytest.mark.skipif(sys.platform == "win32", reason="no #! lines")
@pytest.mark.parametrize(
    ("version", "says"),
    [("", r"python3 -m pip install scalene$"), ("1.5.55", r"1\.5\.55 is too old")],
    ids=["missing", "old"],
)
def test_a_python_without_a_good_scalene_is_named_with_the_way_out(
    tmp_path: Path, version: str, says: str
) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\necho {version}\n")
    python.chmod(0o755)
    with pytest.raises(WeighError, match=says):
        require_scalene(str(python))


@pytest.mark.parametrize(
    ("end", "code"), [(None, 0), (0, 0), (7, 7), (True, 1), ("a message", 1)]
)
def test_exit_codes_are_those_of_python_itself(end: object, code: int) -> None:
    argv = [sys.executable, "-c", f"import sys; sys.exit({end!r})"]
    plain = subprocess.run(argv, stderr=subprocess.DEVNULL, check=False)
    assert profiled.exit_code(end) == plain.returncode == code


def test_a_file_that_is_no_profile_is_named() -> None:
    with pytest.raises(FormatError, match=r"some\.json is not a profile"):
        read_profile(b'{"files": 3}', path="some.json")


def a_line(number: int, share: float, memory: int, source: str = "x = 1") -> Line:
    return Line(
        file="/home/me/src/train.py",
        number=number,
        source=source,
        python=share,
        native=0.0,
        system=0.0,
        gpu=0.0,
        memory=memory,
    )


def test_lines_by_time_come_first_then_others_by_memory() -> None:
    lines = (a_line(1, 5, 9 << 30), a_line(2, 60, 0), a_line(3, 0, 2 << 30))
    numbers = [line.number for line in top_lines(Profile((*lines, a_line(4, 0.1, 9))))]
    assert numbers == [2, 1, 3]


def test_control_characters_in_a_source_line_reach_no_terminal() -> None:
    profile = Profile((a_line(1, 50, 0, "print('\x1b[31m')" + "long " * 40),))
    text = render_profile(profile, cwd="/home/me")
    assert "\x1b" not in text
    assert "src/train.py:1" in text
    assert max(map(len, text.splitlines())) <= 80


def test_copies_and_gpu_time_have_columns_where_there_are_any() -> None:
    line = {"lineno": 3, "line": "b = a.copy()", "n_cpu_percent_c": 40.0}
    plain = {"files": {"/w/a.py": {"lines": [line]}}, "elapsed_time_sec": 2.0}
    copying = {**line, "n_copy_mb_s": 250.0, "n_gpu_percent": 30.0, "n_peak_mb": 80.0}
    busy = {**plain, "files": {"/w/a.py": {"lines": [copying]}}}

    shown = [
        render_profile(read_profile(json.dumps(one).encode(), path="x"), cwd="/w")
        for one in (plain, busy)
    ]

    assert "copied/s" not in shown[0]
    assert "gpu" not in shown[0]
    assert "  python  native  system   gpu   copied/s  allocated  line" in shown[1]
    assert "30 %    250 MiB   80.0 MiB  a.py:3" in shown[1]
