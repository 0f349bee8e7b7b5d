"""What a page is made of, without a browser: sizes, figures, escapes, files."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_to_draw import array, one_run, trained
from sessions import check_session
from some_reports import reports
from transcript import check_texts, differences

from weigh.model.record import RunOutcome
from weigh.model.report import JobReport, ReportRow
from weigh.render.html.page import (
    embedded_json,
    render_page,
    task_columns,
)

KB, MB = 1000, 1000**2
_text = st.text(max_size=30)


class Elements(HTMLParser):
    """Counts the elements of a page, as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def data_of(html: str) -> Any:
    found = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def cells(column: Any) -> list[Any]:
    """Undo a column's packing, by what its documentation says."""
    if column.get("words") is not None:
        return [column["words"][place] for place in column["values"]]
    return list(column["values"])


def changed(report: JobReport, **changes: Any) -> JobReport:
    return msgspec.structs.replace(report, **changes)


ONE = one_run()
FAILED = msgspec.structs.replace(
    trained(), state="FAILED", exit_code=2, outcome=RunOutcome(reason="exit code 2")
)
PAGES = {
    "a run on a GPU": changed(ONE, energy=1.8e6),
    "a run that failed, near its limit": changed(
        ONE,
        records=(FAILED,),
        energy=7.2e6,
        measures=[
            msgspec.structs.replace(one, efficiency=0.97, others=())
            for one in ONE.measures
        ],
    ),
    "two runs without a request": changed(
        ONE,
        rows=ONE.rows * 2,
        records=(),
        measures=[
            msgspec.structs.replace(one, requested=None, efficiency=None)
            for one in ONE.measures
        ],
    ),
    "an array": array(60),
}


def test_the_pages_are_as_they_were_reviewed() -> None:
    texts = {}
    for name, report in PAGES.items():
        html = render_page(report)
        main = html[html.index("<body>") : html.index("<script")]
        lines = (line.strip() for line in main.splitlines())
        texts[name] = "".join(f"{line}\n" for line in lines if line)
    check_texts(Path(__file__).with_name("pages.texts"), differences(texts))


def test_four_long_runs_stay_within_250_kb_and_ten_thousand_tasks_within_2_mb() -> None:
    four = changed(array(200), records=(trained(),) * 4)
    assert len(render_page(four).encode()) <= 250 * KB
    assert len(render_page(array(10_000, elements=250)).encode()) <= 2 * MB


def test_uplot_comes_with_its_licence_and_only_where_it_draws() -> None:
    assert "Copyright (c) 2022 Leon Sorokin" in render_page(one_run())
    assert "Leon Sorokin" not in render_page(JobReport(title="nothing drawn"))


def test_no_figure_of_a_series_is_changed() -> None:
    record = trained()
    series = record.series
    assert series is not None
    (run,) = data_of(render_page(one_run()))["runs"]
    memory, cpu, gpu = (chart["values"] for chart in run["charts"])
    assert tuple(memory) == series.memory
    assert tuple(gpu) == series.gpu_memory[0]
    assert cpu[0] is None
    assert cpu[1:] == pytest.approx(series.cpu[1:], abs=1e-4)
    assert run["t"] == pytest.approx(series.t, abs=1e-4)


def test_no_figure_of_a_task_is_changed() -> None:
    report = array(300)
    columns = data_of(render_page(report))["tasks"]["columns"]
    packed = {column["key"]: cells(column) for column in columns}
    for name in ("task", "memory", "gpu_memory", "node"):
        assert packed[name] == [getattr(row, name) for row in report.rows]
    assert packed["output"] == [f"{row.task}.out" for row in report.rows]
    for name in ("wall_time", "cpus", "gpu_utilization"):
        wanted = [getattr(row, name) for row in report.rows]
        assert packed[name] == pytest.approx(wanted, rel=1e-6, abs=1e-6)
    assert packed["lr"] == [row.parameters["lr"] for row in report.rows]


def test_worked_examples_of_pages() -> None:
    check_session(Path(__file__).with_name("page_views.session"), {})


@given(st.lists(st.text(st.characters(categories=["L", "N", "So"])), min_size=2))
def test_any_texts_come_out_of_their_column_as_they_went_in(texts: list[str]) -> None:
    rows = [ReportRow(task=n, output=text) for n, text in enumerate(texts)]
    made = task_columns(rows)
    columns = json.loads(msgspec.json.encode(made))["columns"]
    packed = {column["key"]: cells(column) for column in columns}
    if any(texts):
        assert packed["output"] == texts


@given(st.recursive(_text, lambda inner: st.lists(inner, max_size=3)))
def test_data_in_a_script_element_cannot_leave_it(data: Any) -> None:
    text = str(embedded_json(data))
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == data


_PLAIN = Elements(render_page(array(60)) + render_page(one_run()))


@given(reports())
def test_no_text_of_a_report_becomes_an_element_or_an_attribute(
    report: JobReport,
) -> None:
    seen = Elements(render_page(report))
    assert set(seen.tags) <= set(_PLAIN.tags)
    assert seen.attributes <= _PLAIN.attributes
    assert seen.tags.count("script") == 2
