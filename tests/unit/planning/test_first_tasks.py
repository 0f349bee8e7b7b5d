"""Which tasks run first, and what the others request by what these used."""

import pytest

from weigh.planning.first_tasks import (
    FirstTaskUsage,
    TaskTraits,
    choose_first,
    rest_choices,
)

MIB = 1 << 20


def test_by_size_the_largest_and_the_smallest_run_first() -> None:
    lines = [TaskTraits(0, files=size) for size in (30, 10, 50, 20, 40, 60, 15)]

    first = choose_first(lines, 3)

    assert first.places == (0, 1, 5)
    assert first.by == "the size of their files"


def test_of_several_numbers_all_are_extreme() -> None:
    lines = [
        TaskTraits(0, numbers={"lr": lr, "batch": batch})
        for lr in (1e-5, 1e-3, 1e-1)
        for batch in (8.0, 16.0, 512.0)
    ]

    assert choose_first(lines, 2).places == (0, 8)


def test_without_sizes_they_are_not_the_first_of_the_file() -> None:
    lines = [TaskTraits(0)] * 100

    first = choose_first(lines, 3)

    assert len(first.places) == 3
    assert first.places != (0, 1, 2)
    assert first == choose_first(lines, 3)


def test_each_kind_of_the_plan_has_its_own() -> None:
    first = choose_first([TaskTraits(0)] * 10 + [TaskTraits(1)] * 10, 2)

    assert sorted(place // 10 for place in first.places) == [0, 0, 1, 1]


def test_kinds_that_are_too_many_are_one() -> None:
    assert len(choose_first([TaskTraits(n) for n in range(30)], 3).places) == 3


def test_a_kind_is_sized_from_its_own_and_another_from_all() -> None:
    first = [
        FirstTaskUsage(0, 100 * MIB),
        FirstTaskUsage(0, 200 * MIB),
        FirstTaskUsage(1, 500 * MIB),
    ]

    needs = [one.need for one in rest_choices(first, [0, 1, 2], 1, strict=True)]

    assert needs == pytest.approx([227 * MIB, 620 * MIB, 620 * MIB], abs=1)


@pytest.mark.parametrize(("count", "share"), [(1, 0.24), (3, 0.10), (10, 0.05)])
def test_the_more_first_tasks_the_less_is_added(count: int, share: float) -> None:
    (rest,) = rest_choices([FirstTaskUsage(0, 1000 * MIB)] * count, [0], 1, strict=True)

    assert rest.need == pytest.approx((1 + share) * 1000 * MIB, rel=0.002)


def test_a_healer_sends_nothing_after_trouble_a_person_does() -> None:
    first = [FirstTaskUsage(0, 100 * MIB), FirstTaskUsage(0, None, "task 2 failed")]

    (held,) = rest_choices(first, [0], 1, strict=True)
    (sent,) = rest_choices(first, [0], 1, strict=False)

    assert not held.run
    assert "task 2 failed" in held.reason
    assert sent.run
    assert sent.need == pytest.approx(124 * MIB, abs=1)


def test_nothing_is_sent_while_a_first_one_runs() -> None:
    first = [
        FirstTaskUsage(0, 100 * MIB),
        FirstTaskUsage(0, None, "task 2 has not ended", has_ended=False),
    ]

    assert not rest_choices(first, [0], 1, strict=False)[0].run


def test_a_task_too_small_to_measure_needs_something() -> None:
    assert (
        rest_choices([FirstTaskUsage(0, None)], [0], 1, strict=True)[0].need or 0
    ) > 0


def test_without_any_measurement_the_request_stays() -> None:
    (choice,) = rest_choices(
        [FirstTaskUsage(0, None, "task 1 failed")], [0], 1, strict=False
    )

    assert choice.run
    assert choice.need is None
