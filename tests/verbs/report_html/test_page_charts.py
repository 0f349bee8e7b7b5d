"""Curves in a real browser: zoom, hover, dark mode, paper, and pictures of pages."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from reports_to_draw import SECONDS, array, one_run, trained

from weigh.model.report import JobReport
from weigh.units import GIB, format_duration, format_size

pytestmark = pytest.mark.browser

ASKED = "180, 83, 26"  # the light theme's colour of the request
Opened = Any


def chart_at(page: Any, place: int) -> Any:
    return page.locator(".chart").nth(place)


def words_at(page: Any, share: float, chart: int = 0) -> str:
    """Point at a share of a chart's width, that of memory, and read what it says."""
    chart_at(page, chart).scroll_into_view_if_needed()
    box = chart_at(page, chart).locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + share * (box["width"] - 1), box["y"] + 40)
    return str(chart_at(page, chart).locator(".readout").inner_text())


def seconds_in(said: str) -> float:
    found = re.search(r"at (?:(\d+) m )?([\d.]+) s", said)
    assert found is not None, said
    return 60 * float(found[1] or 0) + float(found[2])


def painted(page: Any, colour: str, chart: int = 0) -> int:
    """Count the pixels of a chart in exactly this colour."""
    return int(
        page.evaluate(
            """([chart, wanted]) => {
                const canvas = document.querySelectorAll(".chart canvas")[chart];
                const { data } = canvas.getContext("2d")
                    .getImageData(0, 0, canvas.width, canvas.height);
                let found = 0;
                for (let i = 0; i < data.length; i += 4)
                    found += `${data[i]}, ${data[i + 1]}, ${data[i + 2]}` === wanted
                        && data[i + 3] > 200;
                return found;
            }""",
            [chart, colour],
        )
    )


def without(**gone: object) -> JobReport:
    """Give the report of a run with parts of its record replaced."""
    return replace(one_run(), records=(replace(trained(), **gone),), measures=())


def test_each_chart_states_what_is_at_the_pointer_and_its_summary_without_it(
    opened: Opened,
) -> None:
    page = opened(one_run())
    names = page.locator(".chart figcaption > span:first-child").all_inner_texts()
    assert names == ["Memory", "CPUs busy", "GPU 0 memory, Tesla V100-SXM2-32GB"]
    summary = page.locator(".readout").first.inner_text()
    said = words_at(page, 0.5)
    series = trained().series
    assert series is not None
    seen = {
        f"{format_size(held)} at {format_duration(t)}"
        for t, held in zip(series.t, series.memory, strict=True)
        if abs(t - SECONDS / 2) < 3
    }
    figures, phase, event = said.split(" \N{MIDDLE DOT} ")
    assert figures in seen
    assert (phase, event) == ("epoch", "epoch 2")
    all_said = page.locator(".readout").all_inner_texts()
    assert len({seconds_in(words) for words in all_said}) == 1
    page.mouse.move(2, 2)
    assert page.locator(".readout").first.inner_text() == summary


def seconds_shown(page: Any, chart: int = 0) -> tuple[float, float]:
    """Return when a chart begins and ends."""
    begin, end = (seconds_in(words_at(page, share, chart)) for share in (0.0, 1.0))
    return begin, end


def test_dragging_zooms_all_charts_and_a_double_click_shows_all_again(
    opened: Opened,
) -> None:
    page = opened(one_run())
    chart_at(page, 0).scroll_into_view_if_needed()
    box = chart_at(page, 0).locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()
    part = pytest.approx((0.4 * SECONDS, 0.5 * SECONDS), abs=6)
    assert seconds_shown(page) == part
    assert seconds_shown(page, 2) == part
    chart_at(page, 0).locator(".u-over").dblclick()
    assert seconds_shown(page) == pytest.approx((0, SECONDS), abs=3)


def test_what_was_requested_is_a_line_or_words_where_it_would_flatten_the_curve(
    opened: Opened,
) -> None:
    assert painted(opened(one_run()), ASKED) > 300
    assert painted(opened(without(requested=None, usage=None)), ASKED) == 0
    request = trained().requested
    assert request is not None
    page = opened(without(requested=replace(request, memory=1 << 42)))
    assert "requested 4.00 TiB" in chart_at(page, 0).inner_text()
    assert painted(page, ASKED) > 20  # the words
    assert painted(page, "31, 111, 139") > 300  # the curve


def test_phases_are_shaded_and_named_above(opened: Opened) -> None:
    look = "c => [c.height, c.getContext('2d').getImageData(300, 60, 1, 1).data[3]]"
    reports = (without(phases=()), one_run())
    canvases = (opened(one).locator(".chart canvas").first for one in reports)
    (plain, nothing), (height, shade) = (one.evaluate(look) for one in canvases)
    assert height > plain + 30
    assert (nothing, shade > 0) == (0, True)


def ground(page: Any) -> float:
    """Give how bright the page's ground is, from 0 to 1."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765


def test_the_screen_may_be_dark_and_paper_is_light_and_holds_the_curves_whole(
    opened: Opened,
) -> None:
    page = opened(one_run(), color_scheme="dark")
    assert ground(page) < 0.1
    assert painted(page, "111, 188, 214") > 300
    page.evaluate(
        """addEventListener("beforeprint", async () => {
            await null;
            window.seen = [
                document.documentElement.dataset.theme,
                document.querySelector(".chart .uplot").offsetWidth,
            ];
        })"""
    )
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF-")
    theme, width = page.evaluate("seen")
    assert theme == "light"
    assert width <= (210 - 2 * 14) / 25.4 * 96  # A4 without its margins, in CSS pixels
    assert ground(page) < 0.1
    page.emulate_media(media="print")
    assert not page.get_by_role("button").filter(visible=True).count()
    page.emulate_media(media="screen")


def test_a_run_that_prints_nothing_of_itself_makes_a_page(opened: Opened) -> None:
    nothing = dict.fromkeys(("usage", "series", "batches", "host"))
    page = opened(without(**nothing, phases=(), events=()))
    assert page.locator("h1").inner_text() == "train 7f3a91c2d4e5"
    assert page.locator("canvas").count() == 0


def test_a_peak_between_two_samples_is_the_peak_of_its_curve(opened: Opened) -> None:
    usage = trained().usage
    assert usage is not None
    assert usage.peak_memory is not None
    peak = replace(usage.peak_memory, value=9 * GIB)
    page = opened(without(usage=replace(usage, peak_memory=peak)))
    words = page.locator(".charts").inner_text()
    assert "peak 9.00 GiB between two samples" in words


PICTURES: dict[str, tuple[JobReport, int, dict[str, Any]]] = {
    "report-run": (one_run(), 1460, {"width": 900, "color_scheme": "light"}),
    "report-array": (array(100), 1100, {"width": 900, "color_scheme": "dark"}),
    "report-narrow": (one_run(), 1300, {"width": 400, "color_scheme": "dark"}),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_for_the_documentation_stays_small(
    opened: Opened, tmp_path: Path, name: str
) -> None:
    """Into docs/images: ``WEIGH_IMAGES=docs/images pytest -k documentation`` FILE."""
    report, height, options = PICTURES[name]
    page = opened(report, **options)
    page.set_viewport_size({"width": options["width"], "height": height})
    if page.locator(".chart").count():
        words_at(page, 0.37)
    path = Path(os.environ.get("WEIGH_IMAGES", tmp_path)) / f"{name}.png"
    page.screenshot(path=path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < 150_000
