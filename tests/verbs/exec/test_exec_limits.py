"""At the limits of a machine weigh says in one line what is lacking."""

import errno
import os
import re
import resource
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from called_weigh import called_apart
from run_captured import run_captured

from weigh.cli.main import exit_code_of
from weigh.cli.output import PatientStream
from weigh.flow.exec.exec import within_open_files
from weigh.runner.slots import lay_out

BROKEN = """
import sys, weigh.__main__ as program
def broken(*_):
    raise OverflowError("timestamp too large to convert to C _PyTime_t")
program._run_command_line = broken
program.main()
"""


def refuse_threads(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_thread_can_be_started_a_line_is_still_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(threading.Thread, "start", refuse_threads)
    path = tmp_path / "err"
    with path.open("w") as file:
        stream = PatientStream(file)
        stream.write("only 1 task at a time\n")
        stream.write("and again\n")
        stream.flush()

    assert path.read_text() == "only 1 task at a time\nand again\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space"), "no space left on the disk"),
        (OSError(errno.ESTALE, "Stale file handle"), "a file is gone from its server"),
        (OSError(errno.EAGAIN, "Resource"), "the limit is reached (ulimit -u)"),
        (OSError(errno.EMFILE, "Too many"), "the limit is reached (ulimit -n)"),
        (RuntimeError("can't start new thread"), "the limit is reached (ulimit -u)"),
    ],
)
def test_what_a_machine_lacks_is_one_line_and_no_internal_error(
    error: Exception, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code_of(error, ["plan"]) == 125

    said = capfd.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    with pytest.raises(RuntimeError):  # another error is still one of weigh
        exit_code_of(RuntimeError("else"), ["plan"])


@pytest.mark.parametrize(
    "verb", ["plan x", "exec x", "check x", "sweep n=1 -- {n}", "run -o r -- true"]
)
def test_a_folder_that_was_deleted_is_named(verb: str, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    words = f"cd {folder} && rmdir {folder} && exec {sys.executable} -m weigh {verb}"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    done = run_captured(["bash", "-c", words], env=env)

    assert done.stderr == "weigh: the current directory was deleted: cd to another\n"
    assert done.returncode == 125


@pytest.mark.parametrize("verb", ["exec t.txt", "submit -- a", "scan n=1,2 -- {n}"])
def test_a_folder_whose_name_is_no_utf_8_is_named_before_anything_runs(
    verb: str, tmp_path: Path
) -> None:
    folder = os.fsencode(tmp_path) + b"/b\xff"
    os.mkdir(folder)
    Path(os.fsdecode(folder), "t.txt").write_text("touch ran\n")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    env["WEIGH_DIR"] = os.fsdecode(folder)

    argv = [sys.executable, "-m", "weigh", *verb.split()]
    done = subprocess.run(argv, check=False, cwd=folder, env=env, capture_output=True)

    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"b\\udcff" in done.stderr
    assert b"is not UTF-8 (rename it)" in done.stderr
    assert not os.path.exists(folder + b"/ran")


@pytest.mark.parametrize(
    ("argv", "code", "out"),
    [(["status"], 125, ""), (["run", "--", "echo", "ran"], 0, "ran\n")],
)
def test_a_clock_beyond_what_computers_count_is_named_and_runs_the_command(
    argv: list[str], code: int, out: str
) -> None:
    done = run_captured([sys.executable, "-c", BROKEN, *argv])

    assert (done.returncode, done.stdout) == (code, out)
    assert "clock is set beyond the year 2262" in done.stderr
    assert done.stderr.count("\n") == 1


def test_tasks_left_by_a_machine_that_may_be_dead_are_no_success(
    tmp_path: Path,
) -> None:
    weigh = partial(called_apart, tmp_path)
    dies = "[ -e second ] || { kill -9 $PPID; exit 1; }; echo a >> ran\n"
    (tmp_path / "tasks.txt").write_text(dies * 3)
    figures = ("--memory", "50M", "--time", "1m", "--hours", "1")
    assert weigh("plan", "tasks.txt", *figures, "--name", "q").returncode == 0
    other = ("--joblog", "other.joblog")
    assert weigh("exec", "--pull", "plan/q", "-j", "1", *other).returncode == -9
    (tmp_path / "second").touch()
    (queue,) = (tmp_path / "plan/q").glob("queue_*")
    for owner in queue.glob("w.*"):  # as if that had been elsewhere
        ids = re.compile(r'"(host|machine_id|boot_id)":"[^"]*"')
        owner.write_text(ids.sub(r'"\1":"dead"', owner.read_text()))

    done = weigh("exec", "--pull", "plan/q", "-j", "1")

    assert "tasks of dead, which may still run them (--gone dead)" in done.stdout
    assert done.returncode == 1
    assert weigh("exec", "--pull", "plan/q", "--gone", "dead").returncode == 0
    assert (tmp_path / "ran").read_text() == "a\n" * 3


@pytest.mark.parametrize("verb", ["exec", "plan"])
def test_a_line_that_no_command_can_be_is_refused_without_being_read(
    tmp_path: Path, verb: str
) -> None:
    path = tmp_path / "tasks.txt"
    with path.open("wb") as file:
        file.write(b"echo 1\necho ")
        file.truncate(4 << 30)  # a hole: no disk holds it
    weigh = [sys.executable, "-m", "weigh"]
    ran = run_captured(
        ["bash", "-c", 'ulimit -v 4000000; exec "$@"', "bash", *weigh, verb, str(path)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
    )

    assert ran.returncode == 2, ran.stderr
    assert "tasks.txt:2: a line of over 16 MiB, too long for a command" in ran.stderr


@pytest.mark.parametrize(
    ("hard", "gpus", "slots", "soft"),
    [
        # six files for a task, twenty for weigh, forty for the library of a driver
        (resource.RLIM_INFINITY, "", 20, 140),
        (resource.RLIM_INFINITY, "0", 20, 180),
        (139, "", 19, 139),
        (93, "0", 5, 93),
        (20, "", 1, 20),
    ],
)
def test_there_are_as_many_slots_as_open_files_allow(
    monkeypatch: pytest.MonkeyPatch, hard: int, gpus: str, slots: int, soft: int
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "listdir", lambda _: [])  # nothing is open yet
    monkeypatch.setattr(resource, "getrlimit", lambda _: (9, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, both: limits.append(both))
    layout = lay_out(20, cpu_count=1, gpu_names=gpus.split())

    limited, warning = within_open_files(layout, 99)

    assert (len(limited.slots), limits) == (slots, [(soft, hard)])
    needed = 180 if gpus else 140
    words = f"{soft} open files are enough for {slots} of 20 tasks at once"
    enough = f"{words} (ulimit -n {needed} for all)"
    assert warning == (None if slots == 20 else enough)


FIND_LEFT_BEHIND = """
import os, signal
from weigh.runner.attempt import TaskAttempt
from weigh.runner.orphans import TaskOrphans, stamp_processes
from weigh.runner.slots import RunSlot
orphans = TaskOrphans("run", {"record": TaskAttempt(1, 1, b"", RunSlot(1))}, ())
stamp_processes("run", 1)
children = [os.fork() or signal.pause() for _ in range(900)]
print(len(list(orphans.find())))
for pid in children:
    os.kill(pid, signal.SIGKILL)
"""


def test_all_that_tasks_leave_behind_is_found_however_many_children_there_are() -> None:
    # the kernel lists some 700 children at a time
    argv = [sys.executable, "-c", FIND_LEFT_BEHIND]
    assert subprocess.run(argv, check=True, capture_output=True).stdout == b"900\n"
