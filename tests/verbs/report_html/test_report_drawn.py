"""``report -o`` from the command line: pages, and what is printed."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_here
from reports_to_draw import trained
from written_programs import room_for

from weigh.store import identity, shards

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Say:
    """Call weigh beside a store with a run."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".weigh").mkdir()
    named = msgspec.structs.replace(trained(), id="0" * 12)
    shards.append_record(str(tmp_path / ".weigh"), named, identity.this_machine())

    return called_here(capsys)


def test_a_page_is_written_and_reported(say: Say, tmp_path: Path) -> None:
    assert say("report", "train", "-o", "out.html") == (
        0,
        "",
        "weigh: wrote out.html\n",
    )
    html = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert html.startswith("<!DOCTYPE html>")
    assert "<title>train 000000 - weigh report</title>" in html


def test_a_hyphen_is_standard_output(say: Say) -> None:
    code, out, err = say("report", "train", "-o", "-")
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("</html>")


def test_a_full_disk_leaves_the_page_before(say: Say, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    page.write_text("the page before")
    page.chmod(0o644)
    with room_for(2048):
        code, _, err = say("report", "train", "-o", "out.html")
    assert (code, err) == (125, "weigh: cannot write out.html: File too large\n")
    assert page.read_text() == "the page before"
    assert [one.name for one in tmp_path.glob("out.html*")] == ["out.html"]
    assert say("report", "train", "-o", "out.html")[0] == 0
    assert page.stat().st_mode & 0o777 == 0o644


def test_a_page_in_no_folder_states_how_to_make_it(say: Say) -> None:
    code, _, err = say("report", "train", "-o", "no/such/out.html")
    assert code == 125
    assert err.endswith(
        "No such file or directory (create it first: mkdir -p no/such)\n"
    )
