from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weigh.measure.region.timing import CallTiming
from weigh.model.record import ProgramEvent, ProgramRegions, Record
from weigh.model.report import JobReport

RECORD = Record(id="a" * 12, command=("<b>",), started="2026-11-21T10:00:00Z")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("IPython", reason="IPython is not installed")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.core.interactiveshell import InteractiveShell  # noqa: PLC0415
    from traitlets.config import Config  # noqa: PLC0415

    config = Config()
    config.HistoryManager.enabled = False
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


def test_a_notebook_shows_records_reports_regions_and_timings(shell: Any) -> None:
    shell.run_cell("import weigh; weigh.__getattr__('run')")
    for shown, words in (
        (RECORD, "&lt;b&gt;"),
        (JobReport(title="a < b"), "a &lt; b"),
        (ProgramRegions(events=(ProgramEvent("epoch", 1.0, 3),)), "this notebook"),
        (CallTiming(1.0, 2.0, 3.0, 10, 3, (1.0, 2.0, 3.0)), "quickest of 3 x 10 calls"),
    ):
        data, _ = shell.display_formatter.format(shown)
        assert words in data["text/html"]
