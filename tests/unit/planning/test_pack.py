import random
from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.plan import RESOURCES, BinCapacity, PackedTasks, TaskNeed
from weigh.planning.bin_packing import pack_items

NEEDS = st.builds(
    TaskNeed,
    gpu_memory=st.integers(0, 12),
    memory=st.integers(0, 12),
    cpus=st.integers(1, 5),
    time=st.none() | st.floats(0, 1e6),
)
LIMITS = st.none() | st.integers(1, 20)
COUNTS = st.none() | st.integers(1, 4)  # so few that items of another kind meet them
CAPACITIES = st.builds(
    BinCapacity, gpu_memory=LIMITS, memory=LIMITS, cpus=LIMITS, count=COUNTS
)


def fits(group: Sequence[TaskNeed], capacity: BinCapacity) -> bool:
    enough_room = all(
        limit is None or sum(getattr(item, resource) for item in group) <= limit
        for resource in RESOURCES
        for limit in [getattr(capacity, resource)]
    )
    return enough_room and (capacity.count is None or len(group) <= capacity.count)


def fewest(items: Sequence[TaskNeed], capacity: BinCapacity) -> int:
    """Find the least number of bins by trying every subset as the next bin."""
    whole = (1 << len(items)) - 1

    def chosen(mask: int) -> list[TaskNeed]:
        return [item for at, item in enumerate(items) if mask >> at & 1]

    good = {mask for mask in range(1, whole + 1) if fits(chosen(mask), capacity)}

    @cache
    def bins(left: int) -> int:
        if not left:
            return 0
        first = left & -left
        rest = part = left ^ first
        least = len(items)
        while True:
            if (part | first) in good:
                least = min(least, 1 + bins(rest ^ part))
            if not part:
                return least
            part = (part - 1) & rest

    return bins(whole)


def fitting(items: Sequence[TaskNeed], capacity: BinCapacity) -> list[TaskNeed]:
    return [item for item in items if fits([item], capacity)]


def check(
    packing: PackedTasks, items: Sequence[TaskNeed], capacity: BinCapacity
) -> None:
    placed = [at for bin_ in packing.bins for at in bin_.items]
    left_out = [short.item for short in packing.too_big]
    assert sorted(placed + left_out) == list(range(len(items)))
    for bin_ in packing.bins:
        group = [items[at] for at in bin_.items]
        assert group
        assert fits(group, capacity)
        assert bin_.gpu_memory == sum(item.gpu_memory for item in group)
        assert bin_.cpus == sum(item.cpus for item in group)


@given(st.lists(NEEDS, max_size=40), CAPACITIES)
def test_every_item_is_in_a_bin_that_holds_it_or_too_big_for_one_of_its_own(
    items: list[TaskNeed], capacity: BinCapacity
) -> None:
    packing = pack_items(items, capacity)

    check(packing, items, capacity)
    too_big = {short.item for short in packing.too_big}
    alone = {at for at, item in enumerate(items) if not fits([item], capacity)}
    assert too_big == alone
    for short in packing.too_big:
        assert short.need == getattr(items[short.item], short.resource)
        assert short.need > short.capacity


@given(st.lists(NEEDS, max_size=9), CAPACITIES)
def test_a_few_items_take_at_most_one_bin_more_than_the_fewest(
    items: list[TaskNeed], capacity: BinCapacity
) -> None:
    kept = fitting(items, capacity)

    assert len(pack_items(kept, capacity).bins) <= fewest(kept, capacity) + 1


# each but the last is what only one of the orders packs best
@pytest.mark.parametrize(
    "needs",
    [
        ((9, 3, 2), (1, 3, 4), (1, 1, 6), (5, 6, 8), (1, 9, 9), (1, 8, 2)),
        ((2, 2, 4), (1, 6, 2), (3, 2, 8), (8, 1, 3)),
        ((2, 5, 2), (1, 7, 2), (9, 1, 2), (5, 2, 6)),
        ((7, 7, 7), (3, 3, 3)),  # which fill a bin to the last byte
    ],
)
def test_needs_that_one_order_packs_best_take_the_fewest_bins(
    needs: Sequence[tuple[int, int, int]],
) -> None:
    items = [TaskNeed(*need) for need in needs]
    capacity = BinCapacity(gpu_memory=10, memory=10, cpus=10)

    assert len(pack_items(items, capacity).bins) == fewest(items, capacity)


@given(NEEDS, st.integers(1, 9), CAPACITIES)
def test_items_all_alike_take_the_fewest_bins(
    item: TaskNeed, count: int, capacity: BinCapacity
) -> None:
    kept = fitting([item] * count, capacity)

    assert len(pack_items(kept, capacity).bins) == fewest(kept, capacity)


def test_three_thousand_random_items_are_within_5_per_cent_of_their_volume() -> None:
    rng = random.Random(1)
    capacity = BinCapacity(gpu_memory=1 << 35, memory=1 << 37, cpus=1000)
    shares = [[rng.uniform(0.01, 0.25) for _ in range(3)] for _ in range(3000)]
    items = [
        TaskNeed(round(a * (1 << 35)), round(b * (1 << 37)), max(1, round(c * 1000)))
        for a, b, c in shares
    ]

    packing = pack_items(items, capacity)

    check(packing, items, capacity)
    volume = max(
        sum(getattr(item, resource) for item in items) / getattr(capacity, resource)
        for resource in RESOURCES
    )
    assert len(packing.bins) <= 1.05 * volume + 1


def test_a_bin_takes_as_long_as_its_slowest_item() -> None:
    slow, quick, unknown = (TaskNeed(time=time) for time in (60.0, 5.0, None))

    assert pack_items([slow, quick], BinCapacity(cpus=2)).bins[0].time == 60
    assert pack_items([slow, unknown], BinCapacity(cpus=2)).bins[0].time is None


@pytest.mark.parametrize("item", [TaskNeed(cpus=0), TaskNeed(gpu_memory=-1)])
def test_an_item_of_less_than_nothing_is_refused(item: TaskNeed) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        pack_items([item], BinCapacity())
