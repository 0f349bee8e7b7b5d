"""The highest mark since any moment."""

import random

from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.region.high_water import HighWaterMark

_steps = st.lists(st.none() | st.integers(0, 20))  # None: a moment begins


@given(_steps, st.randoms(use_true_random=False))
def test_it_agrees_with_the_maximum_of_all_marks_since(
    steps: list[int | None], chance: random.Random
) -> None:
    highest = HighWaterMark()
    begun: dict[int, list[int]] = {}
    for step in steps:
        if step is None:
            begun[highest.moment()] = []
            continue
        highest.take(step)
        for marks in begun.values():
            marks.append(step)
        if begun and chance.random() < 0.2:
            del begun[chance.choice(list(begun))]
            highest.keep_since(begun)
            assert len(highest) <= len(begun)
    for moment, marks in begun.items():
        assert highest.since(moment) == max(marks, default=None)


def test_marks_that_are_no_more_are_not_kept() -> None:
    highest = HighWaterMark()
    for mark in range(1000, 0, -1):
        highest.take(mark)
    assert len(highest) == 1
