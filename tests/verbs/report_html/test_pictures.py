"""The pictures of the documentation, made by a browser from reports.

``WEIGH_IMAGES=docs/images pytest tests/verbs/report_html/test_pictures.py`` writes
them.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from reports_to_draw import array, one_run

from weigh.model.report import JobReport

pytestmark = pytest.mark.browser

MOST = 150_000
Opened = Any

PICTURES: dict[str, tuple[JobReport, dict[str, Any]]] = {
    "report-run": (one_run(), {"width": 900, "color_scheme": "light"}),
    "report-array": (array(100), {"width": 900, "color_scheme": "dark"}),
    "report-narrow": (one_run(), {"width": 400, "color_scheme": "dark"}),
}
HEIGHTS = {"report-run": 1460, "report-array": 1100, "report-narrow": 1300}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_for_the_documentation_stays_small(
    opened: Opened, tmp_path: Path, name: str
) -> None:
    report, options = PICTURES[name]
    page = opened(report, **options)
    height = HEIGHTS.get(name)
    if height is not None:
        page.set_viewport_size({"width": options["width"], "height": height})
    if page.locator(".chart").count():
        box = page.locator(".chart .u-over").first.bounding_box()
        page.mouse.move(box["x"] + 0.37 * box["width"], box["y"] + 40)
    folder = Path(os.environ.get("WEIGH_IMAGES", tmp_path))
    path = folder / f"{name}.png"
    page.screenshot(path=path, full_page=height is None)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert path.stat().st_size < MOST
