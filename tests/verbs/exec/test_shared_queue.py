"""Several runs pull from one queue: nothing is lost, and nothing runs twice.

The attack runs the real protocol on a disk that answers as a network disk may: late,
with old listings, and "exists already" to a link that has just been made. At any call
another run may come first, and any run may be killed.
"""

import errno
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import pytest
from pulling_runs import PretendedRun
from written_programs import room_for

from weigh.errors import StoreError, UsageError
from weigh.flow.exec import pull
from weigh.flow.here import Here
from weigh.runner.events import TaskLeft, read_left
from weigh.runner.shared_queue import (
    OwnClaims,
    PulledTasks,
    QueueClaims,
    QueueFiles,
    QueueOwner,
    SharedQueue,
    UntakenTasks,
)
from weigh.runner.slots import RunSlot
from weigh.store.identity import MachineIdentity, ProcessIdentity

ROUNDS = 200 if os.environ.get("WEIGH_FUZZ") == "long" else 20
TASKS, ELEMENTS, SLOTS = 60, 6, 2
HERE = MachineIdentity("here", "m", "b", "p")


class Killed(BaseException):
    """A run ends without another word."""


class Worker:
    """A run in a thread that goes on only while it has its turn."""

    def __init__(self, world: "World", element: int, incarnation: int) -> None:
        self.world = world
        self.element = element
        self.run = f"{element}.{incarnation}"
        self.go = threading.Semaphore(0)
        self.is_killed = self.is_over = False
        self.running: list[int] = []
        self.buffer: list[int] = []
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    def wait(self) -> None:
        """Let others go on first."""
        self.world.back.release()
        self.go.acquire()
        if self.is_killed:
            raise Killed

    def sync(self) -> None:
        """Write the joblog's new lines to the disk."""
        lines, self.buffer = self.buffer, []
        self.world.joblogs.setdefault(self.element, []).extend(lines)

    def _main(self) -> None:
        self.go.acquire()
        try:
            if not self.is_killed:
                self._pull()
                self.sync()
        except Killed:
            if self.world.rng.random() < 0.5:  # the node lives on, and writes it
                self.sync()
        finally:
            self.is_over = True
            self.running.clear()
            self.world.back.release()

    def _pull(self) -> None:
        world, rng = self.world, self.world.rng
        queue = world.queue_of(self)
        free = [RunSlot(number) for number in range(1, SLOTS + 1)]

        def place(_seq: int) -> RunSlot | None:
            return free[-1] if free else None

        while True:
            while found := queue.take_where(len(self.running), place):
                free.remove(found[1])
                world.begin(self, found[0].seq)
            if not self.running:
                if queue.is_empty():
                    return
                continue
            for _ in range(rng.randint(0, 3)):
                self.wait()
            seq = self.running.pop(rng.randrange(len(self.running)))
            self.buffer.append(seq)
            world.ends[seq] += 1
            free.append(RunSlot(1))


class Disk(QueueFiles):
    """The calls of one run: each may be late, and each answer as well."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._world = worker.world

    def link(self, source: str, target: str) -> None:
        self._worker.wait()
        names = self._world.names
        if target in names:
            self._worker.wait()
            raise FileExistsError(target)
        names[target] = names[source]
        self._worker.wait()
        if self._world.rng.random() < 0.1:  # sent again, as the answer was lost
            raise FileExistsError(target)

    def create(self, path: str, content: bytes) -> None:
        self._worker.wait()
        world = self._world
        if path in world.names:
            raise FileExistsError(path)
        world.contents.append(content)
        world.names[path] = len(world.contents) - 1
        self._worker.wait()

    def read(self, path: str) -> bytes:
        self._worker.wait()
        if path not in self._world.names:
            raise FileNotFoundError(path)
        return self._world.contents[self._world.names[path]]

    def listed(self, folder: str) -> list[tuple[str, int]]:
        self._worker.wait()
        world = self._world
        if world.rng.random() < 0.5 or not world.old:
            world.old = dict(world.names)
        return [(path.removeprefix(f"{folder}/"), at) for path, at in world.old.items()]


class World:
    """One attack; ``faults`` are what must never happen."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.back = threading.Semaphore(0)
        self.names: dict[str, int] = {}
        self.old: dict[str, int] = {}
        self.contents: list[bytes] = []
        self.joblogs: dict[int, list[int]] = {}
        self.workers: list[Worker] = []
        self.begins: Counter[int] = Counter()
        self.ends: Counter[int] = Counter()
        self.in_flight = 0
        self.faults: list[str] = []

    def queue_of(self, worker: Worker) -> SharedQueue:
        owner = _owner("/nowhere", f"tasks_{worker.element}", worker.run)
        disk = {"look first": LookFirst, "": Disk}.get(self.broken, Disk)(worker)
        claims = OwnClaims("q", owner, disk)
        claims.enter()
        return SharedQueue(claims, WorldsWork(worker), WorldsRun(worker))

    def begin(self, worker: Worker, seq: int) -> None:
        """Note that a task starts, and whether that is wrong."""
        if any(seq in one.running for one in self.workers):
            self.faults.append(f"{seq} begun while the first one lives")
        if any(seq in lines for lines in self.joblogs.values()):
            self.faults.append(f"{seq} begun after its end was written")
        self.begins[seq] += 1
        worker.running.append(seq)

    def attack(self) -> "World":
        rng = self.rng
        waiting = [(element, 0) for element in range(ELEMENTS)]
        kills = rng.randint(0, ELEMENTS)
        while waiting or any(not one.is_over for one in self.workers):
            alive = [one for one in self.workers if not one.is_over]
            if waiting and (not alive or rng.random() < 0.01):
                self.workers.append(Worker(self, *waiting.pop(0)))
                continue
            one = rng.choice(alive)
            if kills and rng.random() < 0.01:
                kills -= 1
                one.is_killed = True
                self.in_flight += len(one.running) + len(one.buffer)
                if rng.random() < 0.5:
                    waiting.append((one.element, 1 + int(one.run.rpartition(".")[2])))
            one.go.release()
            self.back.acquire()
        self._finish()
        return self

    def _finish(self) -> None:
        """Let one more run take what is left: then everything must be there, once."""
        last = Worker(self, ELEMENTS, 0)
        self.workers.append(last)
        while not last.is_over:
            last.go.release()
            self.back.acquire()
        lines = Counter(seq for one in self.joblogs.values() for seq in one)
        self.faults += [f"{n} lost" for n in range(1, TASKS + 1) if not lines[n]]
        self.faults += [f"{seq} ended twice" for seq, n in lines.items() if n > 1]
        again = sum(self.begins.values()) - TASKS
        if again > self.in_flight:
            self.faults.append(f"{again} run again, {self.in_flight} were in flight")


class WorldsWork(PulledTasks):
    """The queue of a world, which knows whose runs are over."""

    def __init__(self, worker: Worker) -> None:
        super().__init__([(seq,) for seq in range(1, TASKS + 1)], ELEMENTS)
        self._worker = worker

    def gone_runs(self, owners: Collection[QueueOwner]) -> Collection[str]:
        self._worker.wait()
        if self._worker.world.broken == "all gone":
            return [one.name for one in owners]
        over = {one.run for one in self._worker.world.workers if one.is_over}
        self._worker.wait()
        return [one.name for one in owners if one.run in over]


class WorldsRun(PretendedRun):
    """A run of a world, whose joblogs others read."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.element)
        self.rng = worker.world.rng
        self._worker = worker
        self._cache: dict[str, dict[int, bool]] = {}

    def sync(self) -> None:
        self._worker.sync()

    def tasks_ended_by(self, owner: QueueOwner) -> Mapping[int, bool]:
        self._worker.wait()
        world, element = self._worker.world, owner.element
        assert element is not None
        lines = dict.fromkeys(world.joblogs.get(element, []), True)
        is_old = world.broken == "old"
        return self._cache.setdefault(owner.name, lines) if is_old else lines


class LookFirst(Disk):
    """A disk on which a claim is a look, and then a new file."""

    def link(self, source: str, target: str) -> None:
        self._worker.wait()
        if target in self._world.names:
            raise FileExistsError(target)
        self._worker.wait()
        self._world.names[target] = self._world.names[source]


@pytest.mark.parametrize("first", range(0, ROUNDS, 20))
def test_no_attack_loses_a_task_or_runs_it_twice(first: int) -> None:
    for seed in range(first, first + 20):
        assert World(seed).attack().faults == []


@pytest.mark.parametrize("broken", ["look first", "all gone", "old"])
def test_the_attack_finds_a_broken_protocol(broken: str) -> None:
    assert any(World(seed, broken).attack().faults for seed in range(20))


# single faults, on a real disk


def _owner(folder: object, name: str, run: str = "r") -> QueueOwner:
    return QueueOwner(
        name=name,
        joblog=f"../log/{name}.joblog",
        run=run,
        machine=HERE,
        process=ProcessIdentity(1),
        folder=str(folder),
    )


def _claims(folder: Path, name: str, files: QueueFiles | None = None) -> OwnClaims:
    claims = OwnClaims(str(folder), _owner(folder, name), files)
    claims.enter()
    return claims


def _owners(folder: Path) -> dict[int, list[str | None]]:
    claims = QueueClaims(str(folder))
    claims.look()
    return {
        unit: [None if one is None else one.name for one in owners]
        for unit, owners in claims.claimants()
    }


class Refusing(QueueFiles):
    """A disk that refuses links."""

    def __init__(self, number: int) -> None:
        self.number = number

    def link(self, source: str, target: str) -> None:
        raise OSError(self.number, os.strerror(self.number), source, None, target)


class Forgetful(QueueFiles):
    """A disk that loses the answer to each link."""

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        raise FileExistsError(target)


def test_one_of_two_runs_gets_a_claim_and_many_claims_need_no_more_inodes(
    tmp_path: Path,
) -> None:
    first, second = (_claims(tmp_path, name) for name in ("tasks_0", "tasks_1"))
    assert [first.take(unit) for unit in range(50)] == [True] * 50
    assert [second.take(unit) for unit in range(60)] == [False] * 50 + [True] * 10
    assert len({path.stat().st_ino for path in tmp_path.iterdir()}) == 2


def test_a_claim_whose_answer_was_lost_is_ours(tmp_path: Path) -> None:
    ours = _claims(tmp_path, "tasks_0", Forgetful())
    assert ours.take(7)
    assert not _claims(tmp_path, "tasks_1", Forgetful()).take(7)


@pytest.mark.parametrize(
    "number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK]
)
def test_without_hard_links_a_claim_is_a_file_of_its_own(
    tmp_path: Path, number: int
) -> None:
    first = _claims(tmp_path, "tasks_0", Refusing(number))
    second = _claims(tmp_path, "tasks_1", Refusing(number))
    assert [first.take(3), second.take(3), second.take(4)] == [True, False, True]
    assert _owners(tmp_path) == {3: ["w.tasks_0.0"], 4: ["w.tasks_1.0"]}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ESTALE])
def test_another_error_of_the_disk_is_reported(tmp_path: Path, number: int) -> None:
    claims = _claims(tmp_path, "tasks_0", Refusing(number))
    with pytest.raises(StoreError, match="cannot claim a task"):
        claims.take(0)


def test_a_full_disk_leaves_no_part_of_an_owner(tmp_path: Path) -> None:
    no_space = pytest.raises(StoreError, match=r"tasks_0\.0: No space left")
    with no_space, room_for(20):
        _claims(tmp_path, "tasks_0")

    assert list(tmp_path.iterdir()) == []


def test_a_copy_of_a_queue_in_use_is_refused(tmp_path: Path) -> None:
    queue, copy, moved = (tmp_path / name for name in ("queue", "copy", "moved"))
    queue.mkdir()
    _claims(queue, "tasks_0").take(0)
    shutil.copytree(queue, copy)
    with pytest.raises(UsageError, match="is a copy of"):
        _claims(copy, "tasks_1")
    queue.rename(moved)
    assert not _claims(moved, "tasks_1").take(0)


def test_a_claim_that_was_copied_as_a_file_still_names_its_owner(
    tmp_path: Path,
) -> None:
    queue, copy = tmp_path / "queue", tmp_path / "copy"
    queue.mkdir()
    _claims(queue, "tasks_0").take(5)
    shutil.copytree(queue, copy)
    shutil.rmtree(queue)
    assert _owners(copy) == {5: ["w.tasks_0.0"]}


class WorkOfGoneRuns(PulledTasks):
    """A queue that only runs have pulled from that are gone."""

    def gone_runs(self, owners: Collection[QueueOwner]) -> Collection[str]:
        return [one.name for one in owners]


def _after_another(
    folder: Path,
    work: PulledTasks,
    left: dict[int, TaskLeft],
    *,
    time_left: float | None = None,
) -> SharedQueue:
    """Return an element's queue whose only neighbour has gone and left *left*."""
    run = PretendedRun(1)
    run.left, run.limit = left, time_left
    return SharedQueue(_claims(folder, "tasks_1"), work, run)


@pytest.mark.parametrize(("left", "taken"), [(40.0, None), (100.0, 1), (None, 1)])
def test_a_task_cut_off_by_the_time_limit_starts_again_only_with_more_time(
    tmp_path: Path, left: float | None, taken: int | None
) -> None:
    _claims(tmp_path, "tasks_0").take(0)
    work = WorkOfGoneRuns([(1,)], 2)
    queue = _after_another(tmp_path, work, {1: TaskLeft(30.0)}, time_left=left)

    found = queue.take_where(0, lambda _seq: RunSlot(1))

    assert (None if found is None else found[0].seq) == taken


@pytest.mark.parametrize(
    ("left", "taken"),
    [
        (TaskLeft(short=True), [(2, False), (1, True)]),  # it gets all there is
        (TaskLeft(short=True, alone=True), [(2, False)]),  # more than all there is
    ],
)
def test_a_task_that_ran_out_of_memory_elsewhere_gets_more_or_is_left(
    tmp_path: Path, left: TaskLeft, taken: list[tuple[int, bool]]
) -> None:
    gone = _claims(tmp_path, "tasks_0")
    assert gone.take(0)
    assert gone.take(1)
    queue = _after_another(tmp_path, WorkOfGoneRuns([(1,), (2,)], 2), {1: left})
    found: list[tuple[int, bool]] = []
    while not queue.is_empty():
        turn = queue.take_where(0, lambda _seq: RunSlot(1))
        found += [] if turn is None else [(turn[0].seq, turn[0].alone)]
    assert found == taken


def test_a_lost_task_that_has_no_time_leaves_those_behind_it_to_start(
    tmp_path: Path,
) -> None:
    gone = _claims(tmp_path, "tasks_0")
    assert gone.take(0)
    assert gone.take(1)

    class LongAndShort(WorkOfGoneRuns):
        def kind_of(self, task_number: int) -> int:
            return task_number

        def time_to_start(self, task_number: int) -> float:
            return {1: 100.0, 2: 10.0}[task_number]

    work = LongAndShort([(1,), (2,)], 2)
    queue = _after_another(tmp_path, work, {}, time_left=50.0)
    found: list[int] = []
    while not queue.is_empty():
        turn = queue.take_where(0, lambda _seq: RunSlot(1))
        found += [] if turn is None else [turn[0].seq]

    assert found == [2]
    assert queue.untaken == UntakenTasks(1, 100.0, 50.0, later=False)


def test_it_is_known_why_tasks_did_not_end() -> None:
    end = (
        b'{"event":"ended","seq":%d,"attempt":1,"time":1.0,"state":"%s","exit_code":1,'
        b'"signal":15,"record":"r","wall_time":%d}\n'
    )
    start = (
        b'{"event":"started","seq":%d,"attempt":3,"run":"r","time":1.0,"slot":1,'
        b'"pid":1,"start_time":1,"task":"t","alone":true}\n'
    )
    lines = [
        end % (1, b"INTERRUPTED", 30),
        end % (1, b"INTERRUPTED", 20),
        end % (2, b"COMPLETED", 50),
        b'{"event":"ended","seq":3,"state":"INTERRUPTED"',
        end % (4, b"OUT_OF_MEMORY", 7),
        end % (4, b"INTERRUPTED", 3),
        start % 5,
        end % (5, b"OUT_OF_MEMORY", 7),
        start % 6,
        end % (6, b"INTERRUPTED", 3),
        (start % 6).replace(b',"alone":true', b""),
        end % (6, b"OUT_OF_MEMORY", 7),
    ]

    assert read_left(lines) == {
        1: TaskLeft(30.0),
        4: TaskLeft(3.0, short=True),
        5: TaskLeft(short=True, alone=True),
        6: TaskLeft(3.0, short=True),  # alone the first time, not when memory ran out
    }


@pytest.mark.parametrize(("silent_for", "gone"), [(5.0, set()), (90.0, {"w.1"})])
def test_a_run_of_an_earlier_boot_is_gone_only_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_for: float, gone: set[str]
) -> None:
    """A cloned node that runs looks like this one before a restart."""
    here = MachineIdentity("here", "m", "boot2", "p")
    monkeypatch.setattr(pull, "this_machine", lambda: here)
    before = msgspec.structs.replace(here, boot_id="boot1")
    owner = msgspec.structs.replace(
        _owner(tmp_path, "w.1"), joblog="a.joblog", machine=before
    )
    lock, then = tmp_path / "a.joblog.lock", time.time() - silent_for
    lock.touch()
    os.utime(lock, (then, then))

    found = pull._gone(
        Here(cwd="/", env={}, root=str(tmp_path)), [owner], str(tmp_path), ()
    )

    assert found == gone
