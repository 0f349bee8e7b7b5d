"""What a page of a report costs: ``python benchmarks/report_html.py``.

Reports are those of the tests. The browser is the Chromium that ci/chromium.sh finds;
without it or playwright the second table is left out. ``--quick`` asks for 1,000 tasks.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "report_html"))

from reports_to_draw import array, one_run, scanned  # noqa: E402

from weigh.render.html.curves import Scan  # noqa: E402
from weigh.render.html.page import render_page  # noqa: E402

_REPEATS = 5
_READY = "() => document.querySelector('.tasks tbody tr, .chart canvas') !== null"
_TIMED = """([place, text]) => {
  const timed = act => {
    const began = performance.now();
    act();
    document.body.offsetHeight;
    return performance.now() - began;
  };
  const search = document.querySelector("#task-search");
  const heads = document.querySelectorAll(".tasks th button");
  const sort = timed(() => heads[place].click());
  const type = timed(() => {
    search.value = text;
    search.dispatchEvent(new Event("input"));
  });
  return [sort, type];
}"""


def main() -> None:
    """Render, measure, and print Markdown tables."""
    many = 1_000 if "--quick" in sys.argv else 10_000
    started = time.perf_counter()
    render_page(one_run())
    first = time.perf_counter() - started
    pages = {
        "one run of 500 samples, GPU, phases": lambda: render_page(
            one_run(), (Scan(estimate=scanned()),)
        ),
        f"{many:,} tasks": lambda: render_page(array(many, elements=250)),
    }
    print(f"Python {platform.python_version()}, median of {_REPEATS}\n")
    print(f"The first page of a process: {first:.2f} s, reading the templates.\n")
    print("| page | time | size |\n|---|---|---|")
    written = {name: _row(name, render) for name, render in pages.items()}
    try:
        _in_a_browser(written)
    except (ImportError, subprocess.CalledProcessError) as error:
        print(f"\nno browser: {error}")


def _row(name: str, render: Callable[[], str]) -> str:
    times, html = [], ""
    for _ in range(_REPEATS):
        began = time.perf_counter()
        html = render()
        times.append(time.perf_counter() - began)
    size = len(html.encode())
    print(f"| {name} | {sorted(times)[_REPEATS // 2]:.3f} s | {size / 1000:,.0f} kB |")
    return html


def _in_a_browser(written: dict[str, str]) -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    path = subprocess.run(
        [ROOT / "ci" / "chromium.sh"], check=True, capture_output=True, text=True
    ).stdout.strip()
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as folder:
        browser = driver.chromium.launch(executable_path=path)
        print(f"\n| Chromium {browser.version} | open | sort | filter |")
        print("|---|---|---|---|")
        for name, html in written.items():
            file = os.path.join(folder, "page.html")
            Path(file).write_text(html, encoding="utf-8")
            print(_seen(browser.new_page(), Path(file).as_uri(), name))
        browser.close()


def _seen(page: Any, url: str, name: str) -> str:  # noqa: ANN401 - playwright's
    began = time.perf_counter()
    page.goto(url)
    page.wait_for_function(_READY)
    opened = time.perf_counter() - began
    if not page.locator("#task-search").count():
        return f"| {name} | {opened:.2f} s | | |"
    places = page.locator(".tasks thead th").all_inner_texts()
    sort, type_ = page.evaluate(_TIMED, [places.index("node"), "node07 memory>4GiB"])
    return f"| {name} | {opened:.2f} s | {sort:.0f} ms | {type_:.0f} ms |"


if __name__ == "__main__":
    main()
