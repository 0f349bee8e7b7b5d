import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.errors import UsageError
from weigh.sweep import grid as room
from weigh.sweep.grid import (
    ParameterGrid,
    drawn_combinations,
    make_grid,
    matching_combinations,
    parse_condition,
)
from weigh.sweep.tasks import field_names, make_entries, with_distinct_lines
from weigh.sweep.values import parse_axis


def grid_of(*axes: str, zips: tuple[tuple[str, ...], ...] = ()) -> ParameterGrid:
    return make_grid([parse_axis(axis) for axis in axes], zips)


def rows(grid: ParameterGrid) -> list[tuple[str, ...]]:
    return [tuple(grid.combination(n).texts.values()) for n in range(grid.size)]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_grid_is_the_product_in_the_order_of_itertools(sizes: list[int]) -> None:
    grid = grid_of(*(f"p{n}=1..{size}" for n, size in enumerate(sizes)))
    counted = [[str(n) for n in range(1, size + 1)] for size in sizes]
    assert rows(grid) == list(itertools.product(*counted))


def test_zipped_parameters_go_value_by_value() -> None:
    grid = grid_of("a=1,2", "s=1,2", "b=x,y", zips=(("a", "b"),))
    assert grid.names == ("a", "b", "s")
    assert ["".join(row) for row in rows(grid)] == ["1x1", "1x2", "2y1", "2y2"]


@pytest.mark.parametrize(
    ("axes", "zips", "words"),
    [
        ("a=1,2 b=1,2,3", "a,b", "a has 2, b has 3"),
        ("a=1,2 b=1,2", "a,z", "no parameter z (there are: a, b)"),
        ("a=1,2 b=1,2", "a", "two different parameters"),
        ("a=1,2 b=1,2", "a,a", "two different parameters"),
        ("a=1,2 b=1,2", "a,", "no parameter"),
        ("a=1 b=1 c=1", "a,b a,c", "a is in another --zip already"),
        ("lr=1 lr=2", "", "lr is given twice"),
        ("a=1..100000 b=1..100000", "", "--random N"),
    ],
)
def test_what_is_no_grid_is_refused(axes: str, zips: str, words: str) -> None:
    groups = tuple(tuple(group.split(",")) for group in zips.split())
    with pytest.raises(UsageError) as refused:
        matching_combinations(grid_of(*axes.split(), zips=groups))
    assert words in str(refused.value)


def test_conditions_choose_as_a_comprehension_would() -> None:
    grid = grid_of("a=1..9", "b=1..9")
    holds = parse_condition("a < b and not (a == 2 and b in (3, 5))", grid.names)
    chosen = [grid.combination(n).values for n in matching_combinations(grid, [holds])]
    assert chosen == [
        {"a": a, "b": b}
        for a, b in itertools.product(range(1, 10), repeat=2)
        if a < b and not (a == 2 and b in (3, 5))
    ]


@given(st.integers(1, 40), st.integers())
def test_a_draw_is_of_different_combinations_and_repeatable(
    count: int, seed: int
) -> None:
    grid = grid_of("a=1..5", "b=1..6")
    drawn = drawn_combinations(grid, [], count, random.Random(seed))
    assert len(set(drawn)) == len(drawn) == min(count, 30)
    assert set(drawn) <= set(range(30))
    assert drawn == drawn_combinations(grid, [], count, random.Random(seed))


def test_every_draw_is_as_likely_as_any_other() -> None:
    grid = grid_of("a=1..4")
    chance = random.Random(1)
    drawn = [tuple(drawn_combinations(grid, [], 2, chance)) for _ in range(12_000)]
    pairs = list(itertools.permutations(range(4), 2))
    counts = [drawn.count(pair) for pair in pairs]
    # 11 degrees of freedom: above 31.3 once in a thousand
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 31.3


def test_a_draw_from_a_huge_grid_tests_few_of_its_combinations() -> None:
    grid = grid_of(*(f"p{n}=1..1000" for n in range(20)))
    tested: list[object] = []

    def holds(values: object) -> bool:
        tested.append(values)
        return True

    drawn = drawn_combinations(grid, [holds], 1000, random.Random(1))
    assert len(set(drawn)) == 1000
    assert len(tested) < 1100


@pytest.mark.parametrize("most_draws", [1000, 1_000_000])
def test_a_draw_meets_the_conditions_also_where_draws_do_not_find_them(
    most_draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_VALUES", most_draws)
    grid = grid_of("a=1..100", "b=1..100")
    holds = parse_condition("a == b", grid.names)
    drawn = drawn_combinations(grid, [holds], 1000, random.Random(1))
    assert sorted(drawn) == list(matching_combinations(grid, [holds]))


def test_a_draw_that_finds_too_few_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST_VALUES", 1000)
    grid = grid_of("a=1..20000", "b=1..20000")
    holds = parse_condition("a == 1 and b == 1", grid.names)
    with pytest.raises(UsageError, match="of 2,000 combinations drawn"):
        drawn_combinations(grid, [holds], 2, random.Random(1))


@pytest.mark.parametrize("count", [0, -1, 1_000_001])
def test_a_draw_of_none_or_too_many_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="from 1 to 1,000,000"):
        drawn_combinations(grid_of("a=1"), [], count, random.Random(1))


TEMPLATES = st.lists(
    st.sampled_from(["{a}", "{b}", "{a}{b}", "{a}-{b}", "x{b}", "x"]), min_size=1
).filter(lambda words: set(field_names(words)) == {"a", "b"})


@pytest.mark.parametrize("zips", [(), (("a", "b"),)])
@given(argv=TEMPLATES)
def test_no_two_tasks_have_one_line(
    argv: list[str], zips: tuple[tuple[str, ...], ...]
) -> None:
    grid = grid_of("a=1,11,1,1-1,''", "b=1,11,1,1-1,''", zips=zips)
    indices = with_distinct_lines(grid, matching_combinations(grid), argv)
    every = [
        entry.task.line
        for entry in make_entries(grid, matching_combinations(grid), argv)
    ]
    kept = [entry.task.line for entry in make_entries(grid, indices, argv)]
    assert kept == list(dict.fromkeys(every))
