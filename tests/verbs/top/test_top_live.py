"""``weigh top`` beside a real run. Figures of memory are known, no seconds are."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil
import pytest
from msgspec.structs import replace
from processes import until
from run_captured import run_captured

from weigh.flow.records.records import RecordStore, open_store
from weigh.flow.watch import top
from weigh.flow.watch.top import RunFollower, TopWatcher
from weigh.model.record import Record, RecordedNode
from weigh.render.top_screen import TopRun
from weigh.store.checkpoint import RunCheckpoint, save_checkpoint
from weigh.units import MIB

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")

Open = Callable[[RecordStore], TopWatcher]

WEIGH = (sys.executable, "-m", "weigh")
# 100 MiB in the command itself and 50 in a child; a line on stdin lets them go
JOB = """
import subprocess, sys
held = bytearray(b"x") * (100 << 20)
child = subprocess.Popen([sys.executable, "-c",
    "held = bytearray(b'x') * (50 << 20); print('ready', flush=True); input()"])
child.wait()
sys.stdin.read()
"""


class Job:
    """A run of 150 MiB in progress, in a store of its own."""

    def __init__(self, folder: Path, label: str = "alice") -> None:
        self.folder = folder
        self.env = {**os.environ, "WEIGH_DIR": str(folder / "records")}
        self.env.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [*WEIGH, "run", "-q", "--label", label, "--", sys.executable, "-c", JOB],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.env,
            cwd=folder,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"
        until(lambda: list((folder / "records" / "running").glob("*.json")))

    def store(self) -> RecordStore:
        return open_store(str(self.folder), self.env)

    def leader(self) -> int:
        (path,) = (self.folder / "records" / "running").glob("*.json")
        pid: int = json.loads(path.read_text())["leader"]["pid"]
        return pid

    def close(self) -> None:
        with suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A run for tests that only look at it, or put back what they change."""
    job = Job(tmp_path_factory.mktemp("job"), "alice-\u0416")
    yield job
    job.close()


@pytest.fixture
def own_job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    yield job
    job.close()


@pytest.fixture
def watch() -> Iterator[Open]:
    watchers = []

    def open_one(store: RecordStore) -> TopWatcher:
        watchers.append(TopWatcher(store))
        return watchers[-1]

    yield open_one
    for watcher in watchers:
        watcher.close()


def only_run(watcher: TopWatcher) -> TopRun:
    (run,) = watcher.look().runs
    return run


def test_the_whole_tree_is_looked_at_now(job: Job, watch: Open) -> None:
    run = only_run(watch(job.store()))
    assert run.memory is not None
    assert 150 * MIB < run.memory < 190 * MIB
    assert run.peak is not None
    assert run.peak >= run.memory
    assert run.age == 0


def test_the_memory_that_is_used_is_what_another_program_reads(
    tmp_path: Path, watch: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watch(open_store(str(tmp_path), {}))
    found, theirs = watcher.look().machine, psutil.virtual_memory()
    used = theirs.total - theirs.available
    assert found.memory_used == pytest.approx(used, abs=theirs.total / 10)
    monkeypatch.setattr(top, "file_head", lambda _path: b"")  # no meminfo
    assert watcher.look().machine.memory_used is None


def test_memory_given_back_shows_while_the_peak_stays(
    own_job: Job, watch: Open
) -> None:
    watcher = watch(own_job.store())
    before = only_run(watcher)
    (child,) = psutil.Process(own_job.leader()).children()
    child.kill()
    until(lambda: (only_run(watcher).memory or 0) < 140 * MIB)
    after = only_run(watcher)
    assert (after.memory or 0) > 100 * MIB
    assert (after.peak or 0) >= (before.peak or 0) > 150 * MIB


def test_a_run_whose_weigh_was_killed_is_no_longer_running(
    own_job: Job, watch: Open
) -> None:
    watcher = watch(own_job.store())
    leader = psutil.Process(own_job.leader())
    doomed = [*leader.children(), leader]
    own_job.process.kill()
    own_job.process.wait()
    for one in doomed:
        one.kill()
    until(lambda: not watcher.look().runs)


WRITTEN = TopRun(
    record=Record(id="1" * 12, command=("x",), started="", state="RUNNING"),
    elapsed=0.0,
)


def test_a_run_of_which_no_process_is_left_has_no_figures_of_now() -> None:
    with subprocess.Popen(["true"]) as ended:
        follower = RunFollower(ended.pid)
    assert follower.look(WRITTEN) is None
    follower.close()


def test_a_process_that_computes_uses_its_cpu_time_by_the_time_between() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        follower, account = RunFollower(busy.pid), psutil.Process(busy.pid)
        follower.look(WRITTEN)
        began, before = time.monotonic(), sum(account.cpu_times()[:2])
        until(lambda: sum(account.cpu_times()[:2]) > before + 0.3)
        used = sum(account.cpu_times()[:2]) - before
        run, passed = follower.look(WRITTEN), time.monotonic() - began
        follower.close()
        busy.kill()
    assert run is not None
    assert run.cores == pytest.approx(used / passed, rel=0.3)


def test_a_stopped_run_is_called_so(job: Job, watch: Open) -> None:
    watcher = watch(job.store())
    os.kill(job.leader(), signal.SIGSTOP)
    until(lambda: only_run(watcher).stopped)
    os.kill(job.leader(), signal.SIGCONT)
    until(lambda: not only_run(watcher).stopped)


def test_a_run_on_another_machine_is_shown_as_written(job: Job, watch: Open) -> None:
    store = job.store()
    (path,) = (job.folder / "records" / "running").glob("*.json")
    known = msgspec.json.decode(path.read_bytes(), type=RunCheckpoint)
    record = replace(known.record, id="0" * 12, label="elsewhere")
    there = replace(known.machine, host="node12", boot_id="other")
    save_checkpoint(store.root, replace(known, machine=there, record=record))
    runs = {run.record.label: run for run in watch(store).look().runs}
    run = runs["elsewhere"]
    assert record.usage is not None
    assert record.usage.peak_memory is not None
    assert run.memory is None
    assert run.peak == record.usage.peak_memory.value
    assert run.age > 0
    assert run.elapsed == record.usage.wall_time + run.age

    record = replace(record, usage=None)  # written before the first look
    save_checkpoint(store.root, replace(known, machine=there, record=record))
    runs = {run.record.label: run for run in watch(store).look().runs}
    assert runs["elsewhere"].elapsed == runs["elsewhere"].age

    (written,) = path.parent.glob(f"*{'0' * 12}*")
    os.utime(written, (time.time() + 60,) * 2)  # the clock of a file server
    runs = {run.record.label: run for run in watch(store).look().runs}
    assert runs["elsewhere"].age == 0
    written.unlink()


def test_a_run_with_other_nodes_is_shown_as_written(job: Job, watch: Open) -> None:
    os.kill(job.process.pid, signal.SIGSTOP)  # it writes no more
    store = job.store()
    (path,) = (job.folder / "records" / "running").glob("*.json")
    known = msgspec.json.decode(path.read_bytes(), type=RunCheckpoint)
    record = replace(known.record, nodes=(RecordedNode(name="n2"),))
    save_checkpoint(store.root, replace(known, record=record))
    assert only_run(watch(store)).memory is None
    save_checkpoint(store.root, known)
    os.kill(job.process.pid, signal.SIGCONT)


def test_a_watcher_gives_its_descriptors_back(job: Job) -> None:
    before = len(os.listdir("/proc/self/fd"))
    watcher = TopWatcher(job.store())
    watcher.look()
    watcher.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("encoding", "label"), [("utf-8", "alice-\u0416"), ("latin-1", r"alice-\\u0416")]
)
def test_without_a_terminal_one_plain_screen_is_printed(
    job: Job, encoding: str, label: str
) -> None:
    env = {**job.env, "PYTHONIOENCODING": encoding}
    done = run_captured([*WEIGH, "top"], env=env, cwd=job.folder, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    shown = rf"  load +[\d.]+ of .* {label} +1[5-8]\d MiB"
    assert re.search(shown, done.stdout, re.DOTALL)
