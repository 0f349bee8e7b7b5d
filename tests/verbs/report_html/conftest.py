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


class OpenPages:
    """A page for each width and colour scheme, and what they noted."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._pages: dict[tuple[Any, ...], Any] = {}
        self._reports: list[JobReport] = []
        self.noted: list[str] = []

    def show(self, report: JobReport, width: int = 1060, **options: Any) -> Any:
        """Open a report afresh; a page and a file are made once."""
        key = (width, *sorted(options.items()))
        if key not in self._pages:
            self._pages[key] = self._new_page(options)
        page = self._pages[key]
        page.mouse.move(2, 2)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(self._file_of(report).as_uri())
        if options.get("java_script_enabled", True):
            page.evaluate("new Promise(requestAnimationFrame)")
            page.evaluate("new Promise(requestAnimationFrame)")
        return page

    def _new_page(self, options: dict[str, Any]) -> Any:
        context = self._browser.new_context(**options)
        context.set_default_timeout(10_000)
        page = context.new_page()
        page.on("console", lambda said: self._note(said.text))
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("dialog", lambda dialog: self._note(f"says {dialog.message}"))
        page.on("request", lambda asked: self._note(asked.url))
        return page

    def _note(self, words: str) -> None:
        # reading pixels is what these tests do, and a page may open its own file
        usual = ("Canvas2D: Multiple readback", self._folder.as_uri())
        if not words.startswith(usual):
            self.noted.append(words)

    def _file_of(self, report: JobReport) -> Path:
        known = [one is report for one in self._reports]
        if True not in known:
            self._reports.append(report)
            html = render_page(report, version="0.1.0")
            (self._folder / f"{len(known)}.html").write_text(html, encoding="utf-8")
        return self._folder / f"{[*known, True].index(True)}.html"


@pytest.fixture(scope="module")
def open_pages(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> OpenPages:
    """Give the pages of a file of tests."""
    return OpenPages(browser, tmp_path_factory.mktemp("pages"))


Opened = Callable[..., Any]


@pytest.fixture
def opened(open_pages: OpenPages) -> Iterator[Opened]:
    """Open a report from disk; it may neither complain nor ask the network."""
    open_pages.noted.clear()
    yield open_pages.show
    assert open_pages.noted == []
