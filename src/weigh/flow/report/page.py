"""``weigh report --html``: a report as a page."""

import os
import sys
from collections.abc import Sequence

import msgspec

from weigh._version import __version__
from weigh.errors import StoreError, UsageError
from weigh.estimate.estimate import SizeEstimate, estimate
from weigh.estimate.readings import varying_parameters
from weigh.flow.here import Here
from weigh.flow.report.report import composed, gather_report_material, open_store_of
from weigh.model.record import Record
from weigh.model.report import JobReport
from weigh.render.html.page import render_page
from weigh.store.location import open_privately

STDOUT = "-"
# parameters that are numbers, and no size
_NO_SIZE = frozenset({"seed", "random_seed", "fold", "trial", "repeat"})


class ReportPage(msgspec.Struct, frozen=True):
    """A report, and the page that shows it."""

    report: JobReport
    html: str


def page_of(here: Here, name: str, *, logs: Sequence[str] = ()) -> ReportPage:
    """Report on *name* as one HTML page.

    If the runs are those of a scan over one size, it has the curves of the scan.
    *logs* are files with the scheduler's GPU table.

    Raises:
        UsageError: nothing was measured or submitted yet, or a name fits several.
        RecordNotFoundError: nothing answers to that name; offers the nearest.
        StoreError: the store cannot be read.
    """
    store = open_store_of(here, name)
    material = gather_report_material(here, name, store, logs=logs)
    report = composed(material, store)
    records = [run.record for run in material.runs if run.record is not None]
    curves = () if report.job is not None else curves_of(records)
    return ReportPage(report, render_page(report, curves, version=__version__))


def curves_of(records: Sequence[Record]) -> tuple[SizeEstimate, ...]:
    """Fit curves if exactly one parameter varies and is a size, a whole number."""
    names = varying_parameters(records)
    sizes = [record.parameters.get(names[0]) for record in records] if names else []
    if len(names) != 1 or names[0].lower() in _NO_SIZE:
        return ()
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        return ()
    try:
        return (estimate(records, names[0]),)
    except UsageError:
        return ()  # too few runs for a curve: the report has none


def write_page(html: str, path: str) -> None:
    """Write a page to *path*; ``-`` is standard output.

    Raises:
        StoreError: it cannot be written.
    """
    try:
        if path == STDOUT:
            sys.stdout.write(html)
            return
        # as private as the records that it shows
        with open(
            path, "w", encoding="utf-8", newline="\n", opener=open_privately
        ) as file:
            file.write(html)
    except OSError as error:
        folder = os.path.dirname(path)
        hint = f" (create it first: mkdir -p {folder})" if folder else ""
        missing = hint if isinstance(error, FileNotFoundError) else ""
        raise StoreError(
            f"cannot write {path}: {error.strerror or error}{missing}"
        ) from error
