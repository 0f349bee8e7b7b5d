"""How well a queue fills the slots: ``python benchmarks/task_queue.py [--quick]``.

Each run is simulated with weigh's own code: the units and their order, the claims (on
a disk in memory), the placement by need and the rule of the time left; only the clock
and the tasks are made up. 1,000 tasks of a minute with a log-normal time run in 10
elements, which start over 600 s; predictions are wrong by sigma .3, and an element
takes 2 s to start and 2 s to end. The bound is the larger of the work over the elements
as they appear and the longest task. Held / used is the time that elements exist, over
the time they would need if they were always full. Medians, with the worst.
"""

import argparse
import heapq
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from weigh.model.plan import PlannedQueue, TaskKind, TaskNeed
from weigh.planning.queue_order import time_to_start, units_of
from weigh.runner.attempt import TaskAttempt
from weigh.runner.memory_guard import fits_by_plan
from weigh.runner.shared_queue import (
    OwnClaims,
    PulledTasks,
    PullingRun,
    QueueFiles,
    QueueOwner,
    SharedQueue,
)
from weigh.runner.slots import NO_RESERVATION, FreeSlots, RunSlot, TaskReservation
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.units import GIB

TASKS, ELEMENTS, SLOTS = 1000, 10, 4
MEAN, STARTS, EDGE, WRONG = 60.0, 600.0, 2.0, 0.3
SIGMAS = (0.2, 0.4, 0.8, 1.2)
HERE = MachineIdentity("here")


class Memory(QueueFiles):
    """A disk in memory."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.contents: list[bytes] = []

    def link(self, source: str, target: str) -> None:
        """Create a hard link."""
        if target in self.names:
            raise FileExistsError(target)
        self.names[target] = self.names[source]

    def create(self, path: str, content: bytes) -> None:
        """Create a file."""
        if path in self.names:
            raise FileExistsError(path)
        self.contents.append(content)
        self.names[path] = len(self.contents) - 1

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        return self.contents[self.names[path]]

    def listed(self, folder: str) -> list[tuple[str, int]]:
        """Return the names in the directory."""
        return [
            (path.removeprefix(f"{folder}/"), at) for path, at in self.names.items()
        ]


class Task(NamedTuple):
    """A made-up task: its true time, what a plan says about it."""

    time: float
    kind: TaskKind


class MadeUpTasks(PulledTasks):
    """The tasks of a queue, each of a kind of its own."""

    def __init__(
        self,
        kinds: Sequence[TaskKind],
        units: Sequence[Sequence[int]],
        room: TaskReservation,
    ) -> None:
        super().__init__(units, ELEMENTS, room=room)
        self._kinds = kinds

    def kind_of(self, task_number: int) -> int:
        """Return the kind of a task."""
        return task_number - 1

    def time_to_start(self, task_number: int) -> float | None:
        """Return the time that has to be left for a task to start."""
        return time_to_start(self._kinds[task_number - 1])


class SimulatedRun(PullingRun):
    """An element as its queue sees it; nobody is ever gone, so no joblog is read."""

    def __init__(
        self, place: int, rng: random.Random, time_left: Callable[[], float | None]
    ) -> None:
        self.place = place
        self._rng = rng
        self._time_left = time_left

    def sync(self) -> None:
        """Write nothing."""

    def time_left(self) -> float | None:
        """Return the time until the element ends."""
        return self._time_left()

    def note_claimed(self, count: int) -> None:
        """Count nothing."""

    def choose_unit(self, units: Sequence[int]) -> int:
        """Return one of several units, the same ones in each simulation."""
        return self._rng.choice(units)

    def tasks_ended_by(self, _owner: QueueOwner) -> Mapping[int, bool]:
        """Return no task: those of all others may still run."""
        return {}


class Figures(NamedTuple):
    """Ratios of one run, link calls per task, and tasks that were cut off or left."""

    makespan: float
    held: float
    links: float
    cut: int = 0
    left: int = 0


class Element:
    """One element: its queue, its slots and what runs."""

    def __init__(self, number: int, queue: SharedQueue, start: float) -> None:
        self.number = number
        self.queue = queue
        self.free = FreeSlots([RunSlot(n) for n in range(1, SLOTS + 1)])
        self.running: dict[int, TaskAttempt] = {}
        self.start = start
        self.end = start


def simulate(
    tasks: Sequence[Task],
    rng: random.Random,
    *,
    room: TaskReservation = NO_RESERVATION,
    limit: float | None = None,
) -> Figures:
    """Run all tasks; *limit* is the time limit of an element."""
    kinds = [task.kind for task in tasks]
    queue = PlannedQueue(
        folder="q",
        tasks=tuple(range(1, len(tasks) + 1)),
        kinds=tuple(range(len(tasks))),
        slots=SLOTS,
    )
    units = [unit.tasks for unit in units_of(queue, kinds)]
    needs = [
        TaskReservation(kind.item.memory, kind.item.gpu_memory, kind.item.cpus)
        for kind in kinds
    ]
    work = MadeUpTasks(kinds, units, room)
    disk, clock = Memory(), [0.0]
    starts = [number * STARTS / ELEMENTS for number in range(ELEMENTS)]

    def element(number: int) -> Element:
        owner = QueueOwner(
            name=f"tasks_{number}",
            joblog=f"tasks_{number}.joblog",
            run="",
            machine=HERE,
            process=ProcessIdentity(number),
            folder="/nowhere",
        )
        claims = OwnClaims("q", owner, disk)
        claims.enter()
        ends = starts[number] + (limit or 0)
        run = SimulatedRun(number, rng, lambda: ends - clock[0] if limit else None)
        return Element(number, SharedQueue(claims, work, run), starts[number])

    events: list[tuple[float, int, int, int]] = []  # when, which element, what
    elements: dict[int, Element] = {}
    for number, start in enumerate(starts):
        heapq.heappush(events, (start + EDGE, number, 0, 0))
    cut: set[int] = set()
    done = 0
    while events:
        clock[0], number, seq, _ = heapq.heappop(events)
        if number not in elements:
            elements[number] = element(number)
        one = elements[number]
        if seq:
            attempt = one.running.pop(seq)
            one.free.give_back(attempt.slot)
            one.end = clock[0]
        for seq, placed in pulled(one, needs, room):
            attempt = TaskAttempt(seq, 1, b"", placed, plan=needs[seq - 1])
            one.running[seq] = attempt
            time = tasks[seq - 1].time
            done += 1
            if limit and clock[0] + time > one.start + limit:
                cut.add(seq)
            heapq.heappush(events, (clock[0] + time, number, seq, placed.number))
    makespan = max(one.end for one in elements.values()) + EDGE
    held = sum(one.end + EDGE - one.start for one in elements.values())
    return Figures(
        makespan / bound(tasks, starts, room),
        held / volume(tasks, room),
        sum(one.queue.claims.links for one in elements.values()) / len(tasks),
        len(cut),
        len(tasks) - done,
    )


def pulled(
    one: Element, needs: Sequence[TaskReservation], room: TaskReservation
) -> list[tuple[int, RunSlot]]:
    """Return what an element starts now."""
    found = []
    while one.free:

        def place(seq: int) -> RunSlot | None:
            running, need = one.running.values(), needs[seq - 1]
            return one.free.find(lambda free: fits_by_plan(room, free, running, need))

        taken = one.queue.take_where(len(one.running), place)
        if taken is None:
            break
        turn, slot = taken
        one.free.take(slot)
        found.append((turn.seq, slot))
        one.running[turn.seq] = TaskAttempt(
            turn.seq, 1, b"", slot, plan=needs[turn.seq - 1]
        )
    return found


def volume(tasks: Sequence[Task], room: TaskReservation) -> float:
    """Return the time of an element that is full all the time, in what is scarcest."""
    volumes = [sum(task.time for task in tasks) / SLOTS]
    if room.memory:
        held = sum(task.time * task.kind.item.memory for task in tasks)
        volumes.append(held / room.memory)
    return max(volumes)


def bound(
    tasks: Sequence[Task], starts: Sequence[float], room: TaskReservation
) -> float:
    """Return the earliest end of all tasks, whatever the order."""
    work, ready = volume(tasks, room), sorted(starts)
    end = 0.0
    for count in range(1, len(ready) + 1):
        after = ready[count] if count < len(ready) else float("inf")
        end = (work + sum(ready[:count])) / count
        if end <= after:
            break
    return max(end, ready[0] + max(task.time for task in tasks))


def drawn(rng: random.Random, sigma: float, *, alike: bool = True) -> list[Task]:
    """Return made-up tasks."""
    found = []
    for _ in range(TASKS):
        time = MEAN * rng.lognormvariate(-(sigma**2) / 2, sigma)
        predicted = time * rng.lognormvariate(0, WRONG)
        memory = 0 if alike else rng.randint(1, 12) * GIB
        item = TaskNeed(memory=memory, time=predicted * 1.2)
        kind = TaskKind(
            item=item, used=TaskNeed(memory=memory, time=predicted), tasks=1, example=""
        )
        found.append(Task(time, kind))
    return found


def pulled_once(
    rng: random.Random,
    *,
    sigma: float,
    room: TaskReservation = NO_RESERVATION,
    limit: float | None = None,
) -> Figures:
    """Return the figures of one queue; in *room* the needs of its tasks differ."""
    tasks = drawn(rng, sigma, alike=room == NO_RESERVATION)
    return simulate(tasks, rng, room=room, limit=limit)


def one_wave(rng: random.Random, *, sigma: float) -> Figures:
    """Return the figures of elements of one wave each, 10 at a time."""
    tasks = drawn(rng, sigma)
    times = [task.time for task in tasks]
    rng.shuffle(times)
    waves = [times[at : at + SLOTS] for at in range(0, len(times), SLOTS)]
    starts = [number * STARTS / ELEMENTS for number in range(ELEMENTS)]
    lanes = list(starts)
    heapq.heapify(lanes)
    for wave in waves:
        heapq.heappush(lanes, heapq.heappop(lanes) + max(wave) + 2 * EDGE)
    held = sum(max(wave) + 2 * EDGE for wave in waves) * SLOTS
    return Figures(
        max(lanes) / bound(tasks, starts, TaskReservation()), held / sum(times), 0.0
    )


def row(name: str, runs: int, one: Callable[[random.Random], Figures]) -> None:
    """Print a line of the table."""
    figures = [one(random.Random(seed)) for seed in range(runs)]
    columns = list(zip(*figures, strict=True))
    middle = Figures(*(statistics.median(column) for column in columns))
    cells = [
        f"{middle.makespan:.3f} ({max(columns[0]):.3f})",
        f"{middle.held:.3f} ({max(columns[1]):.3f})",
        f"{middle.links:.2f}" if middle.links else "-",
        f"{middle.cut:g}",
        f"{middle.left:g}",
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    runs = 5 if parser.parse_args().quick else 15
    head = "| makespan / bound | held / used | links per task | cut off | left |"
    print(f"| {TASKS:,} tasks {head}\n|---|---|---|---|---|---|")
    room = TaskReservation(memory=16 * GIB, cpus=SLOTS)
    for sigma in SIGMAS:
        row(f"one wave, sigma {sigma}", runs, partial(one_wave, sigma=sigma))
        row(f"queue, sigma {sigma}", runs, partial(pulled_once, sigma=sigma))
    for sigma in SIGMAS[1:]:
        row(
            f"queue, 1 to 12 of 16 GiB, sigma {sigma}",
            max(3, runs // 2),
            partial(pulled_once, sigma=sigma, room=room),
        )
    for sigma in SIGMAS[1:3]:
        row(
            f"queue, limit 25 min, sigma {sigma}",
            runs,
            partial(pulled_once, sigma=sigma, limit=1500.0),
        )


if __name__ == "__main__":
    main()
