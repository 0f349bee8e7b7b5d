"""A real Chromium, without a window, that opens reports from disk."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_captured import run_captured

from weigh.model.report import JobReport
from weigh.render.html.page import render_page

CHROMIUM = Path(__file__).parents[3] / "ci" / "chromium.sh"
UNAVAILABLE = 3  # the exit code of a rig that lacks root or packages


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of a Chromium; Debian's is installed where it can be."""
    found = run_captured([CHROMIUM])
    if found.returncode == UNAVAILABLE:
        pytest.skip(f"no Chromium: {found.stderr.strip()}")
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Any]:
    """Give a browser; it ends with its file, for others are in its loop's way."""
    drive = pytest.importorskip(
        "playwright.sync_api", reason="no playwright (pip install -e '.[dev]')"
    )
    with drive.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium)
        yield started
        started.close()


def received(words: str) -> list[str]:
    """Leave out what these tests themselves cause, by reading pixels."""
    return [] if words.startswith("Canvas2D: Multiple readback") else [words]


PAGES: list[tuple[JobReport, str]] = []


def rendered(report: JobReport) -> str:
    """Render a page, the same report once only."""
    for known, html in PAGES:
        if known is report:
            return html
    PAGES.append((report, render_page(report, version="0.1.0")))
    return PAGES[-1][1]


Opened = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    """Open a report from disk; it may neither complain nor ask the network."""
    complaints: list[str] = []
    asked_for: list[str] = []
    contexts: list[Any] = []

    def look(report: JobReport, width: int = 1060, **options: Any) -> Any:
        path = tmp_path / "report.html"
        path.write_text(rendered(report), encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900}, **options
        )
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: complaints.extend(received(said.text)))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"says {dialog.message}"))
        page.on("request", lambda asked: asked_for.append(asked.url))
        page.goto(path.as_uri())
        if options.get("java_script_enabled", True):
            page.evaluate("new Promise(requestAnimationFrame)")
            page.evaluate("new Promise(requestAnimationFrame)")
        return page

    yield look
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked_for if not url.startswith(tmp_path.as_uri())] == []
