"""Notebooks show weigh's results as HTML: views for IPython's formatter."""

import sys
from html import escape
from typing import TYPE_CHECKING, Any

from weigh.measure.region.timing import CallTiming
from weigh.model.record import ProgramRegions, Record
from weigh.model.report import JobReport
from weigh.render.record_lines import render_record
from weigh.render.region_lines import render_regions
from weigh.render.report_lines import report_screen_text

if TYPE_CHECKING:
    from collections.abc import Callable


def show_records() -> None:
    """Register the HTML views with the running IPython shell, if any."""
    # only in a notebook, so IPython was imported before
    shell: Any = sys.modules["IPython"].get_ipython()
    if shell is None:
        return
    views: dict[type, Callable[[Any], str]] = {
        Record: lambda record: _as_html(render_record(record)),
        JobReport: lambda report: _as_html(report_screen_text(report)),
        ProgramRegions: lambda regions: _as_html(
            render_regions(regions, "this notebook")
        ),
        CallTiming: lambda timing: _as_html(str(timing)),
    }
    for kind, view in views.items():
        shell.display_formatter.formatters["text/html"].for_type(kind, view)


def _as_html(text: str) -> str:
    """Return text of a terminal as HTML, in the notebook's own colours."""
    return f'<pre style="line-height:1.3">{escape(text)}</pre>'
