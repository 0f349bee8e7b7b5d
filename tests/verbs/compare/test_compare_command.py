import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_here
from runs_to_compare import guide_run, run, usage

from weigh.errors import UsageError
from weigh.flow.records.compare import compare
from weigh.model.comparison import RunComparison
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


def test_two_labels_are_compared_on_stdout(weigh: Weigh) -> None:
    code, out, err = weigh("compare", "tag-50", "tag-300")
    assert (code, err) == (0, "")
    assert "31 % quicker" in out


def test_a_label_stands_for_all_of_its_records(weigh: Weigh) -> None:
    _, out, _ = weigh("compare", "tag-50", "same")
    assert "5.00 to 5.20 s, 3 runs" in out


def test_an_id_of_a_label_stands_for_itself(weigh: Weigh) -> None:
    _, out, _ = weigh("compare", "0aaaaa", "1aaaaa")
    assert out.splitlines()[0].endswith("1 run")


def test_json_is_one_document_that_reads_back(weigh: Weigh) -> None:
    _, out, _ = weigh("compare", "--json", "tag-50", "tag-300")
    assert json.loads(out)["schema"] == "weigh.comparison/1"
    assert msgspec.json.decode(out, type=RunComparison).row("wall_time") is not None


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("tag-50",), "name two records or more"),
        (("tag-50", "tag-30"), "did you mean tag-300"),
        (("tag-50", "050bbb"), "are the same record"),
    ],
)
def test_names_that_will_not_do_are_one_clear_line(
    weigh: Weigh, names: tuple[str, ...], complaint: str
) -> None:
    code, out, err = weigh("compare", *names)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1


def test_records_of_this_program_are_compared_without_a_store() -> None:
    told = compare(guide_run(50), [guide_run(300)])
    assert [side.name for side in told.sides] == ["tag-50", "tag-300"]


def test_names_are_found_from_python_too(weigh: Weigh) -> None:
    assert weigh("compare", "tag-50", "tag-300")[0] == 0
    assert compare("tag-50", guide_run(300)).sides[0].records == ("050bbbbbbbbb",)


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(UsageError, match="empty list"):
        compare(guide_run(50), [])


def test_a_parameter_that_one_side_lacks_is_not_recorded_there(
    weigh: Weigh, tmp_path: Path
) -> None:
    """Its command may well have it: `--lr 0.1`, typed without --param."""
    for label, parameters in (("typed", {}), ("swept", {"lr": 0.1})):
        one = run(label, usage(5.0), id=label.ljust(12, "0"), parameters=parameters)
        shards.append_record(str(tmp_path / ".weigh"), one, identity.this_machine())
    _, out, _ = weigh("compare", "typed", "swept")
    assert "lr: A not recorded, B 0.1" in out
