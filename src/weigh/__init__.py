"""Measure a job before you submit it to the cluster.

Importing this package imports only its version: other names are imported on first use.
"""

import sys

from weigh._version import __version__ as __version__

TYPE_CHECKING = False  # not from typing: PYTHONPATH may hold another one
if TYPE_CHECKING:
    from weigh.flow.api import Run as Run
    from weigh.flow.api import run as run
    from weigh.flow.records.compare import compare as compare
    from weigh.flow.report.report import report as report
    from weigh.flow.run.regions import batches as batches
    from weigh.flow.run.regions import event as event
    from weigh.flow.run.regions import measured as measured
    from weigh.flow.run.regions import phase as phase
    from weigh.flow.run.regions import timeit as timeit
    from weigh.flow.scan.from_records import fit as fit
    from weigh.flow.watch.gpus import gpus as gpus
    from weigh.model.record import Record as Record

__all__ = [
    "Record",
    "Run",
    "__version__",
    "batches",
    "compare",
    "event",
    "fit",
    "gpus",
    "measured",
    "phase",
    "report",
    "run",
    "timeit",
]

_HOMES = {
    "run": "weigh.flow.api",
    "Run": "weigh.flow.api",
    "Record": "weigh.model.record",
    "batches": "weigh.flow.run.regions",
    "compare": "weigh.flow.records.compare",
    "event": "weigh.flow.run.regions",
    "fit": "weigh.flow.scan.from_records",
    "gpus": "weigh.flow.watch.gpus",
    "measured": "weigh.flow.run.regions",
    "phase": "weigh.flow.run.regions",
    "report": "weigh.flow.report.report",
    "timeit": "weigh.flow.run.regions",
}


def __getattr__(name: str) -> object:
    """Import the module of a public name when the name is first used."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'weigh' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - start-up time

    value = globals()[name] = getattr(import_module(home), name)
    if "IPython" in sys.modules:
        import_module("weigh.hooks.ipython").show_records()
    return value
