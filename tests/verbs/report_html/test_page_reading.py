"""Pages for every reader: words, contrast, small screens, and hostile names."""

import random
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from reports_to_draw import HOSTILE, array, hostile, one_run

from weigh.model.report import JobReport, ReportNote
from weigh.render.html import page as page_module
from weigh.render.words import unit_value_text
from weigh.units import format_duration, format_size

pytestmark = pytest.mark.browser

TEMPLATES = Path(page_module.__file__).parent / "templates"
Opened = Any

# Relative luminance and contrast after WCAG 2.2
CONTRAST = """() => {
  const channel = v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) =>
    0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parts(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] > 0.5) return colour;
    }
    return [255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.matches("script, style, :disabled, .unseen, .unseen *")) continue;
    const style = getComputedStyle(element);
    const ink = parts(element.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${walker.currentNode.data.trim()}: ${ratio}`);
  }
  return poor;
}"""

# An injected request, picture and script: what became of each
REACH_OUT = """async elsewhere => {
  const soon = { signal: AbortSignal.timeout(3000) };
  const asked = await fetch(elsewhere, soon).then(() => "answered", () => "refused");
  const picture = await new Promise(tell => {
    const made = new Image();
    made.onload = () => tell("answered");
    made.onerror = () => tell("refused");
    setTimeout(made.onerror, 3000);
    made.src = elsewhere;
    document.body.append(made);
  });
  const script = document.createElement("script");
  script.textContent = "window.ran = true";
  document.body.append(script);
  return [asked, picture, window.ran === true];
}"""


def written(opened: Opened, function: str, values: list[float]) -> list[str]:
    script = (TEMPLATES / "format.js").read_text(encoding="utf-8")
    source = f"(values) => {{ {script}; return values.map({function}) }}"
    answer: list[str] = opened(JobReport(title="numbers")).evaluate(source, values)
    return answer


def spread() -> list[float]:
    """Give numbers of every magnitude, and ties of the digits that are shown."""
    chance = random.Random(5)
    plain = [10 ** chance.uniform(-4, 11) for _ in range(3000)]
    ties = [n / 8 for n in range(4000)] + [n + 0.5 for n in range(0, 20_000, 7)]
    return plain + ties


def test_the_page_writes_figures_as_the_text_does(opened: Opened) -> None:
    some = spread()
    sizes = [round(value) for value in some] + [2**n for n in range(53)]
    sizes += [round(1023.5 * 1024**n) + d for n in range(1, 4) for d in (-1, 0, 1)]
    assert written(opened, "sizeWords", [*sizes]) == [*map(format_size, sizes)]
    assert written(opened, "timeWords", some) == [*map(format_duration, some)]
    values = [value for value in some if value < 1e4]
    for unit in ("share", "cpus"):
        source = f"value => write(value, '{unit}')"
        wanted = [unit_value_text(value, unit) for value in values]
        assert written(opened, source, values) == wanted
    # an axis drops zeros behind the point and no others
    ticks = [320 << 20, 640 << 20, 1 << 30, 3 << 29, 10 << 30, 160 << 30, 0]
    words = ["320 MiB", "640 MiB", "1 GiB", "1.5 GiB", "10 GiB", "160 GiB", "0"]
    assert written(opened, "axisSize", [*map(float, ticks)]) == words


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("report", [one_run(), array(60)])
def test_all_text_stands_out_from_its_ground(
    opened: Opened, scheme: str, report: JobReport
) -> None:
    assert opened(report, color_scheme=scheme).evaluate(CONTRAST) == []


@pytest.mark.parametrize("report", [one_run(), array(60), hostile()])
def test_a_narrow_screen_scrolls_only_downwards(
    opened: Opened, report: JobReport
) -> None:
    page = opened(report, width=400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_flag_is_never_broken_at_its_hyphens(opened: Opened) -> None:
    report = array(3)
    note = ReportNote(about="request", words="x", flag="--mem=1G --time-min=1 " * 9)
    page = opened(msgspec.structs.replace(report, notes=(note,)), width=360)
    heights = page.evaluate(
        "[...document.querySelectorAll('.notes code span')]"
        ".map(word => word.getClientRects()[0].height)"
    )
    assert len(heights) == 18
    assert len(set(heights)) == 1


def test_everything_that_can_be_pressed_has_a_name_and_shows_focus(
    opened: Opened,
) -> None:
    page = opened(array(60))
    unseen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => {
                const at = document.activeElement;
                if (at === document.body) return ["once around", "solid"];
                const name = at.getAttribute("aria-label") || at.innerText
                    || at.labels?.[0]?.innerText;
                const { outlineStyle, outlineWidth } = getComputedStyle(at);
                return [name, outlineWidth === "0px" ? "none" : outlineStyle];
            }"""
        )
        if not name or outline == "none":
            unseen.append((name, outline))
    assert unseen == []


def test_without_its_script_a_page_still_states_most(opened: Opened) -> None:
    page = opened(array(60), java_script_enabled=False)
    assert page.locator(".notes li").count() == 2
    said = page.locator("#task-table").inner_text()
    assert said == "The table of tasks is drawn by a script in this page."


def test_headings_and_identifiers_are_in_order(opened: Opened) -> None:
    page = opened(one_run())
    levels = page.locator("h1, h2, h3").evaluate_all("all => all.map(h => h.tagName)")
    assert levels[0] == "H1"
    assert levels.count("H1") == 1
    ids = page.locator("[id]").evaluate_all("all => all.map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_hostile_names_are_text_and_nothing_else(opened: Opened) -> None:
    page = opened(hostile())
    assert page.locator("img").count() == 0
    shown = page.locator("h1").inner_text()
    assert shown == HOSTILE.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
    text = page.evaluate("document.documentElement.textContent")
    assert "\u202e" not in text
    assert "49" not in page.title()
    cells = page.locator(".tasks tbody tr").first.inner_text()
    assert "</script><img src=x onerror=alert(1)>{{7*7}}" in cells
    page.get_by_role("searchbox").fill("<img")
    assert page.locator(".tasks tbody tr").count() == 2


def test_a_page_may_not_use_the_network(opened: Opened, open_pages: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        elsewhere = f"http://127.0.0.1:{server.getsockname()[1]}/"
        answer = opened(one_run()).evaluate(REACH_OUT, elsewhere)
        open_pages.noted.clear()  # that each was tried, and refused
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert answer == ["refused", "refused", False]
