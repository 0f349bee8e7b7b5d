"""Tasks that run out of memory, or are about to."""

import sys

import pytest
from batches import Batch

HOLD = """
import sys, time
held = bytearray()
for _ in range(int(sys.argv[1])):
    held += bytes(10 << 20)
    time.sleep(0.03)
time.sleep(0.3)
open("ran", "a").write(sys.argv[2] + "\\n")
"""


def test_the_youngest_is_stopped_when_memory_runs_out_and_runs_later(
    batch: Batch,
) -> None:
    (batch.folder / "hold.py").write_text(HOLD)
    run = f"{sys.executable} hold.py 15"
    batch.write(f"{run} a", f"sleep 0.2; {run} b")
    finished = batch.run("-j", "2", "--memory", "220MiB")
    assert finished.returncode == 0, finished.stderr
    assert batch.ran() == ["a", "b"]
    assert "task 2 is stopped" in finished.stderr
    states = [(one["job"]["task"], one["state"]) for one in batch.records()]
    assert states == [(2, "PREEMPTED"), (1, "COMPLETED"), (2, "COMPLETED")]
    assert batch.ended() == {1: (0, 0), 2: (0, 0)}


def test_without_the_guard_nobody_is_stopped(batch: Batch) -> None:
    (batch.folder / "hold.py").write_text(HOLD)
    run = f"{sys.executable} hold.py 5"
    batch.write(f"{run} a", f"sleep 0.2; {run} b")
    finished = batch.run("-j", "2", "--memory", "60MiB", "--no-guard")
    assert finished.returncode == 0
    assert [one["state"] for one in batch.records()] == ["COMPLETED"] * 2


# each waits for the others, however busy the machine: two run until both are counted
COUNT = "$(ls .weigh-test-* 2>/dev/null | wc -l)"
SHOW = (
    f"[ $(cat ran 2>/dev/null | wc -l) -ge 2 ] || until [ {COUNT} = 2 ]; "
    f"do sleep 0.05; done; echo {COUNT} >> ran"
)
OTHER = (
    "touch .weigh-test-$PARALLEL_SEQ; until [ $(cat ran 2>/dev/null | wc -l) -ge 2 ]; "
    "do sleep 0.05; done; rm .weigh-test-$PARALLEL_SEQ"
)


def test_what_ran_out_of_memory_has_more_of_it_and_then_all_of_it(
    batch: Batch,
) -> None:
    oom = "[ $(wc -l < ran) = 3 ] || { echo MemoryError; exit 1; }"
    batch.write(f"{SHOW}; {oom}", *[OTHER] * 2)
    assert batch.run("-j", "3").returncode == 0
    assert batch.ran() == ["2", "2", "0"]
    kept = [one for one in batch.events_of("started") if one["seq"] == 1]
    assert [one.get("memory") is not None for one in kept] == [False, True, False]
    assert [one["alone"] for one in kept] == [False, False, True]


def test_the_larger_share_is_twice_what_was_held_and_kept_free_for_it(
    batch: Batch,
) -> None:
    (batch.folder / "hold.py").write_text(HOLD)
    oom = "[ -e tried ] || { touch tried; echo MemoryError; exit 1; }"
    hold = f"{sys.executable} hold.py 10"
    batch.write(f"{hold} a; {oom}", *[f"{hold} {name}" for name in "bcd"])
    assert batch.run("-j", "3", "--memory", "400MiB").returncode == 0
    first, second = (one for one in batch.events_of("started") if one["seq"] == 1)
    peaks = [one["peak_memory"] for one in batch.events_of("ended") if one["seq"] == 1]
    assert "memory" not in first or first["memory"] is None
    assert 1.5 * peaks[0] < second["memory"] <= 2 * peaks[0]
    assert sorted(batch.ran()) == ["a", "a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("tens", "ran"), [(3, ["a", "a", "a"]), (14, ["a"])], ids=["some", "most"]
)
def test_a_task_that_had_all_memory_to_itself_does_not_get_it_again(
    batch: Batch, tens: int, ran: list[str]
) -> None:
    """With half of it unused, something else may have been short."""
    (batch.folder / "hold.py").write_text(HOLD)
    batch.write(f"{sys.executable} hold.py {tens} a; echo MemoryError; exit 1")
    assert batch.run("-j", "3", "--memory", "200MiB").returncode == 1
    assert batch.ran() == ran
    assert all(one["alone"] for one in batch.events_of("ended"))
