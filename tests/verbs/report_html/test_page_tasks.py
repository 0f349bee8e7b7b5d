"""The table of tasks in a real browser: ten thousand, sorted, filtered, by keyboard."""

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


def press(page: Any, title: str) -> Any:
    head = page.get_by_role("columnheader", name=title, exact=True)
    head.get_by_role("button").click()
    return head


def found(page: Any) -> str:
    return str(page.locator(".pager [role=status]").inner_text())


def test_ten_thousand_tasks_are_shown_a_page_at_a_time(opened: Opened) -> None:
    page = opened(many())
    press(page, "task")
    assert column(page, "task") == [str(n) for n in range(1, 51)]
    assert found(page) == "1 to 50 of 10,000 tasks"


def test_failed_tasks_come_first(opened: Opened) -> None:
    rows = many().rows
    failed = [str(row.task) for row in rows if row.state != "COMPLETED"]
    assert 0 < len(failed) < len(rows)
    assert column(opened(many()), "task") == failed[:50]


def test_on_paper_the_table_has_500_rows(opened: Opened) -> None:
    page = opened(array(700, elements=7))
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert found(page) == "1 to 500 of 700 tasks"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert found(page) == "1 to 50 of 700 tasks"


def test_a_head_sorts_up_then_down(opened: Opened) -> None:
    page = opened(many())
    memory = sorted(row.memory or 0 for row in many().rows)
    head = press(page, "memory")
    assert column(page, "memory") == [format_size(held) for held in memory[:50]]
    assert head.get_attribute("aria-sort") == "ascending"
    press(page, "memory")
    assert column(page, "memory") == [format_size(held) for held in memory[:-51:-1]]
    assert head.get_attribute("aria-sort") == "descending"


def test_only_one_column_states_that_it_is_sorted(opened: Opened) -> None:
    page = opened(array(30))
    press(page, "time")
    said = page.locator(".tasks thead th").evaluate_all(
        "heads => heads.map(head => head.getAttribute('aria-sort'))"
    )
    assert sorted(set(said)) == ["ascending", "none"]
    assert said.count("ascending") == 1


def test_names_sort_by_their_numbers(opened: Opened) -> None:
    rows = tuple(ReportRow(task=n, node=f"node{n}") for n in (10, 9, 100, 2))
    page = opened(JobReport(title="nodes", rows=rows))
    press(page, "node")
    assert column(page, "node") == ["node2", "node9", "node10", "node100"]


def test_what_was_not_measured_stays_last_either_way(opened: Opened) -> None:
    rows = tuple(ReportRow(task=n, memory=m) for n, m in enumerate((3, None, 5, 0), 1))
    page = opened(JobReport(title="gaps", rows=rows))
    press(page, "memory")
    assert column(page, "memory") == ["0 B", "3 B", "5 B", "-"]
    press(page, "memory")
    assert column(page, "memory") == ["5 B", "3 B", "0 B", "-"]


def test_words_filter_and_all_must_occur(opened: Opened) -> None:
    page = opened(many())
    page.get_by_role("searchbox").fill("node07 nan")
    wanted = [
        r for r in many().rows if r.node == "node07" and "NaN" in (r.reason or "")
    ]
    assert found(page).split(" of ")[1].split()[0] == f"{len(wanted):,}"
    assert column(page, "task") == [str(row.task) for row in wanted[:50]]


@pytest.mark.parametrize(
    ("typed", "holds"),
    [
        ("memory>4GiB", lambda row: row.memory > 4 * GIB),
        ("time<90m", lambda row: row.wall_time < 1.5 * HOUR),
        ("gpubusy>=95%", lambda row: row.gpu_utilization >= 0.95),
        ("lr=0.003", lambda row: row.parameters["lr"] == 0.003),
        ("task<=12", lambda row: row.task <= 12),
    ],
)
def test_a_column_compares(opened: Opened, typed: str, holds: Any) -> None:
    page = opened(many())
    page.get_by_role("searchbox").fill(typed)
    number = sum(holds(row) for row in many().rows)
    shown = min(50, number)
    text = f"1 to {shown} of {number:,} tasks (of 10,000)"
    assert found(page) == text


def test_a_state_filters(opened: Opened) -> None:
    page = opened(many())
    page.get_by_label("State").select_option("out of memory")
    number = sum(row.state == "OUT_OF_MEMORY" for row in many().rows)
    assert found(page) == f"1 to {min(50, number)} of {number} tasks (of 10,000)"
    assert set(column(page, "state")) == {"out of memory"}


def test_nothing_found_is_reported(opened: Opened) -> None:
    page = opened(many())
    page.get_by_role("searchbox").fill("no such thing")
    assert found(page) == "none of 10,000 tasks matches"


def test_pages_turn_to_the_end_and_no_further(opened: Opened) -> None:
    page = opened(many())
    page.get_by_role("button", name="Last page").click()
    assert column(page, "task")[-1] == "10000"
    assert page.get_by_role("button", name="Next page").is_disabled()
    page.get_by_role("button", name="Previous page").click()
    assert column(page, "task")[-1] == "9950"


def test_as_many_rows_as_are_requested(opened: Opened) -> None:
    page = opened(many())
    page.get_by_label("Rows a page").select_option("500")
    assert len(column(page, "task")) == 500


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


def test_runs_stand_in_their_order_until_a_head_is_pressed(opened: Opened) -> None:
    rows = tuple(ReportRow(record=name, memory=n) for n, name in enumerate("cab"))
    page = opened(JobReport(title="runs", rows=rows))
    assert column(page, "record") == ["c", "a", "b"]
    press(page, "record")
    assert column(page, "record") == ["a", "b", "c"]
    assert found(page) == "1 to 3 of 3 runs"


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
