import csv
import errno
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from called_weigh import called_here
from processes import WEIGH
from transcript import check_transcript, with_compact_documents

Weigh = Callable[..., tuple[int, str, str]]

RUN = ("python", "run.py", "--lr", "{lr}", "--seed={seed}")


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    monkeypatch.chdir(tmp_path)
    return called_here(capsys, "sweep")


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")


def test_a_sweep_writes_one_line_a_task_and_its_parameters_next_to_it(
    weigh: Weigh, tmp_path: Path
) -> None:
    assert weigh("lr=1e-2,1e-3", "seed=1..5", "-o", "my.tasks", "--", *RUN)[0] == 0
    pairs = [*itertools.product(["1e-2", "1e-3"], map(str, range(1, 6)))]
    tasks = [f"python run.py --lr {lr} --seed={seed}" for lr, seed in pairs]
    assert lines(tmp_path / "my.tasks") == [*tasks, ""]
    with (tmp_path / "my.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    assert [(row["lr"], row["seed"]) for row in rows] == pairs
    assert [row["Command"] for row in rows] == tasks
    assert [row["Seq"] for row in rows] == [str(n) for n in range(1, 11)]


def test_bytes_that_are_no_utf_8_reach_the_program(tmp_path: Path) -> None:
    subprocess.run(
        b"%s -m weigh sweep --json x=$'a\\377',$'\\376' -- printf '%%s\\0' {x}"
        % sys.executable.encode(),
        shell=True,
        executable="bash",
        cwd=tmp_path,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    done = subprocess.run(
        ["bash", str(tmp_path / "tasks.txt")], capture_output=True, check=True
    )
    assert done.stdout == b"a\xff\0\xfe\0"
    assert b"1\ta\xff\t" in (tmp_path / "tasks.tsv").read_bytes()


def test_a_draw_states_how_to_draw_it_again(weigh: Weigh, tmp_path: Path) -> None:
    argv = ("x=1..1000", "y=1..1000", "--random")
    command = ("--", "run", "{x}", "{y}")
    _, out, _ = weigh(*argv, "5", *command)
    drawn = out.splitlines()[0].rpartition(" ")[2]
    once = lines(tmp_path / "tasks.txt")
    weigh(*argv, drawn, "-o", "again.txt", *command)
    assert len(set(once)) == 6
    assert lines(tmp_path / "again.txt") == once


def test_the_same_sweep_again_changes_nothing(weigh: Weigh, tmp_path: Path) -> None:
    weigh("x=1..3", "--", "run", "{x}")
    before = (tmp_path / "tasks.txt").stat().st_mtime_ns
    code, out, _ = weigh("x=1..3", "--", "run", "{x}")
    assert (code, out.splitlines()[-1].split()[0]) == (0, "unchanged")
    assert (tmp_path / "tasks.txt").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", ["tasks.txt", "tasks.tsv"])
def test_a_file_that_differs_is_kept_unless_forced(
    weigh: Weigh, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("mine\n")
    code, _, err = weigh("x=1..3", "--", "run", "{x}")
    assert (code, (tmp_path / name).read_text()) == (2, "mine\n")
    assert f"{name} is there and differs" in err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert weigh("x=1..3", "--replace", "--", "run", "{x}")[0] == 0


def test_a_full_disk_leaves_what_was_there(weigh: Weigh, tmp_path: Path) -> None:
    weigh("x=1", "--", "run", "{x}")
    argv = [*WEIGH, "sweep", "x=2", "--replace", "--", "run", "{x}"]
    full = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *argv]
    done = subprocess.run(full, capture_output=True, text=True, check=False)
    said = "weigh: cannot write tasks.txt: File too large (choose another -o FILE)\n"
    assert (done.returncode, done.stderr) == (125, said)
    assert (tmp_path / "tasks.txt").read_text() == "run 1\n"
    assert {path.name for path in tmp_path.iterdir()} == {"tasks.tsv", "tasks.txt"}


@pytest.mark.integrations
def test_memory_is_flat_however_many_tasks(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from weigh.cli.main import run_cli\n"
        "run_cli(['sweep', *sys.argv[1:]], [])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)\n"
    )
    argv = ("-o", "-", "--", "python", "run.py", "{a}", "{b}")
    peaks = [
        int(
            subprocess.run(
                [sys.executable, "-c", program, "a=1..100", f"b=1..{b}", *argv],
                cwd=tmp_path,
                check=True,
                text=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            ).stderr.split()[-1]
        )
        for b in (10, 2000)
    ]
    assert peaks[1] - peaks[0] < 4096  # KiB; 200,000 lines are 5 MiB


def test_a_pattern_stands_for_the_files_that_match_unless_it_is_quoted(
    weigh: Weigh,
) -> None:
    Path("data").mkdir()
    for name in ("b.txt", "a 1.txt", "007", "c.csv"):
        Path("data", name).touch()
    code, out, err = weigh("file=data/*.txt,data/00?,'*'", "--", "cat", "{file}")
    assert code == 0, err
    assert "4 tasks" in out
    assert Path("tasks.txt").read_text().splitlines() == [
        *("cat 'data/a 1.txt'", "cat data/b.txt", "cat data/007", "cat '*'")
    ]


def test_a_folder_that_cannot_be_read_is_named(weigh: Weigh) -> None:
    """It is no folder without a match, of which the value may be meant as text."""
    Path("loop").symlink_to("loop")
    Path("closed").mkdir(mode=0)
    folders = {"loop": errno.ELOOP}
    if not os.access("closed", os.R_OK):  # all but root
        folders["closed"] = errno.EACCES
    answers = [weigh(f"x={folder}/*", "--", "run", "{x}") for folder in folders]
    Path("closed").chmod(0o700)
    assert answers == [
        (2, "", f"weigh: cannot read {folder}: {os.strerror(reason)}\n")
        for folder, reason in folders.items()
    ]


def test_all_that_sweep_prints_is_as_it_was_reviewed(
    weigh: Weigh, tmp_path: Path
) -> None:
    transcript = Path(__file__).with_name("sweep.transcript")
    called = with_compact_documents(lambda _verb, *words: weigh(*words))
    check_transcript(transcript, called)
    assert list(tmp_path.iterdir()) == []
