"""Curves in a real browser: zoom, hover, keyboard, dark mode, paper."""

import re
from typing import Any

import msgspec
import pytest
from reports_to_draw import SECONDS, one_run, trained

from weigh.model.report import JobReport
from weigh.units import GIB, format_duration, format_size

pytestmark = pytest.mark.browser

ASKED = "180, 83, 26"  # the light theme's colour of the request
Opened = Any


def memory_chart(page: Any) -> Any:
    return page.locator(".chart").first


def words_at(page: Any, share: float) -> str:
    """Point at a share of the memory chart's width, and read what it says."""
    memory_chart(page).scroll_into_view_if_needed()
    box = memory_chart(page).locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + share * (box["width"] - 1), box["y"] + 40)
    said = memory_chart(page).locator(".readout").inner_text()
    return str(said)


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


def without(report: JobReport, **gone: object) -> JobReport:
    """Give the report with parts of its one record replaced."""
    (record,) = report.records
    changed = msgspec.structs.replace(record, **gone)
    return msgspec.structs.replace(report, records=(changed,), measures=())


def test_a_curve_is_drawn_for_memory_cpus_and_each_gpu(opened: Opened) -> None:
    page = opened(one_run())
    names = page.locator(".chart figcaption > span:first-child").all_inner_texts()
    assert names == ["Memory", "CPUs busy", "GPU 0 memory, Tesla V100-SXM2-32GB"]


def test_hovering_states_the_value_the_time_and_the_phase(opened: Opened) -> None:
    page = opened(one_run())
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


def test_all_charts_of_a_run_speak_of_the_same_moment(opened: Opened) -> None:
    page = opened(one_run())
    words_at(page, 0.3)
    said = page.locator(".readout").all_inner_texts()
    assert len({seconds_in(words) for words in said}) == 1


def test_leaving_a_chart_brings_its_summary_back(opened: Opened) -> None:
    page = opened(one_run())
    before = memory_chart(page).locator(".readout").inner_text()
    assert words_at(page, 0.5) != before
    page.mouse.move(2, 2)
    assert memory_chart(page).locator(".readout").inner_text() == before


def drag(page: Any, start: float, end: float) -> None:
    memory_chart(page).scroll_into_view_if_needed()
    box = memory_chart(page).locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + start * box["width"], box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], box["y"] + 50, steps=4)
    page.mouse.up()


def test_dragging_zooms_in(opened: Opened) -> None:
    page = opened(one_run())
    drag(page, 0.4, 0.5)
    assert seconds_in(words_at(page, 0.0)) == pytest.approx(0.4 * SECONDS, abs=6)
    assert seconds_in(words_at(page, 1.0)) == pytest.approx(0.5 * SECONDS, abs=6)


def test_a_zoom_of_one_chart_is_a_zoom_of_all(opened: Opened) -> None:
    page = opened(one_run())
    drag(page, 0.4, 0.5)
    page.locator(".chart .u-over").nth(2).scroll_into_view_if_needed()
    box = page.locator(".chart .u-over").nth(2).bounding_box()
    page.mouse.move(box["x"] + 1, box["y"] + 40)
    said = page.locator(".readout").nth(2).inner_text()
    assert seconds_in(said) == pytest.approx(0.4 * SECONDS, abs=6)


def test_a_double_click_shows_the_whole_run_again(opened: Opened) -> None:
    page = opened(one_run())
    drag(page, 0.4, 0.5)
    memory_chart(page).locator(".u-over").dblclick()
    assert seconds_in(words_at(page, 0.0)) == pytest.approx(0, abs=3)
    assert seconds_in(words_at(page, 1.0)) == pytest.approx(SECONDS, abs=3)


def test_what_was_requested_is_drawn_as_a_line(opened: Opened) -> None:
    assert painted(opened(one_run()), ASKED) > 300
    assert painted(opened(without(one_run(), requested=None, usage=None)), ASKED) == 0


def test_far_more_than_was_used_is_reported_and_does_not_flatten(
    opened: Opened,
) -> None:
    (record,) = one_run().records
    assert record.requested is not None
    request = msgspec.structs.replace(record.requested, memory=1 << 42)
    page = opened(without(one_run(), requested=request))
    assert "requested 4.00 TiB" in memory_chart(page).inner_text()
    assert painted(page, ASKED) > 20  # the words
    assert painted(page, "31, 111, 139") > 300  # the curve


def test_phases_are_shaded_and_named_above(opened: Opened) -> None:
    report = one_run()
    page = opened(without(report, phases=()))
    plain = page.locator(".chart canvas").first.evaluate("c => c.height")
    with_phases = opened(report).locator(".chart canvas").first
    assert with_phases.evaluate("c => c.height") > plain + 30
    corner = "c => Array.from(c.getContext('2d').getImageData(300, 60, 1, 1).data)"
    assert with_phases.evaluate(corner)[3] > 0
    assert page.locator(".chart canvas").first.evaluate(corner)[3] == 0


def test_the_system_s_dark_mode_is_followed(opened: Opened) -> None:
    page = opened(one_run(), color_scheme="dark")
    assert ground(page) < 0.1
    assert painted(page, "111, 188, 214") > 300


def ground(page: Any) -> float:
    """Give how bright the page's ground is, from 0 to 1."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3]) / 765


def test_paper_is_light_and_holds_the_curves_whole(opened: Opened) -> None:
    page = opened(one_run(), color_scheme="dark")
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


def test_what_only_a_screen_needs_is_not_on_paper(opened: Opened) -> None:
    page = opened(one_run())
    page.emulate_media(media="print")
    assert not page.get_by_role("button").filter(visible=True).count()


def test_a_run_that_prints_nothing_of_itself_makes_a_page(opened: Opened) -> None:
    (record,) = one_run().records
    bare = msgspec.structs.replace(
        record, usage=None, series=None, phases=(), batches=None, host=None, events=()
    )
    page = opened(JobReport(title="bare", records=(bare,)))
    assert page.locator("h1").inner_text() == "bare"
    assert page.locator("canvas").count() == 0


def test_a_peak_between_two_samples_is_the_peak_of_its_curve(opened: Opened) -> None:
    record = trained()
    usage = record.usage
    assert usage is not None
    assert usage.peak_memory is not None
    peak = msgspec.structs.replace(usage.peak_memory, value=9 * GIB)
    higher = msgspec.structs.replace(usage, peak_memory=peak)
    shown = msgspec.structs.replace(record, usage=higher)
    page = opened(JobReport(title="missed", records=(shown,)))
    words = page.locator(".charts").inner_text()
    assert "peak 9.00 GiB between two samples" in words
