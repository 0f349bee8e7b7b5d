import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from sessions import check_session
from some_records import HERE, records, some_record

from weigh.errors import (
    RecordNotFoundError,
    StoreError,
)
from weigh.model.record import Record
from weigh.store.checkpoint import RunCheckpoint, save_checkpoint
from weigh.store.find import find_stored_record
from weigh.store.identity import (
    ProcessIdentity,
    process_identity,
    this_machine,
)
from weigh.store.index import (
    StoreIndex,
    read_index,
    read_record,
)
from weigh.store.lines import encode_record
from weigh.store.past_calls import StoredScan, append_call
from weigh.store.shards import (
    append_line,
    append_record,
)

NOW = "2026-11-22T00:00:00Z"


def ids_of(index: StoreIndex) -> list[str]:
    return [entry.head.id for entry in index.entries]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(record=records)
def test_any_record_comes_back_as_it_was_and_its_head_states_the_same(
    tmp_path_factory: pytest.TempPathFactory, record: Record
) -> None:
    root = str(tmp_path_factory.mktemp("store"))
    append_record(root, record, HERE)
    [entry] = read_index(root).entries
    assert read_record(entry) == record
    whole = msgspec.json.decode(encode_record(record), type=type(entry.head))
    assert entry.head == whole


def test_worked_examples_of_a_store(tmp_path: Path) -> None:
    names = {
        "folder": lambda: mkdtemp(dir=tmp_path),
        "here": this_machine(),
        "identity_of": process_identity,
    }
    check_session(Path(__file__).with_name("store.session"), names)


def _write_many(root: str, writer: int, together: Barrier) -> None:
    draw = random.Random(writer)
    together.wait()
    for turn in range(50):
        size = int(500 * 400 ** draw.random())
        record = some_record(f"{writer:06x}{turn:06x}", command=("x" * size,))
        append_record(root, record, HERE)


def test_no_record_of_24_concurrent_writers_is_lost_or_torn(tmp_path: Path) -> None:
    fork = get_context("fork")
    together = fork.Barrier(24)
    writers = [
        fork.Process(target=_write_many, args=(str(tmp_path), n, together))
        for n in range(24)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    index = read_index(str(tmp_path))
    assert (len(index.entries), index.torn) == (24 * 50, 0)
    assert all(read_record(entry).id == entry.head.id for entry in index.entries)


def test_a_write_cut_short_is_made_again_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, cuts = os.write, [100]

    def write(descriptor: int, content: bytes) -> int:
        return real(descriptor, content[: cuts.pop()] if cuts else content)

    append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    monkeypatch.setattr("os.write", write)
    append_record(str(tmp_path), some_record("bbbbbbbbbbbb"), HERE)
    index = read_index(str(tmp_path))
    assert (len(index.entries), index.torn) == (2, 1)


def test_a_record_glued_to_what_another_left_torn_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    real, torn = os.write, [b'{"schema":"wei']

    def write(descriptor: int, content: bytes) -> int:
        if torn:
            with open(path, "ab") as other:
                other.write(torn.pop())
        return real(descriptor, content)

    monkeypatch.setattr("os.write", write)
    append_record(str(tmp_path), some_record("bbbbbbbbbbbb"), HERE)
    assert ids_of(read_index(str(tmp_path))) == ["bbbbbbbbbbbb", "aaaaaaaaaaaa"]


@pytest.mark.parametrize(
    ("room", "words"),
    [(0, r"jsonl: No space left on device \(free some"), (50, "only a part")],
)
def test_a_disk_that_fills_is_reported_and_the_next_record_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, words: str
) -> None:
    real = os.write

    def write(descriptor: int, content: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, content[:room])

    monkeypatch.setattr("os.write", write)
    with pytest.raises(StoreError, match=words):
        append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    monkeypatch.undo()
    append_record(str(tmp_path), some_record("bbbbbbbbbbbb"), HERE)
    assert ids_of(read_index(str(tmp_path))) == ["bbbbbbbbbbbb"]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def mkdir(path: str, *_: object) -> None:
        raise OSError(number, os.strerror(number), path)

    monkeypatch.setattr("os.mkdir", mkdir)
    words = rf"store/records/\S+: {os.strerror(number)} \(set WEIGH_DIR"
    with pytest.raises(StoreError, match=words):
        append_record(str(tmp_path / "store"), some_record(), HERE)
    assert ids_of(read_index(str(tmp_path / "store"))) == []


NOBODY = 65534


@pytest.mark.as_root
def test_what_root_leaves_in_a_users_folder_belongs_to_that_user(
    tmp_path: Path,
) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    root = str(tmp_path / ".weigh")
    me = ProcessIdentity(os.getpid())
    append_record(root, some_record(), HERE)
    save_checkpoint(root, RunCheckpoint(machine=HERE, weigh=me, record=some_record()))
    append_call(root, StoredScan("size", ("tag",), "/"))
    made = [Path(root), *Path(root).rglob("*")]
    assert len(made) == 8
    assert {path.lstat().st_uid for path in made} == {NOBODY}


@pytest.mark.as_root
def test_root_hands_over_no_file_that_was_there(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    precious = tmp_path / "precious"
    precious.touch()
    (tmp_path / "shard.jsonl").symlink_to(precious)
    append_line(str(tmp_path / "shard.jsonl"), b"{}")
    assert precious.stat().st_uid == 0


@contextmanager
def as_nobody() -> Iterator[None]:
    if os.geteuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@pytest.mark.parametrize("closed", ["shard", "month"])
def test_what_another_user_closed_hides_no_other_record(closed: str) -> None:
    with TemporaryDirectory() as root:
        one = Path(append_record(root, some_record("aaaaaaaaaaaa"), HERE))
        later = some_record("bbbbbbbbbbbb", started="2026-12-01T00:00:00Z")
        other = Path(append_record(root, later, HERE))
        for path in (Path(root), one.parent.parent, one.parent, one):
            path.chmod(0o755)
        path = other if closed == "shard" else other.parent
        other.parent.chmod(0o755)
        path.chmod(0)
        with as_nobody():
            index = read_index(root)
            with pytest.raises(RecordNotFoundError, match="another user: chown it"):
                find_stored_record(root, "bbbbbbbbbbbb")
        path.chmod(0o700)
    assert ids_of(index) == ["aaaaaaaaaaaa"]
    assert index.closed == [str(path)]
