"""Tasks that run out of memory, or are about to."""

import sys

from batches import HOLD, Batch

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
    oom = "[ -e tried ] || { touch tried; echo MemoryError; exit 1; }"
    hold = f"{sys.executable} {HOLD} 10"
    batch.write(f"{hold} a; {oom}", *[f"{hold} {name}" for name in "bcd"])
    assert batch.run("-j", "3", "--memory", "400MiB").returncode == 0
    first, second = (one for one in batch.events_of("started") if one["seq"] == 1)
    peaks = [one["peak_memory"] for one in batch.events_of("ended") if one["seq"] == 1]
    assert "memory" not in first or first["memory"] is None
    assert 1.5 * peaks[0] < second["memory"] <= 2 * peaks[0]
    assert sorted(batch.ran()) == ["a", "a", "b", "c", "d"]
