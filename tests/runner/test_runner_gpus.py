"""GPUs shared out and watched, on cards that are played."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from batches import until

from weigh.errors import UsageError
from weigh.model.record import Allocation
from weigh.probe.gpu import GpuCounters, GpuDevice, GpuReading, GpuShare
from weigh.runner.attempt import Attempt
from weigh.runner.gpu_watch import GpuWatch
from weigh.runner.gpus import GpuClaims
from weigh.runner.slots import Slot
from weigh.units import GIB, MIB

GRID_ENGINE = Allocation("gridengine", cpus=4)


class Cards:
    """So many cards of 8 GiB, and what is held on each: {process: bytes}."""

    notes: tuple[str, ...] = ()
    absence: str | None = None

    def __init__(self, *held: dict[int, int]) -> None:
        self.held = list(held)
        self.lock = threading.Lock()
        self.looks = 0

    def devices(self) -> tuple[GpuDevice, ...]:
        return tuple(
            GpuDevice(at, f"GPU-{at}", "A card", 8 * GIB)
            for at in range(len(self.held))
        )

    def read(self, *, activity: bool = True) -> tuple[GpuReading, ...]:
        del activity
        with self.lock:
            self.looks += 1
            return tuple(
                GpuReading(
                    f"GPU-{at}",
                    memory_used=sum(held.values()),
                    process_memory=dict(held),
                    processes=tuple(held),
                )
                for at, held in enumerate(self.held)
            )

    def hold(self, at: int, **held: int) -> None:
        """Have processes hold memory on a card."""
        with self.lock:
            self.held[at].update({int(pid[1:]): size for pid, size in held.items()})
            looks = self.looks
        until(lambda: self.looks > looks + 1)

    def counters(self, uuid: str) -> GpuCounters:
        del uuid
        return GpuCounters()

    def pcie_rx(self, uuid: str) -> int | None:
        del uuid
        return None

    def pcie_tx(self, uuid: str) -> int | None:
        del uuid
        return None

    def new_xids(self, uuid: str) -> tuple[int, ...] | None:
        del uuid
        return None

    def shares(self, uuid: str) -> tuple[GpuShare, ...] | None:
        del uuid
        return None

    def close(self) -> None:
        return


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[GpuClaims]:
    claims = GpuClaims(str(tmp_path))
    yield claims
    claims.release()


def test_a_workstations_cards_are_all_taken(claims: GpuClaims) -> None:
    assert claims.choose({}, None, lambda: Cards({}, {9: MIB})) == ("GPU-0", "GPU-1")


def test_what_the_environment_names_needs_no_driver(claims: GpuClaims) -> None:
    env = {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert claims.choose(env, None, Cards) == ("1", "3")


def test_cards_granted_without_a_name_are_idle_ones(claims: GpuClaims) -> None:
    cards = Cards({9: GIB}, {}, {})
    assert claims.choose({}, GRID_ENGINE, lambda: cards, count=1) == ("GPU-1",)


def test_two_jobs_never_take_the_same_card(claims: GpuClaims, tmp_path: Path) -> None:
    cards = Cards({}, {})
    other = GpuClaims(str(tmp_path))
    first = claims.choose({}, GRID_ENGINE, lambda: cards, count=1)
    second = other.choose({}, GRID_ENGINE, lambda: cards, count=1)
    other.release()
    assert {*first, *second} == {"GPU-0", "GPU-1"}


def test_too_few_idle_cards_are_refused_and_none_is_kept(
    claims: GpuClaims, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="only 1 of this node's 2 GPUs"):
        claims.choose({}, GRID_ENGINE, lambda: Cards({}, {9: GIB}), count=2)
    other = GpuClaims(str(tmp_path))
    assert other.choose({}, GRID_ENGINE, lambda: Cards({}), count=1) == ("GPU-0",)
    other.release()


def test_a_grant_of_unknown_size_is_refused(claims: GpuClaims) -> None:
    with pytest.raises(UsageError, match="--gpus N"):
        claims.choose({}, GRID_ENGINE, lambda: Cards({}))


def _attempt(gpu: str) -> Attempt:
    return Attempt(1, 1, b"", Slot(1, gpu=gpu))


def test_each_task_is_told_what_it_held_on_its_own_card() -> None:
    cards = Cards({}, {})
    watch = GpuWatch(lambda: cards, list, names=("3", "5"), env=ENV, interval=0.01)
    until(lambda: cards.looks > 1)
    first = watch.begin(_attempt("3"), lambda: [11])
    second = watch.begin(_attempt("3"), lambda: [22])
    other = watch.begin(_attempt("5"), lambda: [33])
    cards.hold(0, p11=GIB, p22=2 * GIB)
    cards.hold(1, p33=3 * GIB)
    cards.hold(0, p11=0)
    peaks = [
        [(gpu.uuid, gpu.peak_memory) for gpu in watch.end(task)[0]]
        for task in (first, second, other)
    ]
    watch.stop()
    assert peaks == [[("GPU-0", GIB)], [("GPU-0", 2 * GIB)], [("GPU-1", 3 * GIB)]]


ENV = {"CUDA_VISIBLE_DEVICES": "3,5"}
