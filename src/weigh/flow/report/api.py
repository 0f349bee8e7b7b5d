"""``weigh.report``: of this program so far, or of a run or job by its name."""

import os
from typing import overload

from weigh.model.record import Regions
from weigh.model.report import Report


@overload
def report(name: None = None) -> Regions: ...
@overload
def report(name: str) -> Report: ...
def report(name: str | None = None) -> Regions | Report:
    """Report on the run, label, job or plan called *name*: asked for beside used.

    Without a name print on stderr what this program measured of itself so far, and
    give it back.

    Raises:
        UsageError: nothing was measured or submitted yet, or a name fits several.
        RecordNotFoundError: nothing answers to that name; offers the nearest.
        StoreError: the store cannot be read.
    """
    if name is None:
        from weigh.flow.run.regions import report as of_regions  # noqa: PLC0415 - start-up

        return of_regions()
    from weigh.flow.report.report import build  # noqa: PLC0415 - start-up

    return build(name, cwd=os.getcwd(), env=os.environ)
