"""Curves without a page: in a terminal's columns, and as pictures."""

import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports_to_draw import SECONDS, array, hostile, one_run, trained

from weigh.errors import UsageError
from weigh.model.record import Series
from weigh.model.report import Report
from weigh.render.columns import columns_of
from weigh.render.report_plot import has_curves, plot_lines, save_figure

# one process imports it, for a second
MATPLOTLIB = pytest.mark.xdist_group("matplotlib")


def drawn(values: list[int], width: int = 80) -> list[str]:
    """Draw a run whose memory took these values, a second each."""
    series = Series(t=tuple(map(float, range(len(values)))), memory=tuple(values))
    record = msgspec.structs.replace(
        trained(), series=series, phases=(), requested=None, usage=None
    )
    return list(plot_lines(Report(title="one", records=(record,)), width=width))


@given(
    st.lists(st.integers(0, 1 << 60), min_size=2, max_size=300), st.integers(40, 200)
)
def test_a_drawing_keeps_within_its_width(values: list[int], width: int) -> None:
    assert max(map(columns_of, drawn(values, width))) <= width


@pytest.mark.parametrize("report", [one_run(), hostile()], ids=["plain", "hostile"])
def test_every_screen_keeps_within_80_columns(report: Report) -> None:
    lines = list(plot_lines(report))
    assert max(map(columns_of, lines)) <= 80
    assert all(line.isprintable() for line in lines)


def test_plain_letters_where_a_terminal_has_no_blocks() -> None:
    assert all(line.isascii() for line in plot_lines(one_run(), is_ascii=True))


def test_the_peak_alone_reaches_the_top() -> None:
    lines = drawn([1000] * 30 + [8000] + [1000] * 37)
    top = lines[2]
    assert top.lstrip().startswith("7.81 KiB |")
    assert top.count("\N{FULL BLOCK}") == 1
    assert top.index("\N{FULL BLOCK}") == 12 + 30


def test_a_steady_run_is_a_level_floor() -> None:
    rows = drawn([4096] * 100)[2:8]
    assert {row[12:] for row in rows} == {"\N{FULL BLOCK}" * 68}


def test_what_was_requested_is_reported_and_drawn() -> None:
    lines = list(plot_lines(one_run()))
    assert lines[1] == "  Memory, peak 4.40 GiB, requested 8.00 GiB"
    assert lines[2] == "  8.00 GiB |" + "-" * 68


def test_phases_stand_under_their_time() -> None:
    lane = list(plot_lines(one_run()))[-1]
    train = trained().phases[1]
    assert lane.index("|train") == 12 + round(train.start / SECONDS * 68)


def test_an_array_has_no_curves_of_its_own() -> None:
    assert not has_curves(array(30))
    assert has_curves(one_run())


@MATPLOTLIB
@pytest.mark.parametrize("kind", ["png", "pdf", "svg"])
def test_a_picture_is_of_the_kind_that_its_name_states(
    tmp_path: Path, kind: str
) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'weigh[plot]'")
    path = tmp_path / f"run.{kind}"
    save_figure(one_run(), str(path))
    if kind == "svg":
        assert ET.parse(path).getroot().tag.endswith("svg")
    else:
        magic = {"png": b"\x89PNG\r\n", "pdf": b"%PDF-"}[kind]
        assert path.read_bytes().startswith(magic)


@MATPLOTLIB
def test_the_same_report_gives_the_same_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / "one.png", tmp_path / "two.png"]
    for path in pictures:
        save_figure(one_run(), str(path))
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@MATPLOTLIB
def test_hostile_names_and_arrays_make_pictures_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, report in (("hostile", hostile()), ("array", array(30))):
        path = tmp_path / f"{name}.svg"
        save_figure(report, str(path))
        assert ET.parse(path).getroot().tag.endswith("svg")


def test_another_name_is_refused_with_those_that_work(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"\*\.png, \*\.pdf or \*\.svg"):
        save_figure(one_run(), str(tmp_path / "run.gif"))


@MATPLOTLIB
def test_nothing_to_draw_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match="nothing to draw"):
        save_figure(Report(title="bare"), str(tmp_path / "run.png"))


def test_without_matplotlib_the_way_to_it_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'weigh\[plot\]'"):
        save_figure(one_run(), str(tmp_path / "run.png"))
