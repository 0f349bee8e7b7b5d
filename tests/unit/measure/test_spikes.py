"""Spikes of several processes between two looks."""

from hypothesis import given
from hypothesis import strategies as st
from looks import HUNDRED, Looks

from weigh.measure.memory.holding import MemoryHolding
from weigh.measure.peak import PeakTracker
from weigh.probe.proc import ProcessReading


def in_turn(looks: Looks, rounds: int) -> None:
    """Let two processes be seen large in turn, and never together."""
    for round_ in range(rounds):
        large, small = (1, 2) if round_ % 2 else (2, 1)
        looks.look({large: (2 * HUNDRED, 2 * HUNDRED), small: (10, 2 * HUNDRED)})


def spikes_of_both(looks: Looks) -> None:
    looks.look({1: (10, 4 * HUNDRED), 2: (10, 4 * HUNDRED)})


def test_spikes_of_processes_that_take_turns_are_not_added() -> None:
    looks = Looks()
    in_turn(looks, 10)
    spikes_of_both(looks)
    peak = looks.peak()
    assert peak.value <= 4 * HUNDRED + 20


def test_of_spikes_between_two_looks_the_largest_counts_and_all_are_a_bound() -> None:
    looks = Looks()
    looks.look({1: 10, 2: 10})
    looks.look({1: (10, 4 * HUNDRED), 2: (10, 3 * HUNDRED)})
    peak = looks.peak()
    assert peak.value == 4 * HUNDRED + 10
    assert (peak.high, peak.certainty) == (7 * HUNDRED, "guessed")


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
    peak = tracker.peak("by hand")
    assert peak is not None
    assert peak.value <= 4 * HUNDRED + 8192


SIZES = st.integers(0, 1000)


@given(
    st.lists(
        st.dictionaries(
            st.integers(1, 5), st.tuples(SIZES, SIZES), min_size=2, max_size=5
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_peak_lies_between_its_bounds(
    trees: list[dict[int, tuple[int, int]]],
) -> None:
    looks = Looks()
    for tree in trees:
        looks.look({pid: (held, held + more) for pid, (held, more) in tree.items()})
    peak = looks.tracker.peak("by hand")
    assert peak is None or peak.low <= peak.value <= peak.high
