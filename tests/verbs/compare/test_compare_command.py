import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_here
from runs_to_compare import guide_run, run, usage
from transcript import check_transcript

from weigh.errors import UsageError
from weigh.flow.records.compare import compare
from weigh.render.comparison_lines import RunComparison
from weigh.store import identity, shards

Weigh = Callable[..., tuple[int, str, str]]


@pytest.fixture
def weigh(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Weigh:
    """``weigh`` in a folder with the guide's two runs and a label of three."""
    same = [
        run("same", usage(time), id=f"{n}aaaaaaaaaaa")
        for n, time in enumerate((5.0, 5.2, 5.1))
    ]
    guide = [
        msgspec.structs.replace(guide_run(size), id=f"{size:03d}bbbbbbbbb")
        for size in (50, 300)
    ]
    for record in (*same, *guide):
        shards.append_record(str(tmp_path / ".weigh"), record, identity.this_machine())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WEIGH_DIR", raising=False)

    return called_here(capsys)


def test_comparisons_print_what_was_reviewed(weigh: Weigh, tmp_path: Path) -> None:
    """A parameter may be in the command, and one side's record lack it."""
    for label, parameters in (("typed", {}), ("swept", {"lr": 0.1})):
        one = run(label, usage(5.0), id=label.ljust(12, "0"), parameters=parameters)
        shards.append_record(str(tmp_path / ".weigh"), one, identity.this_machine())

    check_transcript(Path(__file__).with_name("compare.transcript"), weigh)


def test_json_is_one_document_that_reads_back(weigh: Weigh) -> None:
    _, out, _ = weigh("compare", "--json", "tag-50", "tag-300")
    assert json.loads(out)["schema"] == "weigh.comparison/1"
    assert msgspec.json.decode(out, type=RunComparison).row("wall_time") is not None


def test_records_of_this_program_are_compared_without_a_store() -> None:
    told = compare(guide_run(50), [guide_run(300)])
    assert [side.name for side in told.sides] == ["tag-50", "tag-300"]


def test_names_are_found_from_python_too(weigh: Weigh) -> None:
    assert weigh("compare", "tag-50", "tag-300")[0] == 0
    assert compare("tag-50", guide_run(300)).sides[0].records == ("050bbbbbbbbb",)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UsageError, match="an empty list has no measurement"):
        compare(guide_run(50), [])
