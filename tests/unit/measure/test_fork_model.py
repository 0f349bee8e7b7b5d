"""The model of forks, against families whose pages are known one by one."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from weigh.measure.memory.counts import PageCount
from weigh.measure.memory.families import (
    ForkFamily,
    MemberReading,
    PageOverlap,
    corrected_estimate,
)
from weigh.measure.memory.holding import PageEstimate
from weigh.units import MIB

PAGE = 4096


class FollowedFamily(ForkFamily):
    """The model, which returns its estimate after each look."""

    def look(self, group: list[MemberReading]) -> PageEstimate:
        self.advance(group)
        return self.estimate()


class Family:
    """Forks of one another as sets of pages: what the kernel does, in miniature."""

    def __init__(self) -> None:
        self.pages: dict[int, dict[int, int]] = {1: {}}  # pid: address: page
        self.parents = {1: 0}
        self.faults = {1: 0}
        self.reaped = {1: 0}  # faults of children that ended
        self.peaks = {1: 0}
        self._next = 0

    def write(self, pid: int, addresses: range) -> None:
        """Touch each address: a fault unless the page is the process's own."""
        for address in addresses:
            page = self.pages[pid].get(address)
            sharers = sum(page in own.values() for own in self.pages.values())
            if page is None or sharers > 1:
                self._next += 1
                self.pages[pid][address] = self._next
                self.faults[pid] += 1
                self.peaks[pid] = max(self.peaks[pid], len(self.pages[pid]))

    def free(self, pid: int, addresses: range) -> None:
        for address in addresses:
            self.pages[pid].pop(address, None)

    def fork(self, parent: int) -> int:
        pid = max(self.parents) + 1
        self.pages[pid] = dict(self.pages[parent])
        self.parents[pid], self.faults[pid], self.reaped[pid] = parent, 0, 0
        self.peaks[pid] = len(self.pages[pid])
        return pid

    def end(self, pid: int) -> None:
        del self.pages[pid]
        if self.parents[pid] in self.pages:
            self.reaped[self.parents[pid]] += self.faults[pid]

    def seen(self) -> list[MemberReading]:
        return [
            MemberReading(
                pid=pid,
                parent=self.parents[pid],
                family="f",
                anonymous=len(own) * PAGE,
                mapped=0,
                faulted=self.faults[pid] * PAGE,
                faulted_by_reaped=self.reaped[pid] * PAGE,
                resident=len(own) * PAGE,
                peak=self.peaks[pid] * PAGE,
            )
            for pid, own in self.pages.items()
        ]

    def truth(self) -> int:
        return PAGE * len(
            {page for own in self.pages.values() for page in own.values()}
        )

    def count(self) -> PageCount:
        """Count all pages."""
        everywhere = [page for own in self.pages.values() for page in own.values()]
        alone = {page for page in everywhere if everywhere.count(page) == 1}
        private = {
            pid: len(alone & set(own.values())) / len(own) if own else 1.0
            for pid, own in self.pages.items()
        }
        distinct = len(set(everywhere)) / max(1, len(everywhere))
        return PageCount(distinct, 0.0001, private, is_by_shares=True)


# what happens between two looks: (what, which process, first address, how many)
STEPS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "free", "fork", "end"]),
            st.integers(0, 5),
            st.integers(0, 30),
            st.integers(1, 15),
        ),
        max_size=3,
    ),
    min_size=1,
    max_size=12,
)


def happen(family: Family, what: str, which: int, first: int, many: int) -> None:
    alive = sorted(family.pages)
    pid = alive[which % len(alive)]
    if what == "fork" and len(alive) < 6:
        family.fork(pid)
    elif what == "end" and len(alive) > 1 and pid != 1:
        family.end(pid)
    elif what in ("write", "free"):
        getattr(family, what)(pid, range(first, first + many))


@given(STEPS)
def test_the_estimate_lies_between_one_member_and_the_sum(
    steps: list[list[tuple[str, int, int, int]]],
) -> None:
    family, model = Family(), FollowedFamily()
    model.look(family.seen())
    for step in steps:
        for event in step:
            happen(family, *event)
        estimate = model.look(family.seen())
        sizes = [seen.anonymous for seen in family.seen()]
        assert (
            max(sizes) <= estimate.low <= estimate.value <= estimate.high <= sum(sizes)
        )


ONE_AT_A_LOOK = st.lists(
    st.tuples(
        st.sampled_from(["write", "fork", "end"]),
        st.integers(0, 5),
        st.integers(0, 30),
        st.integers(1, 15),
    ),
    max_size=25,
)


@given(ONE_AT_A_LOOK)
def test_bounds_hold_while_nothing_is_freed(
    events: list[tuple[str, int, int, int]],
) -> None:
    """One event at a look: what a free shows of shared pages is ambiguous."""
    family, model = Family(), FollowedFamily()
    model.look(family.seen())
    for event in events:
        happen(family, *event)
        estimate = model.look(family.seen())
        assert estimate.low <= family.truth() <= estimate.high


@given(ONE_AT_A_LOOK)
@example(  # what one shared with its fork alone goes with both of them
    [
        ("fork", 0, 0, 1),
        ("write", 1, 26, 7),
        ("fork", 1, 0, 1),
        ("end", 2, 0, 1),
        ("write", 0, 6, 9),
        ("fork", 0, 0, 1),
        ("end", 1, 0, 1),
    ]
)
@example(
    [
        ("fork", 0, 0, 1),
        ("write", 0, 29, 9),
        ("write", 1, 3, 12),
        ("fork", 0, 0, 1),
        ("fork", 1, 0, 1),
        ("end", 3, 0, 1),
        ("end", 1, 0, 1),
    ]
)
def test_a_count_lies_within_the_bounds_of_the_look_without_it(
    events: list[tuple[str, int, int, int]],
) -> None:
    """One account at two resolutions: one is corrected at every look, one never."""
    family, counted, cheap = Family(), FollowedFamily(), FollowedFamily()
    for event in events:
        happen(family, *event)
        estimate = cheap.look(family.seen())
        counted.look(family.seen())
        if len(family.pages) > 1 and any(family.pages.values()):
            counted.correct(family.count(), {})
        value = counted.estimate().value
        assert estimate.low <= value <= estimate.high
        assert value == pytest.approx(family.truth(), rel=0.001, abs=PAGE)


def grown(pages: int) -> tuple[Family, FollowedFamily]:
    """Return a family of one member with so many pages, and the model that saw it."""
    family, model = Family(), FollowedFamily()
    family.write(1, range(pages))
    model.look(family.seen())
    return family, model


@pytest.mark.parametrize("copied", [0, 10, 60, 100])
def test_copies_are_reported_by_their_faults(copied: int) -> None:
    family, model = grown(100)
    children = [family.fork(1), family.fork(1)]
    assert model.look(family.seen()).value == 100 * PAGE
    for pid in children:
        family.write(pid, range(copied))
    assert model.look(family.seen()).value == (100 + 2 * copied) * PAGE
    assert family.truth() == (100 + 2 * copied) * PAGE


@pytest.mark.parametrize("is_seen_alone", [True, False])
def test_children_one_after_another_do_not_add_up(*, is_seen_alone: bool) -> None:
    family, model = grown(100)
    for _ in range(30):
        child = family.fork(1)
        family.write(child, range(100, 150))
        assert model.look(family.seen()).value == family.truth() == 150 * PAGE
        family.write(1, range(10))  # a copy as long as the child lives
        family.end(child)
        if is_seen_alone:
            model.look(family.seen())


ONE_WROTE_AGAIN = "1 writes, look, 1 forks, look, 1 writes, look, "
ONE_GREW_AND_FORKED = "1 writes, 1 forks, look, 2 writes, look, 2 forks, look, "
# what processes do with a hundred pages, between looks, and how many pages are left
SCENES = {
    "the old pages of a parent stay with its forks": (
        "1 writes, look, " + "1 forks, 1 forks, look, 1 writes, look, " * 3,
        400,
    ),
    "old pages stay with the only fork of who held them": (
        ONE_WROTE_AGAIN + "2 forks, 2 ends, look",
        200,
    ),
    "old pages stay with a fork of who held them": (
        ONE_WROTE_AGAIN + "1 forks, look, 2 forks, look, 2 ends, look",
        200,
    ),
    "a fork keeps what its parent had, and its parent's other fork": (
        ONE_GREW_AND_FORKED + "2 forks, look, 2 ends, look, 3 ends, look",
        200,
    ),
    "old pages stay with a fork that no look saw with its parent": (
        ONE_WROTE_AGAIN + "1 forks, look, 2 forks, 2 ends, look",
        200,
    ),
}


def played(script: str) -> tuple[Family, PageEstimate]:
    """Play a scene; return the family, and the estimate after its last look."""
    family, model = Family(), FollowedFamily()
    estimate = model.estimate()
    for step in script.strip(", ").split(", "):
        pid, _, what = step.partition(" ")
        if step == "look":
            estimate = model.look(family.seen())
        elif what == "writes":
            family.write(int(pid), range(100))
        else:
            {"forks": family.fork, "ends": family.end}[what](int(pid))
    return family, estimate


@pytest.mark.parametrize("scene", SCENES)
def test_the_estimate_is_the_truth_where(scene: str) -> None:
    script, pages = SCENES[scene]
    family, estimate = played(script)
    assert estimate.value == family.truth() == pages * PAGE


def test_what_a_fork_shared_with_its_own_fork_may_go_with_it() -> None:
    family, estimate = played(
        "1 forks, 2 writes, look, 2 forks, look, 3 ends, look, 1 forks, look, "
        "2 ends, look"
    )
    assert estimate.low == family.truth() == 0


@pytest.mark.parametrize("is_counted", [False, True])
def test_copies_of_a_child_that_has_ended_since_are_a_bound(
    *, is_counted: bool
) -> None:
    family, model = grown(100)
    child = family.fork(1)
    family.write(child, range(10))
    model.look(family.seen())
    if is_counted:  # its faults were copies so far
        model.correct(family.count(), {})
    family.write(child, range(60))
    family.end(child)
    assert model.look(family.seen()).value == family.truth() == 100 * PAGE
    assert model.passed == 50 * PAGE


def test_a_child_that_waits_to_be_reaped_has_copied_no_more_by_then() -> None:
    family, model = grown(100)
    first, second = family.fork(1), family.fork(1)
    for pid in (first, second):
        family.write(pid, range(60))
    model.look(family.seen())
    del family.pages[first]  # its parent has not waited for it
    model.look(family.seen())
    family.reaped[1] += family.faults[first]
    family.end(second)
    model.look(family.seen())
    assert model.passed == 0


def test_what_all_have_copied_is_not_shared_with_a_later_fork() -> None:
    family, model = grown(100)
    child = family.fork(1)
    model.look(family.seen())
    for pid in (1, child):
        family.write(pid, range(100))
    model.look(family.seen())
    family.write(1, range(100))  # its own by now
    model.look(family.seen())
    model.correct(family.count(), {})
    family.fork(1)
    assert model.look(family.seen()).value == family.truth() == 200 * PAGE


def test_versions_of_a_page_that_a_count_of_points_takes_for_one_stay_two() -> None:
    family, model = grown(100)
    child = family.fork(1)
    model.look(family.seen())
    family.write(child, range(100))
    model.look(family.seen())
    for pid in (1, child):
        family.fork(pid)
    model.look(family.seen())
    # both versions are at the same addresses, and each has two members
    own = dict.fromkeys(family.pages, 0.0)
    model.correct(PageCount(100 / 400, 0.01, own, 100 / 400), {})
    assert model.estimate().value == pytest.approx(family.truth(), rel=0.01)


def test_faults_of_one_that_was_never_larger_are_copies() -> None:
    """Whatever those of others were."""
    family, model = grown(1000)
    churner, copier = family.fork(1), family.fork(1)
    model.look(family.seen())
    for _ in range(10):
        family.write(churner, range(2000, 2500))
        family.free(churner, range(2000, 2500))
        model.look(family.seen())
    model.correct(family.count(), {})
    family.write(copier, range(700))
    assert model.look(family.seen()).value == family.truth() == 1700 * PAGE


def test_faults_that_were_no_copies_are_learned_from_a_count() -> None:
    family, model = grown(1000)
    child = family.fork(1)
    model.look(family.seen())

    def churn() -> PageEstimate:
        for _ in range(10):
            family.write(child, range(2000, 2050))
            family.free(child, range(2000, 2050))
        return model.look(family.seen())

    before = churn()
    assert before.low <= family.truth() < before.value
    model.correct(family.count(), {})
    assert churn().value == pytest.approx(family.truth(), rel=0.01)
    # what several counts have shown of all faults holds for as many, without any count
    for _ in range(8):
        model.correct(family.count(), {})
        churn()
    for _ in range(7):
        assert churn().high == pytest.approx(family.truth(), rel=0.05)
    for _ in range(8):
        churn()
    assert model.estimate().high > 1.5 * family.truth()


def test_memory_taken_and_given_back_does_not_add_up() -> None:
    family, model = grown(500)
    child = family.fork(1)
    model.look(family.seen())
    estimate = model.estimate()
    for _ in range(30):
        family.write(child, range(1000, 1100))
        model.look(family.seen())
        family.free(child, range(1000, 1100))
        estimate = model.look(family.seen())
    assert estimate.value == family.truth() == 500 * PAGE


def test_faults_below_a_new_mark_are_growth_though_all_of_it_is_freed() -> None:
    family, model = grown(500)
    child = family.fork(1)
    model.look(family.seen())
    family.write(child, range(1000, 1400))
    family.free(child, range(1000, 1400))
    # as many again were below that mark: they may be copies
    family.write(child, range(100))
    assert model.look(family.seen()).value == family.truth() == 600 * PAGE


@given(STEPS)
def test_between_two_looks_a_process_holds_no_more_than_at_them_and_it_gave_back(
    steps: list[list[tuple[str, int, int, int]]],
) -> None:
    family = Family()
    for step in steps:
        (before,) = family.seen()
        most = before.anonymous
        for what, *where in step:
            if what in ("write", "free"):
                happen(family, what, *where)
                most = max(most, family.truth())
        (now,) = family.seen()
        larger = max(before.anonymous, now.anonymous)
        assert most <= larger + now.given_back_since(before) <= now.peak


def test_what_goes_from_one_process_to_the_next_was_not_held_by_both() -> None:
    family, model = Family(), FollowedFamily()
    family.fork(1)
    for large, small in ((1, 2), (2, 1)) * 3:
        family.free(small, range(100))
        family.write(large, range(100))
        model.look(family.seen())
        assert model.passed == 0


def test_what_a_parent_got_before_it_forked_is_no_growth_of_the_fork() -> None:
    family, model = Family(), FollowedFamily()
    family.write(1, range(10))
    family.fork(1)
    model.look(family.seen())
    family.write(1, range(10, 100))
    for _ in range(2):
        child = family.fork(1)
        family.write(child, range(1000, 1005))
    estimate = model.look(family.seen())
    assert estimate.low <= family.truth() == 110 * PAGE <= estimate.high
    assert estimate.value == pytest.approx(family.truth(), rel=0.06)


@pytest.mark.parametrize(
    ("estimate", "error", "found"),
    [
        (PageEstimate(60, 0, 100), 1, PageEstimate(80, 79, 81)),
        (PageEstimate(60, 50, 70), 20, PageEstimate(70, 60, 70)),  # what both allow
        (PageEstimate(60, 60, 60), 1, PageEstimate(80, 79, 81)),  # contradicted
    ],
)
def test_a_count_decides_within_the_bounds_of_an_estimate(
    estimate: PageEstimate, error: float, found: PageEstimate
) -> None:
    assert corrected_estimate(estimate, 80, error) == found


def test_what_a_member_grew_by_during_a_count_is_its_own() -> None:
    family, model = grown(100)
    child = family.fork(1)
    model.look(family.seen())
    family.write(child, range(1000, 1300))  # after its size was read
    model.correct(family.count(), {child: 300 * PAGE})
    assert model.estimate().value == 100 * PAGE
    assert model.look(family.seen()).value == family.truth() == 400 * PAGE


# Files and shared memory

SIZES = st.lists(st.integers(0, 1000), max_size=6)


@given(
    st.lists(
        st.tuples(SIZES, st.none() | st.floats(0, 1), st.integers(0, 1000)), min_size=1
    )
)
def test_an_overlap_lies_between_all_and_nothing(
    looks: list[tuple[list[int], float | None, int]],
) -> None:
    overlap = PageOverlap()
    for sizes, distinct, new in looks:
        estimate = overlap.estimate(sizes, new)
        assert max(sizes, default=0) <= estimate.low <= estimate.value
        assert estimate.value <= estimate.high <= sum(sizes)
        if distinct is not None:
            overlap.correct(sizes, PageCount(distinct), new)


def test_before_a_count_all_are_taken_to_map_the_same() -> None:
    overlap = PageOverlap()
    assert overlap.estimate([10, 30, 20]) == PageEstimate(30, 30, 60)
    overlap.correct([10, 30, 20], PageCount(0.75, 0.0001))
    assert overlap.estimate([10, 30, 20]).value == 45


@pytest.mark.parametrize(
    ("union", "machine", "expected"), [(60, 99, 100), (60, 0, 60), (40, 99, 60)]
)
def test_what_two_forks_map_is_as_new_as_before_if_the_machine_has_more(
    union: int, machine: int, expected: int
) -> None:
    """Both map the same 20 MiB, then 20 more each, then 20 more each."""
    overlap = PageOverlap()
    overlap.correct([20 * MIB, 20 * MIB], PageCount(20 / 40))
    overlap.correct([40 * MIB, 40 * MIB], PageCount(union / 80))
    value = overlap.estimate([60 * MIB, 60 * MIB], machine * MIB).value
    assert value == pytest.approx(expected * MIB, rel=0.02)
