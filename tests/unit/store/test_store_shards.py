import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from some_records import HERE, records, some_record

from weigh.errors import (
    FormatError,
    RecordNotFoundError,
    SchemaError,
    StoreError,
)
from weigh.model.record import MeasuringCost, Record, RecordedRank
from weigh.store.checkpoint import RunCheckpoint, save_checkpoint
from weigh.store.find import find_stored_record
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.index import (
    StoreIndex,
    join_parts,
    read_index,
    read_record,
    read_record_without_series,
)
from weigh.store.lines import decode_record, encode_record
from weigh.store.past_calls import StoredScan, append_call
from weigh.store.shards import (
    append_line,
    append_record,
    append_tombstone,
    shard_name,
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


def test_the_short_reading_leaves_the_series_out(tmp_path: Path) -> None:
    append_record(str(tmp_path), some_record(), HERE)
    [entry] = read_index(str(tmp_path)).entries
    short = read_record_without_series(entry)
    assert (short.series, short.usage) == (None, some_record().usage)


def test_a_shard_lies_in_its_month_under_host_machine_and_boot(tmp_path: Path) -> None:
    path = append_record(str(tmp_path), some_record(), HERE)
    expected = tmp_path / "records" / "2026-11" / "node07-01234567-boot-1.jsonl"
    assert path == str(expected)
    no_id = MachineIdentity(host="box", boot_id="6d9fcd23-4f74")
    assert shard_name(no_id) == "box-6d9fcd23.jsonl"
    # nodes that were cloned with their machine's id
    boots = ("aa-1", "bb-2", None)
    clones = {shard_name(MachineIdentity("n", "0123456789", boot)) for boot in boots}
    assert len(clones) == 3


def test_records_come_newest_first_whatever_the_order_of_writing(
    tmp_path: Path,
) -> None:
    root = str(tmp_path)
    append_record(root, some_record("a" * 12, state="RUNNING"), HERE)
    for record_id, started in (
        ("bbbbbbbbbbbb", "2026-11-21T10:00:00.500Z"),
        ("cccccccccccc", "2026-12-01T00:00:00Z"),
        ("aaaaaaaaaaaa", "2026-11-21T10:00:00Z"),
        ("dddddddddddd", "2026-12-01T00:00:00Z"),  # of one moment the later line
    ):
        append_record(root, some_record(record_id, started=started), HERE)
    entries = read_index(root).entries
    assert [one.head.id[0] for one in entries] == ["d", "c", "b", "a"]
    assert entries[-1].head.state == "COMPLETED"  # the last line of an id counts


def test_a_tombstone_takes_a_record_away_also_from_another_host(
    tmp_path: Path,
) -> None:
    root = str(tmp_path)
    append_record(root, some_record(), HERE)
    append_tombstone(
        root, some_record().id, machine=MachineIdentity(host="login1"), current_time=NOW
    )
    append_record(root, some_record(), HERE)
    assert ids_of(read_index(root)) == []


def test_a_line_torn_anywhere_costs_neither_neighbour(tmp_path: Path) -> None:
    line = encode_record(some_record("bbbbbbbbbbbb"))
    for length in range(1, len(line), 37):
        root = str(tmp_path / str(length))
        path = append_record(root, some_record("aaaaaaaaaaaa"), HERE)
        with open(path, "ab") as shard:
            shard.write(line[:length])
        append_record(root, some_record("cccccccccccc"), HERE)
        index = read_index(root)
        assert (ids_of(index), index.torn) == (["cccccccccccc", "aaaaaaaaaaaa"], 1)


MEASURED = encode_record(
    msgspec.structs.replace(some_record("b" * 12), monitor=MeasuringCost())
)


@pytest.mark.parametrize(
    "damage",
    [
        *(b"\xff\xfe", b"[" * 100_000, b"{}", b"null", b'{"id":5}', b"\0" * 4096),
        b'{"schema":"weigh.record/1","id":"bbbbbbbbbbbb","started":7}',
        # torn, though it ends as a whole one does
        MEASURED[: MEASURED.index(b',"monitor":')] + b"}}",
    ],
)
def test_a_damaged_line_is_counted_and_stepped_over(
    tmp_path: Path, damage: bytes
) -> None:
    path = append_record(str(tmp_path), some_record(), HERE)
    append_line(path, damage)
    index = read_index(str(tmp_path))
    assert (ids_of(index), index.torn) == ([some_record().id], 1)


def test_the_parts_of_a_run_are_joined_and_a_whole_record_replaces_them() -> None:
    parts = [
        msgspec.structs.replace(
            some_record(), part=number, ranks=(RecordedRank(number, peak_memory=7),)
        )
        for number in (0, 1)
    ]
    other = some_record("aaaaaaaaaaaa")

    joined, last = join_parts([parts[0], other, parts[1]])

    assert ([rank.rank for rank in joined.ranks], last) == ([0, 1], other)
    assert join_parts([*parts, some_record()]) == [some_record()]


def test_keys_in_another_order_or_of_a_later_minor_change_are_read(
    tmp_path: Path,
) -> None:
    path = append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    builtins = msgspec.to_builtins(some_record("bbbbbbbbbbbb", label="mixed"))
    newer = {**dict(reversed(builtins.items())), "novelty": {"a": [1]}}
    append_line(path, msgspec.json.encode(newer))
    [entry] = [e for e in read_index(str(tmp_path)).entries if e.head.label]
    assert read_record(entry).id == "bbbbbbbbbbbb"


def test_a_newer_schema_is_counted_apart_and_refused_by_name(tmp_path: Path) -> None:
    path = append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    append_line(path, b'{"schema":"weigh.record/2","id":"bbbbbbbbbbbb","usage":7}')
    index = read_index(str(tmp_path))
    assert (ids_of(index), list(index.newer)) == (["aaaaaaaaaaaa"], ["bbbbbbbbbbbb"])
    with pytest.raises(SchemaError, match=r"bbbbbbbbbbbb .*weigh.record/2"):
        read_record(index.newer["bbbbbbbbbbbb"])


def test_an_argument_that_is_not_utf8_is_kept_legible(tmp_path: Path) -> None:
    append_record(str(tmp_path), some_record(command=("cat", "a\udcffb")), HERE)
    [entry] = read_index(str(tmp_path)).entries
    assert read_record(entry).command == ("cat", r"a\udcffb")


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


def test_a_full_disk_is_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    append_record(str(tmp_path), some_record("aaaaaaaaaaaa"), HERE)
    monkeypatch.setattr("os.write", write)
    with pytest.raises(StoreError, match=r"jsonl: No space left on device \(free some"):
        append_record(str(tmp_path), some_record("bbbbbbbbbbbb"), HERE)
    monkeypatch.undo()
    assert ids_of(read_index(str(tmp_path))) == ["aaaaaaaaaaaa"]


def test_a_disk_that_fills_in_the_middle_of_a_record_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr("os.write", lambda fd, content: real(fd, content[:50]))
    with pytest.raises(StoreError, match="only a part"):
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


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        (b'{"schema": "weigh.record/1"', FormatError, "not a record"),
        (b'{"schema":"weigh.record/2","id":"b"}', SchemaError, "install a newer weigh"),
        (b'{"schema":"weigh.record/0","id":"b"}', SchemaError, "measure the run again"),
    ],
)
def test_what_is_no_record_of_this_schema_is_refused(
    line: bytes, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        decode_record(line)


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
