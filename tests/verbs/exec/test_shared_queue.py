"""Several runs pull from one queue: nothing is lost, and nothing runs twice.

The attack runs the real protocol on a disk that answers as a network disk may: late,
with old listings, and "exists already" to a link that has just been made. At any call
another run may come first, and any run may be killed.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import pytest
from pulling_runs import FilesInMemory, PretendedRun
from sessions import check_session

from weigh.errors import StoreError
from weigh.flow.exec import pull
from weigh.flow.here import Here
from weigh.runner.shared_queue import OwnClaims, PulledTasks, QueueOwner, SharedQueue
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


class Disk(FilesInMemory):
    """The calls of one run: each may be late, and each answer as well."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._world = worker.world
        self.contents = worker.world.contents

    def link(self, source: str, target: str) -> None:
        self._worker.wait()
        try:
            super().link(source, target)
        finally:
            self._worker.wait()
        if self._world.rng.random() < 0.1:  # sent again, as the answer was lost
            raise FileExistsError(target)

    def create(self, path: str, content: bytes) -> None:
        self._worker.wait()
        super().create(path, content)
        self._worker.wait()

    def read(self, path: str) -> bytes:
        self._worker.wait()
        return super().read(path)

    def listed(self, folder: str) -> list[tuple[str, int]]:
        self._worker.wait()
        world = self._world
        if world.rng.random() < 0.5 or not world.old:
            world.old = super().listed(folder)
        return world.old


class World:
    """One attack; ``faults`` are what must never happen."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.back = threading.Semaphore(0)
        self.contents: dict[str, tuple[int, bytes]] = {}
        self.old: list[tuple[str, int]] = []
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
        if target in self.contents:
            raise FileExistsError(target)
        self._worker.wait()
        self.contents[target] = self.contents[source]


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


def test_worked_examples_of_claims(tmp_path: Path) -> None:
    names = {"folder": lambda: Path(mkdtemp(dir=tmp_path)), "an_owner": _owner}
    path = Path(__file__).with_name("shared_queue.session")
    check_session(path, names | {"StoreError": StoreError})


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
