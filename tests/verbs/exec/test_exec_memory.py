"""Tasks that run out of memory, or whose worker the kernel killed for it."""

import sys
from collections.abc import Callable

import pytest
from batches import HOLD, Batch

from weigh.units import MIB

# each waits for the others, however busy the machine: two run until both are counted
COUNT = "$(ls .weigh-test-* 2>/dev/null | wc -l)"
SHOW = (
    f"[ $(cat ran 2>/dev/null | wc -l) -ge 2 ] || until [ {COUNT} = 2 ]; "
    f"do sleep 0.1; done; echo {COUNT} >> ran"
)
OTHER = (
    "touch .weigh-test-$PARALLEL_SEQ; until [ $(cat ran 2>/dev/null | wc -l) -ge 2 ]; "
    "do sleep 0.1; done; rm .weigh-test-$PARALLEL_SEQ"
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
    oom = "[ -e tried ] || { touch tried; echo MemoryError; exit 1; }"
    hold = f"{sys.executable} {HOLD} 10"
    batch.write(f"{hold} a; {oom}", *[f"{hold} {name}" for name in "bcd"])
    assert batch.run("-j", "3", "--memory", "400MiB").returncode == 0
    first, second = (one for one in batch.events_of("started") if one["seq"] == 1)
    peaks = [one["peak_memory"] for one in batch.events_of("ended") if one["seq"] == 1]
    assert "memory" not in first or first["memory"] is None
    assert 1.5 * peaks[0] < second["memory"] <= 2 * peaks[0]
    assert sorted(batch.ran()) == ["a", "a", "b", "c", "d"]


# starts workers of so many MiB, and looks at no exit code
DRIVER = """
import subprocess, sys
worker = "import sys, time; held = bytearray(int(sys.argv[1]) << 20); time.sleep(0.5)"
sizes = sys.argv[2:]
started = [subprocess.Popen([sys.executable, "-c", worker, size]) for size in sizes]
for process in started:
    process.wait()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def in_group(
    batch: Batch, memory_group: Callable[[int], tuple[str, ...]]
) -> tuple[str, ...]:
    (batch.folder / "driver.py").write_text(DRIVER)
    return memory_group(200 * MIB)


@pytest.mark.parametrize("code", [0, 1])
def test_a_task_that_lost_a_worker_to_memory_is_not_done(
    batch: Batch, in_group: tuple[str, ...], code: int
) -> None:
    batch.write(f"{sys.executable} driver.py {code} 10 400", "echo second")
    finished = batch.run("-j", "1", before=in_group)
    assert finished.returncode == 1, finished.stderr
    assert batch.record(1)["state"] == "OUT_OF_MEMORY"
    assert batch.record(2)["state"] == "COMPLETED"
    assert batch.events_of("ended")[0]["state"] == "OUT_OF_MEMORY"
    assert batch.ended() == {1: (code or 137, 0), 2: (0, 0)}


def test_the_kill_is_none_of_a_task_that_held_far_less(
    batch: Batch, in_group: tuple[str, ...]
) -> None:
    events = "tasks.txt.joblog.events.jsonl"
    beside = f"until grep -q OUT_OF_MEMORY {events}; do sleep 0.1; done"
    batch.write(f"sleep 0.5; {sys.executable} driver.py 0 150 400", *[beside] * 2)
    batch.run("-j", "3", before=in_group)
    assert batch.ended() == {1: (137, 0), 2: (0, 0), 3: (0, 0)}


def test_a_task_that_was_alone_has_its_next_attempt_counted_afresh(
    batch: Batch, in_group: tuple[str, ...]
) -> None:
    run = f"{sys.executable} driver.py 0"
    batch.write(f"if [ -e tried ]; then {run} 10; else touch tried; {run} 400; fi")
    batch.run("-j", "1", before=in_group)
    assert batch.run("-j", "1", "--resume-failed", before=in_group).returncode == 0
    assert batch.ended()[1] == (0, 0)
