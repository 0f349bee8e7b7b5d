import json
from pathlib import Path

import msgspec
import pytest
from called_weigh import CalledWeigh
from runs_to_compare import guide_run, run, usage
from some_runs import keep_runs
from transcript import check_transcript

from weigh.errors import UsageError
from weigh.flow.records.compare import compare
from weigh.render.comparison_lines import RunComparison


@pytest.fixture(autouse=True)
def records(tmp_path: Path, weigh: CalledWeigh) -> None:
    """Keep the guide's two runs and a label of three."""
    del weigh
    for n, time in enumerate((5.0, 5.2, 5.1)):
        keep_runs(tmp_path, run("same", usage(time), id=f"{n}aaaaaaaaaaa"))
    for size in (50, 300):
        record = msgspec.structs.replace(guide_run(size), id=f"{size:03d}bbbbbbbbb")
        keep_runs(tmp_path, record)


def test_comparisons_print_what_was_reviewed(weigh: CalledWeigh) -> None:
    check_transcript(Path(__file__).with_name("compare.transcript"), weigh)


def test_json_is_one_document_that_reads_back(weigh: CalledWeigh) -> None:
    _, out, _ = weigh("compare", "--json", "tag-50", "tag-300")
    assert json.loads(out)["schema"] == "weigh.comparison/1"
    assert msgspec.json.decode(out, type=RunComparison).row("wall_time") is not None


def test_records_and_names_are_compared_from_python_too() -> None:
    first, second = compare("tag-50", guide_run(300)).sides
    assert (first.records, second.name) == (("050bbbbbbbbb",), "tag-300")


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UsageError, match="an empty list has no measurement"):
        compare(guide_run(50), [])
