"""Other programs remove, replace or plant the files that ``weigh exec`` works with."""

import os
import re
import shutil
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from batches import Batch, StartedExec
from processes import until

from weigh.joblog import HEADER
from weigh.runner.events import ended_tasks

WAITS = "echo b >> ran; while [ ! -e go ]; do sleep 0.1; done"
# the kernel's locks and the clock, changed in a real weigh
FAULTS = """
import errno, fcntl, os, time
def refuse(fd, operation):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.flock = refuse
clock, ahead = time.time, float(os.environ.get("TEST_CLOCK_AHEAD", "0"))
time.time = lambda: clock() + ahead
"""
NO_HEARTBEAT = """
from weigh import waits
waits.times = waits.WaitTimes(sign_of_life=10000.0, silence=10000.0)
"""
NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def lock_of(batch: Batch) -> Path:
    return batch.folder / "tasks.txt.joblog.lock"


@pytest.fixture
def no_locks(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have every weigh run on a disk without locks."""
    path = batch.folder / "faults" / "sitecustomize.py"
    path.parent.mkdir()
    path.write_text(FAULTS)
    monkeypatch.setenv("PYTHONPATH", str(path.parent))
    return path


def start_elsewhere(batch: Batch) -> StartedExec:
    """Start weigh where its processes cannot be seen from here."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare here")
    return batch.begin(before=NAMESPACE)


def go(batch: Batch) -> None:
    (batch.folder / "go").touch()


# the lock


@pytest.mark.parametrize("other", ["", ".events.jsonl"])
def test_a_second_exec_is_refused_where_files_of_the_first_were_removed(
    batch: Batch, other: str
) -> None:
    batch.write(WAITS)
    first = batch.begin()
    for names in ([".lock"], [".lock", other]):
        until(lambda: lock_of(batch).exists())  # it is made again
        for name in names:
            (batch.folder / f"tasks.txt.joblog{name}").unlink()
        second = batch.run()
        assert second.returncode == 2
        assert "another weigh exec is running on tasks.txt" in second.stderr
    go(batch)
    assert first.wait(30) == 125
    assert not lock_of(batch).exists()
    assert batch.ran() == ["b"]


# what may stand in the place of a file, some of it leading to one called precious
PLANTED: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link": lambda path: path.symlink_to("precious"),
    "hard link": lambda path: path.hardlink_to(path.with_name("precious")),
    "words": lambda path: path.write_text("words"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["folder", "link", "words"])
def test_a_lock_file_replaced_by_something_else_does_no_harm(
    batch: Batch, kind: str
) -> None:
    batch.write(WAITS)
    first = batch.begin()
    path = lock_of(batch)
    (batch.folder / "precious").write_text("words")
    path.unlink()
    PLANTED[kind](path)  # at once: weigh makes its lock again
    second = batch.run()
    assert second.returncode == 2
    assert "Traceback" not in second.stderr
    go(batch)
    assert first.wait(30) == 0
    assert (batch.folder / "precious").read_text() == "words"
    assert os.path.lexists(path)
    assert batch.ran() == ["b"]


@pytest.mark.usefixtures("no_locks")
def test_without_locks_a_second_exec_is_refused(batch: Batch) -> None:
    batch.write(WAITS)
    first = batch.begin()
    second = batch.run()
    assert second.returncode == 2
    assert f"process {first.pid}" in second.stderr
    lock_of(batch).unlink()
    assert batch.run().returncode == 2
    go(batch)
    # it may have seen the lock of the second one
    assert first.wait(30) in (0, 125)
    assert batch.ran() == ["b"]


@pytest.mark.as_root
@pytest.mark.few(2)
@pytest.mark.usefixtures("no_locks")
@pytest.mark.parametrize("ahead", ["-600", "600"])
def test_without_locks_another_machine_is_known_by_its_heartbeat_whatever_its_clock(
    batch: Batch, ahead: str
) -> None:
    batch.write(WAITS)
    first = start_elsewhere(batch)
    second = batch.run(TEST_CLOCK_AHEAD=ahead)
    assert second.returncode == 2
    assert "another weigh exec is running" in second.stderr
    go(batch)
    assert first.wait(30) == 0
    assert batch.ran() == ["b"]


@pytest.mark.as_root
def test_without_locks_it_goes_on_when_the_other_machine_has_finished(
    batch: Batch, no_locks: Path
) -> None:
    batch.write(WAITS)
    no_locks.write_text(FAULTS + NO_HEARTBEAT)
    first = start_elsewhere(batch)
    second = batch.start()
    assert "waiting up to" in batch.next_line(second)
    go(batch)
    assert first.wait(30) == 0
    assert second.wait(30) == 0
    assert batch.ran() == ["b"]


@pytest.mark.usefixtures("no_locks")
def test_of_several_that_start_at_once_one_runs_the_tasks(batch: Batch) -> None:
    batch.write("echo a >> ran; sleep 1")
    started = [batch.start() for _ in range(6)]
    codes = sorted(one.wait(60) for one in started)
    assert batch.ran() == ["a"]
    assert set(codes) <= {0, 2}
    assert 0 in codes


# planted files


@pytest.mark.parametrize("name", [".lock", ".events.jsonl"])
def test_what_was_planted_is_neither_written_nor_emptied(
    batch: Batch, name: str
) -> None:
    target = batch.folder / "precious"
    target.write_text("words\n")
    path = batch.folder / f"tasks.txt.joblog{name}"
    batch.write("echo a >> ran")
    for kind in ("link", "hard link", "pipe", "folder"):
        PLANTED[kind](path)
        done = batch.run()
        assert done.returncode in (2, 125)
        assert str(path.name) in done.stderr
        assert "Traceback" not in done.stderr
        path.rmdir() if kind == "folder" else path.unlink()
    assert target.read_text() == "words\n"
    assert batch.ran() == []


def test_files_in_the_temporary_folder_are_private_and_go_away(batch: Batch) -> None:
    temporary = batch.folder / "temporary"
    temporary.mkdir()
    batch.write("stat -c %a $(dirname $WEIGH_CHANNEL) >> ran")
    assert batch.run(TMPDIR=str(temporary)).returncode == 0
    assert batch.ran() == ["700"]
    assert list(temporary.iterdir()) == []


# the joblog


def test_a_joblog_that_others_remove_stops_this_run_and_the_next(
    batch: Batch,
) -> None:
    """The ends are in the events, where a queue finds them."""
    batch.write("echo a >> ran", WAITS, "echo c >> ran")
    first = batch.start("-j", "1")
    until(lambda: batch.ran() == ["a", "b"])
    batch.joblog.unlink()
    go(batch)
    out, err = first.communicate(timeout=30)
    assert first.returncode == 125
    assert "tasks.txt.joblog was removed or overwritten by another" in out + err
    assert "1 of 3 tasks done" in out
    assert ended_tasks(str(batch.joblog)) == {1: True, 2: True}
    assert batch.run().returncode in (2, 125)
    assert batch.ran() == ["a", "b"]


# process numbers


@pytest.mark.as_root
def test_a_number_used_again_while_a_daemon_lives_loses_no_task(batch: Batch) -> None:
    if not Path("/proc/sys/kernel/ns_last_pid").exists():
        pytest.skip("needs a process namespace, and checkpoint/restore in the kernel")
    daemon = "while [ ! -e go ]; do sleep 0.1; done; echo daemon >> ran"
    again = "echo $((leader - 1)) > /proc/sys/kernel/ns_last_pid"
    batch.write(
        f"echo $$ > leader; setsid bash -c '{daemon}' & true",
        "until [ -s leader ]; do sleep 0.1; done; read leader < leader; "
        f"while [ -e /proc/$leader ]; do sleep 0.1; done; sleep 0.3; {again}",
        "echo $$ > third; exec sleep 0.5",
        "touch go",
        "true",
    )
    done = batch.run("-j", "2", before=NAMESPACE)
    leader, third = ((batch.folder / name).read_text() for name in ("leader", "third"))
    if leader != third:
        pytest.skip("another process was started in between")
    assert done.returncode == 0, done.stderr
    assert "5 of 5 tasks done" in done.stdout
    assert batch.ran() == ["daemon"]
    assert set(batch.ended()) == {1, 2, 3, 4, 5}
    assert {one["job"]["task"] for one in batch.records()} == {1, 2, 3, 4, 5}


def test_a_daemon_without_environment_or_parent_is_a_survivor(batch: Batch) -> None:
    shell = shutil.which("bash")
    wait = "echo in >> ran; while [ ! -e go ]; do sleep 0.1; done; echo out >> ran"
    batch.write(f"[ -e go ] || setsid env -i {shell} -c '{wait}' & sleep 100")
    first = batch.begin()
    leader = until(lambda: batch.events_of("started"))[0]["pid"]
    batch.kill(first)
    os.killpg(leader, signal.SIGKILL)
    batch.write("echo after >> ran")
    batch.joblog.write_text(f"{HEADER}\n")
    second = batch.start()
    assert second.stderr is not None
    assert re.search("waiting for [12] process", second.stderr.readline())
    go(batch)
    assert second.wait(30) == 0
    assert batch.ran() == ["in", "out", "after"]


@pytest.mark.as_root
def test_a_process_that_cannot_be_killed_is_reported_and_not_waited_for(
    batch: Batch,
) -> None:
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv to start another user's process")
    batch.write("setpriv --reuid 12345 sleep 300", "echo a >> ran")
    unable = ("setpriv", "--bounding-set", "-kill")
    options = ("-j", "1", "--timeout", "1", "--grace", "1")
    done = batch.run(*options, before=unable)
    for pid in batch.marked():
        with suppress(ProcessLookupError):  # it may be ending
            os.kill(pid, signal.SIGKILL)
    assert done.returncode == 1
    assert re.search(r"task 1: process \d+ \(sleep\) cannot be killed", done.stderr)
    assert "1 of 2 tasks done, 1 failed" in done.stdout
    assert batch.ran() == ["a"]


# between two runs


EDITS: tuple[Callable[[bytes], bytes], ...] = (
    lambda text: text[:0],
    lambda text: text.replace(b"echo", b"printf"),
    lambda text: text + b"echo d >> ran\n",
    lambda text: text.replace(b"\n", b" # a comment\n"),
)


@pytest.mark.parametrize("queue", [(), ("--hours", "1")], ids=["own", "shared"])
def test_an_edited_task_file_of_a_plan_is_refused_and_loses_no_task(
    batch: Batch, queue: tuple[str, ...]
) -> None:
    batch.write("echo a >> ran", "echo b >> ran", "echo c >> ran")
    batch.weigh("plan", "tasks.txt", "--memory", "50M", "--time", "1m", *queue)
    folder = batch.folder / "plan/tasks"
    (path, *_) = (*folder.glob("tasks_*.txt"), *folder.glob("queue_*/tasks.txt"))
    planned = path.read_bytes()
    for edit in EDITS[: 2 if queue else None]:
        path.write_bytes(edit(planned))

        sent = batch.weigh("submit", "plan/tasks", "--on", "local")

        assert sent.returncode == 2
        assert "was changed since weigh plan wrote it" in sent.stderr
        assert sent.stderr.count("\n") == 1
        assert batch.ran() == []
    # an element that finds it edited when it starts
    if not queue:
        assert batch.weigh("exec", str(path)).returncode == 2
