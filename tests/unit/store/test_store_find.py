from pathlib import Path

import msgspec
import pytest
from some_records import HERE, some_record
from transcript import check_answers

from weigh.errors import FormatError
from weigh.store.find import find_stored_record
from weigh.store.identity import MachineIdentity, content_id, is_id, new_id
from weigh.store.lines import encode_record
from weigh.store.shards import (
    append_line,
    append_record,
    month_folder,
    shard_name,
)

OLD = some_record("aaaa11112222", label="train", started="2026-11-20T00:00:00Z")
NEW = some_record("aaaa33334444", label="train", started="2026-11-21T00:00:00Z")
LATEST = some_record("bbbb55556666", started="2026-11-22T00:00:00Z")


@pytest.fixture
def root(tmp_path: Path) -> str:
    for record in (NEW, OLD, LATEST):
        append_record(str(tmp_path), record, HERE)
    return str(tmp_path)


def test_names_find_records_as_they_were_reviewed(root: str, tmp_path: Path) -> None:
    path = append_record(root, LATEST, HERE)
    append_line(path, b'{"schema":"weigh.record/2","id":"ffff00001111"}')
    many = str(tmp_path / "many")
    for number in range(8):
        append_record(many, some_record(f"cccc{number:08}"), HERE)
    check_answers(
        Path(__file__).with_name("names.texts"),
        {
            "a record of three": lambda name: find_stored_record(root, name).id,
            "a record of many": lambda name: find_stored_record(many, name).id,
            "a record of none": lambda name: find_stored_record(f"{root}/none", name),
            "the shard of a host": lambda host: shard_name(
                MachineIdentity(host.replace("LONG", "x" * 300))
            ),
            "the month of a record": month_folder,
        },
        {root: "FOLDER"},
    )


def test_a_file_of_run_is_a_record_too_and_found_last_without_a_clear_name(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, indent in (("out.json", 0), (f"{tmp_path}/out.json", 2), ("result", 0)):
        Path(name).write_bytes(msgspec.json.format(encode_record(OLD), indent=indent))
        assert find_stored_record(root, name) == OLD
    Path("package.json").write_text('{"name": "x"}')
    with pytest.raises(FormatError, match=r"package\.json is not a record"):
        find_stored_record(root, "package.json")


def test_a_run_in_progress_is_found_after_the_finished(root: str) -> None:
    running = some_record("dddd00001111", label="train", state="RUNNING")
    assert find_stored_record(root, "dddd", [running]) == running
    assert find_stored_record(root, "train", [running]) == NEW


def test_ids_are_twelve_letters_and_do_not_repeat() -> None:
    drawn = {new_id() for _ in range(1000)}
    assert len(drawn) == 1000
    assert all(map(is_id, drawn))


def test_the_id_of_a_content_is_an_id_and_always_the_same() -> None:
    assert is_id(content_id(b"x"))
    assert content_id(b"x") == content_id(b"x") != content_id(b"y")
