import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import HUNDRED, INTERVAL, Looks, reading, unshared

from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.peak import PeakTracker
from weigh.model.record import PeakMemory
from weigh.probe.proc import ProcessReading
from weigh.units import KIB, MIB

FLOOR = 10 * MIB
H = HUNDRED
SIZES = st.integers(1, 1000)
# what a process holds at a look, and at most between it and the look before
TREES = st.lists(
    st.dictionaries(st.integers(1, 6), st.tuples(SIZES, SIZES), max_size=5), max_size=30
)


def walked(
    looks: Looks, tree: dict[int, tuple[int, int]], marks: dict[int, int]
) -> None:
    """Show one look; high-water marks only rise while a process lives."""
    for pid in [pid for pid in marks if pid not in tree]:
        del marks[pid]
    for pid, sizes in tree.items():
        marks[pid] = max(marks.get(pid, 0), *sizes)
    looks.look({pid: (held, marks[pid]) for pid, (held, _) in tree.items()})


@given(TREES, st.lists(SIZES, max_size=5))
def test_the_peak_lies_between_its_bounds(
    trees: list[dict[int, tuple[int, int]]], reaped: list[int]
) -> None:
    looks, marks = Looks(floor=300), dict[int, int]()
    for tree in trees:
        walked(looks, tree, marks)
    for size in reaped:
        looks.tracker.reap(size)
    peak = looks.tracker.peak("by hand")
    assert peak is None or peak.low <= peak.value <= peak.high
    if not any(trees) and not reaped:
        assert peak is None


@given(TREES, st.lists(SIZES, min_size=30, max_size=30))
def test_what_is_seen_later_never_lowers_what_is_sure(
    trees: list[dict[int, tuple[int, int]]], reaped: list[int]
) -> None:
    looks, marks = Looks(), dict[int, int]()
    seen = []
    for tree, size in zip(trees, reaped, strict=False):
        walked(looks, tree, marks)
        looks.tracker.reap(size)
        seen.append(looks.peak())
    for before, after in pairwise(seen):
        assert before.low <= after.low


@given(st.lists(st.lists(SIZES, min_size=3, max_size=3), min_size=1), st.integers(0, 9))
def test_one_process_is_known_exactly_however_it_grew(
    between_looks: list[list[int]], floor: int
) -> None:
    held = [floor + size for stretch in between_looks for size in stretch]
    looks = Looks(floor)
    for look in range(0, len(held), 3):
        looks.look({7: (held[look], max(held[: look + 1]))})
    peak = looks.end(max_rss=max(held))
    assert peak.low == peak.value == peak.high == max(held)


def peak_of(tracker: PeakTracker) -> PeakMemory:
    peak = tracker.peak("by hand")
    assert peak is not None
    return peak


FORKS = [reading(1, 2 * HUNDRED), reading(2, 2 * HUNDRED)]


def counted(total: int, confirmed: float) -> MemoryHolding:
    return MemoryHolding(
        total, 0, 0, low=total, high=total, certainty="counted", confirmed=confirmed
    )


def guessing(total: int, guess: int) -> MemoryHolding:
    return MemoryHolding(
        total, 0, 0, low=0, high=total, certainty="guessed", guess=guess
    )


@pytest.mark.parametrize(("confirmed", "peak"), [(1.0, 4), (0.5, 3), (0.0, 2)])
def test_a_guess_is_the_peak_as_far_as_a_count_confirms_it(
    confirmed: float, peak: int
) -> None:
    tracker = PeakTracker(0)
    tracker.look(0.1, FORKS, guessing(4 * HUNDRED, 2 * HUNDRED))
    assert tracker.best == 2 * HUNDRED
    tracker.look(0.2, FORKS, counted(2 * HUNDRED, confirmed))
    found = peak_of(tracker)
    assert found.value == peak * HUNDRED
    assert found.certainty == "counted"


def test_what_a_look_left_open_is_a_bound_until_the_next_count() -> None:
    tracker = PeakTracker(0)
    held = MemoryHolding(2 * H, 0, 0, low=2 * H, high=4 * H, certainty="guessed")
    tracker.look(0.1, FORKS, held)
    assert peak_of(tracker).high == 4 * H
    tracker.look(0.2, FORKS, counted(2 * H, 1.0))
    assert peak_of(tracker).high == 2 * H


def test_what_an_ended_process_may_have_copied_adds_to_the_look_before() -> None:
    tracker = PeakTracker(0)
    tracker.look(0.1, FORKS, counted(3 * H, 1.0))
    held = msgspec.structs.replace(counted(2 * H, 1.0), passed=H)
    tracker.look(0.2, FORKS[:1], held)
    peak = peak_of(tracker)
    assert (peak.value, peak.high, peak.certainty) == (3 * H, 4 * H, "guessed")


def test_a_guess_that_nothing_contradicts_is_the_peak() -> None:
    tracker = PeakTracker(0)
    tracker.look(0.1, FORKS, guessing(4 * HUNDRED, 2 * HUNDRED))
    found = peak_of(tracker)
    assert (found.value, found.certainty) == (4 * HUNDRED, "guessed")


def test_a_spike_of_which_only_files_are_left_was_memory_of_its_own() -> None:
    """Not by the share of anonymous memory in what is left."""
    tracker = PeakTracker(0)
    other = reading(1, HUNDRED)
    tracker.look(0.05, [other], unshared(other))
    left = msgspec.structs.replace(
        reading(2, 10 * MIB, 3 * HUNDRED), anonymous=MIB, file=9 * MIB
    )
    tracker.look(0.1, [other, left], unshared(other, left))
    peak = peak_of(tracker)
    assert peak.value == 4 * HUNDRED


# looks by process id: resident, or (resident, its mark); what is reaped at the end and
# what forks inherited; the peak's value, low and high
SPIKES: dict[str, tuple[list[Any], dict[str, Any], tuple[int, ...]]] = {
    "with what the others hold": ([{1: H, 2: H}, {1: H, 2: (H, 3 * H)}], {}, (4 * H,)),
    "from one process to the next, once": (
        [{1: MIB, 2: MIB}, {1: (MIB, 3 * H), 2: 3 * H}],
        {},
        (3 * H + MIB,),
    ),
    "once": ([{1: (H, 3 * H)}, {1: (H, 3 * H), 2: H}], {}, (3 * H,)),
    "the largest, with all as a bound": (
        [{1: 10, 2: 10}, {1: (10, 4 * H), 2: (10, 3 * H)}],
        {},
        (4 * H + 10, 4 * H + 10, 7 * H),
    ),
    "what a fork gave back of its parent's is none": (
        [{1: 5 * H}, {1: 5 * H, 2: (H, 5 * H)}],
        {"inherited": {2: 5 * H}},
        (6 * H,),
    ),
    "what a fork held beyond its parent's": (
        [{1: 2 * H, 2: (H, 5 * H)}],
        {"inherited": {2: 2 * H}},
        ((2 + 1 + 3) * H,),
    ),
    "an end makes nothing less sure": (
        [{1: 3 * H, 2: H}, {1: 3 * H}],
        {},
        (4 * H, 4 * H, 4 * H),
    ),
    "one that grew after the last look": (
        [{1: 3 * H, 2: H}, {1: 3 * H}],
        {"reaped": 5 * H},
        ((3 + 5) * H,),
    ),
    "what may be the launcher's own is a bound": (
        [],
        {"floor": FLOOR, "reaped": FLOOR},
        (FLOOR, 0, FLOOR),
    ),
    "just beyond the launcher's": (
        [],
        {"floor": FLOOR, "reaped": FLOOR + 1},
        (FLOOR + 1, FLOOR + 1),
    ),
    "a small one that was seen, within the launcher's": (
        [{1: MIB}],
        {"floor": FLOOR, "reaped": FLOOR},
        (MIB, MIB, FLOOR),
    ),
}


@pytest.mark.parametrize("what", SPIKES)
def test_a_peak_counts(what: str) -> None:
    shown, others, expected = SPIKES[what]
    looks = Looks(others.get("floor", 0))
    for sizes in shown:
        looks.look(sizes, others.get("inherited"))
    peak = looks.end(others["reaped"]) if "reaped" in others else looks.peak()
    assert (peak.value, peak.low, peak.high)[: len(expected)] == expected


def test_growth_known_once_stays_known_when_others_outgrow_it() -> None:
    looks = Looks()
    looks.look({1: 3 * H, 2: H})
    looks.tracker.reap(5 * H)
    looks.look({1: 3 * H})
    looks.look({1: 6 * H})
    assert looks.peak().value == (3 + 5) * H


def test_a_large_process_that_was_never_seen_may_have_been_there_at_the_peak() -> None:
    looks = Looks()
    looks.look({7: H})
    assert looks.end(3 * H).high == 3 * H
    looks.tracker.has_unseen = (
        True  # it has waited for others, so it was not the largest
    )
    assert looks.peak().high == 4 * H


def test_spikes_of_processes_that_take_turns_are_not_added() -> None:
    looks = Looks()
    for large, small in ((1, 2), (2, 1)) * 5:  # never seen large together
        looks.look({large: (2 * H, 2 * H), small: (10, 2 * H)})
    looks.look({1: (10, 4 * H), 2: (10, 4 * H)})
    assert looks.peak().value <= 4 * H + 20


@pytest.mark.parametrize(("confirmed", "peak"), [(1.0, 4), (0.5, 3)])
def test_what_a_count_leaves_of_a_guess_is_as_sure_as_the_count(
    confirmed: float, peak: int
) -> None:
    tracker = PeakTracker(0)
    tracker.look(0.1, FORKS, guessing(4 * HUNDRED, 2 * HUNDRED))
    found = counted(2 * HUNDRED, confirmed)
    high = found.high + HUNDRED // 5
    tracker.look(0.2, FORKS, msgspec.structs.replace(found, high=high))
    assert peak_of(tracker).high == peak * HUNDRED + HUNDRED // 5


@pytest.mark.parametrize("was_open", [0, 5 * HUNDRED])
def test_what_was_taken_and_given_back_between_two_looks_is_within_the_bound(
    was_open: int,
) -> None:
    tracker = PeakTracker(0)
    first = counted(4 * HUNDRED, 1.0)
    if was_open:  # until the count at the second look
        high = first.high + was_open
        first = msgspec.structs.replace(first, confirmed=None, high=high)
    tracker.look(0.1, FORKS, first)
    second = counted(4 * HUNDRED, 1.0)
    tracker.look(0.2, FORKS, msgspec.structs.replace(second, passed=HUNDRED))
    peak = peak_of(tracker)
    assert (peak.value, peak.high) == (4 * HUNDRED, 5 * HUNDRED)


def of_two(shared: int, *sizes: int) -> tuple[list[ProcessReading], MemoryHolding]:
    """Return two processes of 100 MiB each that also map the same *shared* memory."""
    readings = [
        ProcessReading(
            pid=pid,
            virtual=0,
            virtual_peak=0,
            resident=HUNDRED + size,
            peak=3 * HUNDRED + 4096 * (size < 2 * HUNDRED),
            anonymous=HUNDRED,
            file=0,
            shared=size,
        )
        for pid, size in enumerate(sizes, start=1)
    ]
    total = 2 * HUNDRED + shared
    return readings, MemoryHolding(2 * HUNDRED, shared, 0, total, total)


def test_shared_memory_given_back_at_the_end_is_no_spike() -> None:
    """As processes end, the kernel corrects their marks by some pages."""
    tracker = PeakTracker(0)
    for look in range(10):
        tracker.look(look, *of_two(2 * HUNDRED, 2 * HUNDRED, 2 * HUNDRED))
    tracker.look(10, *of_two(HUNDRED, HUNDRED // 2, HUNDRED // 5))
    peak = peak_of(tracker)
    assert peak.value <= 4 * HUNDRED + 8192


def test_files_that_a_fork_maps_like_its_parent_are_no_growth() -> None:
    parent = msgspec.structs.replace(reading(1, 2 * HUNDRED), anonymous=HUNDRED)
    parent = msgspec.structs.replace(parent, file=HUNDRED)
    young = reading(2, HUNDRED)  # it has come to none of its parent's files yet
    held = MemoryHolding(2 * HUNDRED, 0, HUNDRED, low=3 * HUNDRED, high=3 * HUNDRED)
    tracker = PeakTracker(0)
    tracker.look(0.1, [parent, young], held)
    tracker.look(0.2, [parent], unshared(parent))

    tracker.reap(4 * HUNDRED)  # the young one at last: 300 of its own, and the files

    peak = peak_of(tracker)
    assert peak.value == (1 + 3 + 1) * HUNDRED


def test_nothing_seen_and_nothing_reaped_is_not_measured() -> None:
    tracker = PeakTracker(FLOOR)
    assert tracker.peak("by hand") is None
    assert (tracker.max_process(), tracker.virtual, tracker.best) == (None, 0, 0)


def test_the_largest_process_is_never_the_launcher() -> None:
    looks = Looks(FLOOR)
    looks.look({1: MIB})
    looks.end(max_rss=FLOOR)
    assert looks.tracker.max_process() == MIB


# What is kept


def test_virtual_size_is_summed_with_its_spikes() -> None:
    looks = Looks()
    looks.look({1: HUNDRED, 2: HUNDRED})
    looks.look({1: (HUNDRED, 3 * HUNDRED), 2: HUNDRED})
    looks.look({1: (HUNDRED, 3 * HUNDRED), 2: 2 * HUNDRED})  # the mark is the old one
    assert looks.tracker.virtual == 2 * 4 * HUNDRED


def test_the_parts_add_up_to_the_peak_a_spike_being_anonymous() -> None:
    looks = Looks()
    looks.look({1: (HUNDRED, 3 * HUNDRED)})
    peak = looks.peak()
    assert peak.anonymous is not None
    assert peak.shared is not None
    assert peak.file is not None
    assert peak.kernel is not None
    parts = (peak.anonymous, peak.shared, peak.file, peak.kernel)
    assert sum(parts) == peak.value == 3 * HUNDRED


def test_a_peak_that_the_account_shows_after_the_end_is_of_the_kinds_before() -> None:
    tracker = PeakTracker(0)
    held = MemoryHolding(5, 282, 6, low=293, high=293, is_account=True)
    tracker.look(1.0, [], held)
    ended = MemoryHolding(1, 0, 0, low=1, high=294, is_account=True, spike=293)
    tracker.look(2.0, [], ended)
    peak = peak_of(tracker)
    assert peak.value == 294
    assert (peak.anonymous, peak.shared, peak.file) == (6, 282, 6)


def test_a_process_that_no_look_met_is_in_the_account() -> None:
    tracker = PeakTracker(0)
    looked = [reading(1, MIB), reading(2, MIB)]
    held = MemoryHolding(
        4 * HUNDRED,
        0,
        0,
        low=4 * HUNDRED,
        high=4 * HUNDRED,
        is_account=True,
        most_spike=0,
    )
    tracker.look(1.0, looked, held)
    tracker.reap(3 * HUNDRED)
    peak = peak_of(tracker)
    assert (peak.value, peak.high, peak.certainty) == (
        4 * HUNDRED,
        4 * HUNDRED,
        "exact",
    )


@pytest.mark.parametrize(
    ("most", "shared", "mapped", "expected"),
    [
        (math.inf, 0, 0, 3 * H),
        (0, 0, 0, 2 * H),
        (math.inf, H, 0, 2 * H),
        (math.inf, H, H, 3 * H),
    ],
    ids=[
        "an older mark hides it",
        "the mark shows none",
        "it is shared memory now",
        "the shared memory is another's",
    ],
)
def test_a_spike_of_a_process_counts_where_the_account_may_have_had_it(
    most: float, shared: int, mapped: int, expected: int
) -> None:
    tracker = PeakTracker(0)
    held = MemoryHolding(
        2 * H, 0, 0, low=2 * H, high=2 * H, is_account=True, most_spike=most
    )
    tracker.look(1.0, [reading(1, H), reading(2, H)], held)
    held = msgspec.structs.replace(held, anonymous=2 * H - shared, shared=shared)
    first = msgspec.structs.replace(reading(1, H), shared=mapped)
    tracker.look(2.0, [first, reading(2, H, 2 * H)], held)
    peak = peak_of(tracker)
    assert peak.value == expected
    assert peak.certainty == ("exact" if most == 0 else "counted")


def test_an_account_with_an_older_mark_has_not_seen_a_larger_process() -> None:
    """That of a group that others were in before the job."""
    tracker = PeakTracker(0)
    held = MemoryHolding(HUNDRED, 0, 0, low=HUNDRED, high=HUNDRED, is_account=True)
    tracker.look(1.0, [reading(1, HUNDRED)], held)
    tracker.reap(3 * HUNDRED)
    tracker.has_unseen = True
    peak = peak_of(tracker)
    assert (peak.low, peak.high) == (3 * HUNDRED, 4 * HUNDRED)
    assert peak.certainty == "guessed"


@pytest.mark.parametrize(("grown", "above"), [(H, H), (KIB, 0)])  # a page shows nothing
def test_a_process_that_grew_after_a_count_leaves_its_error_in_the_bound(
    grown: int, above: int
) -> None:
    tracker = PeakTracker(0)
    held = MemoryHolding(4 * H, 0, 0, low=4 * H - MIB, high=4 * H + 8 * MIB)
    tracker.look(1.0, FORKS, held)
    tracker.reap(2 * H + grown)
    tracker.finish(2.0)
    peak = peak_of(tracker)
    assert (peak.value, peak.high) == (4 * H + grown, 4 * H + 8 * MIB + above)


def test_a_fork_that_grew_after_the_last_look_may_have_copied_what_it_shared() -> None:
    tracker = PeakTracker(0)
    forks = [reading(1, H), reading(2, H)]
    tracker.look(1.0, forks, MemoryHolding(H, 0, 0, low=H, high=H))
    tracker.look(2.0, forks[:1], unshared(forks[0]))
    tracker.reap(3 * H)
    peak = peak_of(tracker)
    assert (peak.value, peak.high, peak.certainty) == (3 * H, 4 * H, "guessed")


def test_shared_memory_that_a_process_left_is_not_in_its_mark_again() -> None:
    tracker = PeakTracker(0)
    tracker.look(1.0, [reading(7, 10)], MemoryHolding(10, 0, 0, low=10, high=10))
    left = MemoryHolding(10, 90, 0, low=10, high=100, unmapped=90)
    tracker.look(2.0, [reading(7, 10, 100)], left)
    peak = peak_of(tracker)
    assert peak.value == 100


def test_shared_memory_that_a_process_left_long_ago_is_not_in_its_next_mark() -> None:
    tracker = PeakTracker(0)
    left = MemoryHolding(2 * H, H, 0, low=3 * H, high=3 * H, unmapped=H)
    tracker.look(1.0, [reading(1, H), reading(2, H)], left)
    tracker.look(2.0, [reading(1, H), reading(2, H, 2 * H)], left)
    assert peak_of(tracker).value == 4 * H


# 0.05 s: short; 0.3 s: on a busy machine it waited at its start
@pytest.mark.parametrize("ended", [0.05, 0.3])
def test_a_process_that_was_hardly_seen_is_bounded_by_the_launcher(
    ended: float,
) -> None:
    tracker = PeakTracker(FLOOR)
    tracker.look(0.01, [reading(1, MIB)], unshared(reading(1, MIB)))
    tracker.reap(FLOOR)
    tracker.finish(ended)
    peak = peak_of(tracker)
    assert (peak.value, peak.low, peak.high) == (FLOOR, MIB, FLOOR)
    assert peak.certainty == "guessed"


def test_a_peak_that_no_look_met_is_of_no_kind() -> None:
    peak = Looks(FLOOR).end(max_rss=FLOOR + 1)
    assert (peak.anonymous, peak.shared, peak.file, peak.time) == (None,) * 4


@pytest.mark.parametrize("known", [(None, 1.0), (1.0, None)])
def test_the_room_to_grow_is_open_where_one_cpu_time_is_unknown(
    known: tuple[float | None, float | None],
) -> None:
    tracker = PeakTracker(0)
    for cpu_time, pids in zip(known, ((1, 2), (1,)), strict=True):
        readings = [reading(pid, H) for pid in pids]
        tracker.look(1.0, readings, unshared(*readings), cpu_time=cpu_time)
    tracker.reap(9 * H)
    assert peak_of(tracker).value == 10 * H


def test_a_sample_reports_the_moment_and_who_was_there() -> None:
    looks = Looks()
    sample = looks.look({1: HUNDRED, 2: (HUNDRED, 2 * HUNDRED)})
    assert (sample.time, sample.processes) == (INTERVAL, 2)
    assert sample.memory == 3 * HUNDRED
    # the mark is the old one
    assert looks.look({1: H, 2: (H, 2 * H)}).memory == 2 * H


def test_a_tracker_stays_small_however_many_processes_come_and_go() -> None:
    looks = Looks()
    for pid in range(5000):
        looks.look({pid: HUNDRED, pid + 1: HUNDRED})
    assert len(looks.tracker._readings) <= 2
    assert len(looks.tracker._ended) <= 16
