"""`weigh.map`: a function called once per item, each call a measured task."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import weigh
from weigh.errors import UsageError

PROGRAM = """
import os, sys, weigh

def twice(x):
    with open("calls", "a") as calls:
        print(x, file=calls)
    if os.path.exists(f"fail-{x}"):
        raise ValueError(f"no {x}")
    return {"x": x, "twice": 2 * x}

if __name__ == "__main__":
    items = [float(word) for word in sys.argv[2:]]
    print(weigh.map(twice, items, jobs=2, name=sys.argv[1] or None))
"""


class Folder:
    """A folder with a program that maps `twice`, and how often it was called."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "program.py").write_text(PROGRAM)
        (path / ".hg").mkdir()

    def map(self, name: str, *items: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "program.py", name, *items],
            cwd=self.path,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        return sorted((self.path / "calls").read_text().split())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_results_come_in_the_order_of_the_items(folder: Folder) -> None:
    done = folder.map("", "3", "1", "2")
    expected = [{"x": x, "twice": 2 * x} for x in (3.0, 1.0, 2.0)]
    assert done.stdout == f"{expected}\n", done.stderr
    assert list((folder.path / ".weigh/map").iterdir()) == []


def test_each_call_has_a_record_with_its_item(folder: Folder) -> None:
    folder.map("", "3", "1")
    listed = subprocess.run(
        [sys.executable, "-m", "weigh", "records", "export"],
        cwd=folder.path,
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in listed.stdout.splitlines()]
    assert sorted(one["parameters"]["item"] for one in records) == [1, 3]
    assert {one["state"] for one in records} == {"COMPLETED"}


def test_a_named_map_calls_only_what_failed_or_changed(folder: Folder) -> None:
    (folder.path / "fail-2.0").touch()
    failed = folder.map("a", "1", "2")
    assert failed.returncode == 1
    assert "1 of 2 calls failed: twice(2.0) (the first: ValueError: no 2.0" in (
        failed.stderr
    )
    (folder.path / "fail-2.0").unlink()
    assert "'twice': 4.0" in folder.map("a", "1", "2").stdout
    assert folder.calls() == ["1.0", "2.0", "2.0"]
    assert "'twice': 10.0" in folder.map("a", "1", "5").stdout
    assert folder.calls() == ["1.0", "2.0", "2.0", "5.0"]


def test_a_call_that_ends_silently_has_a_reason_too(folder: Folder) -> None:
    silent = PROGRAM.replace('raise ValueError(f"no {x}")', "os._exit(7)")
    (folder.path / "program.py").write_text(silent)
    (folder.path / "fail-2.0").touch()
    failed = folder.map("", "2")
    assert "(the first: it ended without a message; all in " in failed.stderr


def test_an_unguarded_call_is_explained(folder: Folder) -> None:
    program = folder.path / "program.py"
    program.write_text(PROGRAM.replace('__name__ == "__main__"', "True"))
    done = folder.map("", "1")
    assert 'put it below if __name__ == "__main__":' in done.stderr
    assert done.returncode == 1


def test_no_items_are_no_results(folder: Folder) -> None:
    assert folder.map("", *()).stdout == "[]\n"


def test_a_notebook_maps_functions_of_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / ".weigh"))
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # no file, as there
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    assert weigh.map(math.sqrt, [4.0, 9.0], jobs=2) == [2.0, 3.0]


@pytest.mark.parametrize(
    ("function", "items", "name", "words"),
    [
        (lambda x: x, [1], None, "define .*<lambda>|no name that another process"),
        (len, [lambda: 1], None, "item 1 cannot be pickled"),
        (len, ["a"], "../x", "is no name for a folder"),
    ],
)
def test_what_cannot_be_sent_is_named(
    function: object,
    items: list[object],
    name: str | None,
    words: str,
) -> None:
    with pytest.raises(UsageError, match=words):
        weigh.map(function, items, name=name)  # type: ignore[arg-type]
