"""Which nodes a report calls slow: by medians, of enough tasks, and clearly."""

import pytest

from weigh.model.report import ReportRow
from weigh.review.notes import node_notes


def rows_on(node: str, times: list[float]) -> list[ReportRow]:
    return [ReportRow(state="COMPLETED", node=node, wall_time=one) for one in times]


@pytest.mark.parametrize(
    ("times", "others", "factor"),
    [
        ([50.0] * 3, [40.0] * 3, "1.2"),  # 1.25 times, 10 s more: both just enough
        ([49.0] * 3, [40.0] * 3, None),
        ([50.0] * 3, [41.0] * 3, None),
        ([15.0] * 3, [10.0] * 3, None),  # half as long again, but 5 s
        ([50.0] * 2, [20.0] * 3, None),  # too few tasks to compare
        ([50.0] * 3, [20.0] * 2, None),
        ([50.0, 50.0, 50.0, 20.0], [20.0] * 3, "2.5"),  # three of four are slower
        ([60.0, 60.0, 60.0, 19.0, 18.0], [20.0] * 3, None),  # three of five
        ([60.0] * 3, [10.0, 20.0, 90.0], "3.0"),  # their median, not their mean
    ],
)
def test_a_node_is_slow_if_most_of_its_tasks_clearly_are(
    times: list[float], others: list[float], factor: str | None
) -> None:
    notes = list(node_notes(rows_on("a", times) + rows_on("b", others), "--not={}"))
    expected = [] if factor is None else [f"its {len(times)} tasks took {factor}x"]
    assert [note.words.split(" as ")[0] for note in notes] == expected
    assert [note.flag for note in notes] == ["--not=a"] * len(notes)


def test_what_failed_says_nothing_of_a_node() -> None:
    failed = [
        ReportRow(state="FAILED", node="a", wall_time=90.0, exit_code=1)
        for _ in range(4)
    ]
    assert not list(node_notes(failed + rows_on("b", [20.0] * 4), "--not={}"))
