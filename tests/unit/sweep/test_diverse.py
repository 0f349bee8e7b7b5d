from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.sweep.diverse import (
    choose_diverse,
    read_parameters,
    varying_task_parameters,
)
from weigh.sweep.values import Value

NUMBERS = st.lists(
    st.integers(-(10**6), 10**6) | st.integers(-(10**6), 10**6).map(lambda n: n / 64),
    min_size=2,
    max_size=5,
    unique_by=float,
)


def grid(**axes: list[Value]) -> list[dict[str, Value]]:
    return [dict(zip(axes, row, strict=True)) for row in product(*axes.values())]


@given(NUMBERS, NUMBERS, st.integers(2, 6))
def test_a_grid_gives_the_extremes_of_every_number(
    one: list[Value], other: list[Value], count: int
) -> None:
    tasks = grid(a=one, b=other)
    chosen = [tasks[at] for at in choose_diverse(tasks, count)]
    for name, values in (("a", one), ("b", other)):
        seen = {task[name] for task in chosen}
        assert {min(values, key=float), max(values, key=float)} <= seen


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))))
def test_a_choice_names_different_tasks_and_as_many_as_requested(
    tasks: list[dict[str, Value]],
) -> None:
    for count in range(len(tasks) + 2):
        chosen = choose_diverse(tasks, count)
        assert len(set(chosen)) == len(chosen) == min(count, len(tasks))
        assert all(0 <= at < len(tasks) for at in chosen)


def test_a_larger_choice_begins_with_the_smaller_one() -> None:
    tasks = grid(lr=[0.1, 0.01, 0.001], batch=[8, 64, 512], seed=[1, 2, 3])
    assert choose_diverse(tasks, 6)[:4] == choose_diverse(tasks, 4)


def test_the_first_task_has_the_largest_numbers() -> None:
    tasks = grid(batch=[50, 300, 100], layers=[2, 12])
    assert tasks[choose_diverse(tasks, 1)[0]] == {"batch": 300, "layers": 12}


def test_every_word_is_seen_before_any_number_between() -> None:
    tasks = grid(algorithm=["dqn", "ppo", "sac", "a2c"], lr=[1, 2, 3, 4, 5])
    chosen = [tasks[at] for at in choose_diverse(tasks, 4)]
    assert len({task["algorithm"] for task in chosen}) == 4


def test_orders_of_magnitude_are_spaced_by_factors() -> None:
    tasks = grid(lr=[1e-5, 1e-4, 1e-3, 1e-2, 1e-1])
    assert choose_diverse(tasks, 3) == (4, 0, 2)


def test_seeds_count_less_than_settings() -> None:
    tasks = grid(lr=[0.1, 0.2], layers=[2, 4], seed=[1, 2, 3, 4, 5])
    chosen = [tasks[at] for at in choose_diverse(tasks, 4)]
    assert len({(task["lr"], task["layers"]) for task in chosen}) == 4


def test_tasks_alike_in_everything_are_taken_in_their_order() -> None:
    assert choose_diverse([{"a": 1}] * 4, 3) == (0, 1, 2)


def test_a_line_reports_its_parameters() -> None:
    line = "python train.py --lr 0.1 --layers=3 optimizer=adam -v --shift -0.5 --amp"
    assert read_parameters(line) == {
        "#0": "python",
        "#1": "train.py",
        "lr": 0.1,
        "layers": 3,
        "optimizer": "adam",
        "v": "",
        "shift": -0.5,  # a number below zero is a value and no flag
        "amp": "",
    }


@pytest.mark.parametrize(
    ("tasks", "varying"),
    [
        ([{"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1}], ("b",)),
        ([{"a": 1}, {"a": 1, "c": 2}], ("c",)),
        # several values come before those of some tasks, each in the order of a task
        ([{"#0": "py", "lr": 0.1}, {"#0": "py", "lr": 0.2}, {"#1": "x"}], "lr #0 #1"),
        ([{"lr": lr, "seed": n} for lr in (0.1, 0.2) for n in (1, 2)], "lr seed"),
    ],
)
def test_parameters_that_vary_are_named_in_order(
    tasks: list[dict[str, Value]], varying: tuple[str, ...] | str
) -> None:
    names = varying.split() if isinstance(varying, str) else varying
    assert varying_task_parameters(tasks) == tuple(names)
