from pathlib import Path

import msgspec
import pytest
from some_records import HERE, some_record

from weigh.errors import FormatError, RecordNotFoundError, SchemaError, UsageError
from weigh.store.find import find_stored_record
from weigh.store.identity import content_id, is_id, new_id
from weigh.store.lines import encode_record
from weigh.store.shards import append_line, append_record

OLD = some_record("aaaa11112222", label="train", started="2026-11-20T00:00:00Z")
NEW = some_record("aaaa33334444", label="train", started="2026-11-21T00:00:00Z")
LATEST = some_record("bbbb55556666", started="2026-11-22T00:00:00Z")


@pytest.fixture
def root(tmp_path: Path) -> str:
    for record in (NEW, OLD, LATEST):
        append_record(str(tmp_path), record, HERE)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("aaaa11112222", OLD),
        ("bbbb", LATEST),
        ("BBBB5", LATEST),
        ("aaaa3", NEW),
        ("train", NEW),
        ("last", LATEST),
    ],
)
def test_a_record_answers_to(root: str, name: str, found: object) -> None:
    assert find_stored_record(root, name) == found


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("aaaa", UsageError, "aaaa33334444, aaaa11112222"),
        ("bbb", RecordNotFoundError, "bbb"),  # three letters are too few for an id
        ("trian", RecordNotFoundError, "did you mean train"),
        ("lsat", RecordNotFoundError, "did you mean last"),
        ("bbbb65", RecordNotFoundError, "did you mean bbbb55"),
        ("none.json", RecordNotFoundError, r"none\.json: No such file"),
        ("ffff00001111", SchemaError, "ffff00001111"),
        ("ffff", SchemaError, "ffff00001111"),
    ],
)
def test_a_name_of_no_record_is_refused_with_what_is_near(
    root: str, name: str, error: type[Exception], words: str
) -> None:
    path = append_record(root, LATEST, HERE)
    append_line(path, b'{"schema":"weigh.record/2","id":"ffff00001111"}')
    with pytest.raises(error, match=words):
        find_stored_record(root, name)


def test_a_prefix_of_many_counts_the_rest(tmp_path: Path) -> None:
    for number in range(8):
        append_record(str(tmp_path), some_record(f"cccc{number:08}"), HERE)
    with pytest.raises(UsageError, match="and 3 more"):
        find_stored_record(str(tmp_path), "cccc")


def test_an_empty_store_states_how_to_fill_it(tmp_path: Path) -> None:
    with pytest.raises(RecordNotFoundError, match="weigh run makes one"):
        find_stored_record(str(tmp_path), "last")


@pytest.mark.parametrize("indent", [0, 2])
def test_a_file_of_run_is_a_record_too(tmp_path: Path, indent: int) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(msgspec.json.format(encode_record(OLD), indent=indent))
    assert find_stored_record(str(tmp_path), str(path)) == OLD


def test_a_file_without_a_clear_name_is_found_last(
    root: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("result").write_bytes(encode_record(OLD))
    assert find_stored_record(root, "result") == OLD


def test_a_file_that_is_no_record_is_named(tmp_path: Path) -> None:
    path = tmp_path / "package.json"
    path.write_text('{"name": "x"}')
    with pytest.raises(FormatError, match=r"package\.json is not a record"):
        find_stored_record(str(tmp_path), str(path))


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
