"""A run that pulls from a shared queue, for which the test answers; no disk has it."""

import random
from collections.abc import Mapping, Sequence
from errno import EEXIST

from weigh.runner.events import TaskLeft
from weigh.runner.shared_queue import OwnClaims, PullingRun, QueueFiles, QueueOwner
from weigh.store.identity import MachineIdentity, ProcessIdentity


class FilesInMemory(QueueFiles):
    """The directory of a queue, which all elements share."""

    def __init__(self) -> None:
        self.contents: dict[str, tuple[int, bytes]] = {}

    def create(self, path: str, content: bytes) -> None:
        if path in self.contents:
            raise FileExistsError(EEXIST, path)
        self.contents[path] = len(self.contents), content

    def link(self, source: str, target: str) -> None:
        if target in self.contents:
            raise FileExistsError(EEXIST, target)
        self.contents[target] = self.contents[source]

    def read(self, path: str) -> bytes:
        return self.contents[path][1]

    def listed(self, folder: str) -> list[tuple[str, int]]:
        return [
            (path.removeprefix(f"{folder}/"), inode)
            for path, (inode, _) in self.contents.items()
        ]


def claims_in_memory(files: FilesInMemory, number: int = 0) -> OwnClaims:
    """Return the claims of an element on the queue, which has its own file there."""
    owner = QueueOwner(
        name=f"tasks_{number}",
        joblog=f"../log/tasks_{number}.joblog",
        run=f"{number}",
        machine=MachineIdentity("here"),
        process=ProcessIdentity(number),
        folder="/q",
    )
    claims = OwnClaims("/q", owner, files)
    claims.enter()
    return claims


class PretendedRun(PullingRun):
    """A run without a journal; ``ended`` and ``left`` are about all other runs."""

    def __init__(self, place: int = 0, *, seed: int = 0) -> None:
        self.place = place
        self.limit: float | None = None
        self.ended: Mapping[int, bool] = {}
        self.left: Mapping[int, TaskLeft] = {}
        self.rng = random.Random(seed)

    def sync(self) -> None:
        """Write nothing."""

    def time_left(self) -> float | None:
        return self.limit

    def note_claimed(self, _count: int) -> None:
        """Count nothing."""

    def choose_unit(self, units: Sequence[int]) -> int:
        return self.rng.choice(units)

    def tasks_ended_by(self, _owner: QueueOwner) -> Mapping[int, bool]:
        return self.ended

    def tasks_left_by(self, _owner: QueueOwner) -> Mapping[int, TaskLeft]:
        return self.left
