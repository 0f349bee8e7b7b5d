"""The table of tasks in a real browser: ten thousand, sorted, filtered, by keyboard."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from reports_to_draw import array

from weigh.model.report import JobReport, ReportRow
from weigh.units import GIB, HOUR, format_size

pytestmark = pytest.mark.browser

Opened = Any


def many() -> JobReport:
    return array(10_000, elements=250)


def column(page: Any, title: str) -> list[str]:
    """Read a column of the page that is shown."""
    titles = page.locator(".tasks thead th").all_inner_texts()
    place = titles.index(title) + 1
    cells = page.locator(f".tasks tbody tr > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def press(page: Any, title: str) -> None:
    head = page.get_by_role("columnheader", name=title, exact=True)
    head.get_by_role("button").click()


def found(page: Any) -> str:
    return str(page.locator(".pager [role=status]").inner_text())


def test_ten_thousand_tasks_are_shown_a_page_at_a_time_the_failed_first(
    opened: Opened,
) -> None:
    page = opened(many())
    rows = many().rows
    failed = [str(row.task) for row in rows if row.state != "COMPLETED"]
    assert 0 < len(failed) < len(rows)
    assert column(page, "task") == failed[:50]
    press(page, "task")
    assert column(page, "task") == [str(n) for n in range(1, 51)]
    assert found(page) == "1 to 50 of 10,000 tasks"
    page.get_by_role("button", name="Last page").click()
    assert column(page, "task")[-1] == "10000"
    assert page.get_by_role("button", name="Next page").is_disabled()
    page.get_by_role("button", name="Previous page").click()
    assert column(page, "task")[-1] == "9950"
    page.get_by_label("Rows a page").select_option("500")
    assert len(column(page, "task")) == 500


def test_on_paper_the_table_has_500_rows(opened: Opened) -> None:
    page = opened(array(700, elements=7))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert found(page) == "1 to 500 of 700 tasks"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert found(page) == "1 to 50 of 700 tasks"


def test_a_head_sorts_up_then_down_and_only_one_states_it(opened: Opened) -> None:
    page = opened(many())
    memory = sorted(row.memory or 0 for row in many().rows)
    for wanted, way in ((memory, "ascending"), (memory[::-1], "descending")):
        press(page, "memory")
        assert column(page, "memory") == [format_size(held) for held in wanted[:50]]
        said = page.locator(".tasks thead th").evaluate_all(
            "heads => heads.map(head => head.getAttribute('aria-sort'))"
        )
        assert sorted(set(said)) == sorted((way, "none"))
        assert said.count(way) == 1


@pytest.mark.parametrize(
    ("title", "rows", "orders"),
    [
        # names sort by their numbers
        (
            "node",
            [ReportRow(task=n, node=f"node{n}") for n in (10, 9, 100, 2)],
            ["node2 node9 node10 node100"],
        ),
        # what was not measured stays last either way
        (
            "memory",
            [ReportRow(task=n, memory=m) for n, m in enumerate((3, None, 5, 0), 1)],
            ["0B 3B 5B -", "5B 3B 0B -"],
        ),
        # runs stand in their order until a head is pressed
        (
            "record",
            [ReportRow(record=name, memory=n) for n, name in enumerate("cab")],
            ["a b c"],
        ),
    ],
)
def test_a_column_sorts_as_a_reader_would(
    opened: Opened, title: str, rows: list[ReportRow], orders: list[str]
) -> None:
    page = opened(JobReport(title=title, rows=tuple(rows)))
    if title == "record":
        assert column(page, title) == ["c", "a", "b"]
        assert found(page) == "1 to 3 of 3 runs"
    for order in orders:
        press(page, title)
        shown = [text.replace(" ", "") for text in column(page, title)]
        assert shown == order.split()


FILTERS: dict[str, Callable[[Any], bool]] = {
    "node07 nan": lambda row: row.node == "node07" and "NaN" in (row.reason or ""),
    "memory>4GiB": lambda row: row.memory > 4 * GIB,
    "time<90m": lambda row: row.wall_time < 1.5 * HOUR,
    "gpubusy>=95%": lambda row: row.gpu_utilization >= 0.95,
    "lr=0.003": lambda row: row.parameters["lr"] == 0.003,
    "task<=12": lambda row: row.task <= 12,
    "no such thing": lambda _: False,
}


def test_words_columns_and_states_filter_and_all_must_match(opened: Opened) -> None:
    page = opened(many())
    press(page, "task")
    for typed, holds in FILTERS.items():
        page.get_by_role("searchbox").fill(typed)
        wanted = [str(row.task) for row in many().rows if holds(row)]
        shown = f"1 to {min(50, len(wanted))} of {len(wanted):,} tasks (of 10,000)"
        assert found(page) == (shown if wanted else "none of 10,000 tasks matches")
        assert column(page, "task") == wanted[:50], typed
    page.get_by_role("searchbox").fill("")
    page.get_by_label("State").select_option("out of memory")
    number = sum(row.state == "OUT_OF_MEMORY" for row in many().rows)
    assert found(page) == f"1 to {min(50, number)} of {number} tasks (of 10,000)"
    assert set(column(page, "state")) == {"out of memory"}


def test_the_keyboard_alone_filters_sorts_and_turns(opened: Opened) -> None:
    page = opened(many())
    page.get_by_role("searchbox").focus()
    page.keyboard.type("task>9900")
    for _ in range(3):  # the state, the table's region, the first head
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert column(page, "task")[0] == "10000"
    page.get_by_role("button", name="Next page").focus()
    page.keyboard.press("Space")
    assert column(page, "task")[0] == "9950"


def test_every_cell_states_what_the_row_holds(opened: Opened) -> None:
    rows = tuple(
        ReportRow(
            task=n, output=f"log/\N{PERSONAL COMPUTER}{'x' * n}{n}.out", record=f"r{n}"
        )
        for n in range(1, 20)
    )
    page = opened(JobReport(title="texts", rows=rows))
    shown = [(row.output or "").removeprefix("log/") for row in rows]
    assert column(page, "output") == shown


def test_nothing_of_the_table_is_cut_on_a_usual_screen(opened: Opened) -> None:
    rows = [
        msgspec.structs.replace(
            row,
            output=f"/home/user/project/plan/sweep/log/tasks_0.out/{row.task}.out",
            error="ValueError: probabilities contain something odd" * (row.task == 3),
        )
        for row in array(30).rows
    ]
    page = opened(msgspec.structs.replace(array(30), rows=tuple(rows)), width=1280)
    regions = page.locator(".scroll").evaluate_all(
        "all => all.map(one => one.scrollWidth - one.clientWidth)"
    )
    assert regions == [0] * len(regions)
    cut = page.locator(".tasks td").evaluate_all(
        "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
    )
    assert cut == 0
