"""Notebooks show a record as HTML: the view is registered with IPython's formatter."""

import sys
from typing import Any

from weigh.model.record import Record
from weigh.render.record_html import render_html


def show_records() -> None:
    """Register the HTML view of records with the running IPython shell, if any."""
    shell: Any = sys.modules["IPython"].get_ipython()
    if shell is not None:
        shell.display_formatter.formatters["text/html"].for_type(Record, render_html)
