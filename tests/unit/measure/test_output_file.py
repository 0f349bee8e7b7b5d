"""Reading along with a file that somebody else writes, cuts, renames and removes."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.output import WatchedOutput, own_output_files

LONG = 3600.0  # CPU seconds: all there is


def read_all(file: WatchedOutput) -> bytes:
    chunks: list[bytes] = []
    file.look(chunks.append, cost=LONG)
    return b"".join(chunks)


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_all_that_is_written_is_read_once(
    tmp_path_factory: object, pieces: list[bytes]
) -> None:
    path = Path(str(tmp_path_factory.mktemp("read"))) / "out"  # type: ignore[attr-defined]
    path.write_bytes(b"from before")
    file = WatchedOutput(str(path), len(b"from before"))
    seen = b""
    with path.open("ab", buffering=0) as writer:
        for piece in pieces:
            writer.write(piece)
            seen += read_all(file)
    file.close()
    assert seen == b"".join(pieces)


def test_a_file_that_is_cut_is_read_from_its_new_begin(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"step 1 of 9\n" * 100)
    file = WatchedOutput(str(path))
    read_all(file)
    path.write_bytes(b"step 2 of 9\n")
    assert read_all(file) == b"step 2 of 9\n"


def test_the_hole_that_cutting_leaves_is_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb", buffering=0) as writer:
        writer.write(b"x" * 1_000_000)
        file = WatchedOutput(str(path))
        read_all(file)
        os.truncate(path, 0)
        read_all(file)
        writer.write(b"step 3 of 9\n")
        seen = read_all(file)
    assert seen.endswith(b"step 3 of 9\n")
    assert len(seen) < 10_000


@pytest.mark.parametrize("successor", [b"another's", None], ids=["renamed", "removed"])
def test_a_file_that_is_renamed_or_removed_is_read_on_and_not_its_successor(
    tmp_path: Path, successor: bytes | None
) -> None:
    path = tmp_path / "out"
    with path.open("ab", buffering=0) as writer:
        file = WatchedOutput(str(path))
        if successor is None:
            path.unlink()
        else:
            path.rename(tmp_path / "out.1")
            path.write_bytes(successor)
        writer.write(b"the job's")
        assert read_all(file) == b"the job's"


def test_of_too_much_the_end_is_read_from_a_whole_line_on(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"".join(b"step %d of 99999\n" % n for n in range(99999)))
    file = WatchedOutput(str(path), most=4096)
    seen = read_all(file)
    assert len(seen) <= 4096
    lines = seen.splitlines()[1:]
    assert lines[-1] == b"step 99998 of 99999"
    assert all(line.startswith(b"step ") for line in lines)


def test_without_time_left_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"x\n" * 4_000_000 + b"last\n")
    file = WatchedOutput(str(path))
    chunks: list[bytes] = []
    file.look(chunks.append, cost=-1.0)
    assert sum(map(len, chunks)) < 1_000_000
    assert chunks[-1].endswith(b"last\n")


def test_an_appender_is_read_from_the_end_and_a_writer_from_where_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old\n")
    appender = os.open(path, os.O_WRONLY | os.O_APPEND)
    writer = os.open(path, os.O_WRONLY)
    os.lseek(writer, 2, os.SEEK_SET)
    files = [
        *own_output_files((appender,)),
        *own_output_files((writer,)),
        *own_output_files((writer, appender)),  # one file
    ]
    assert [read_all(file) for file in files] == [b"", b"d\n", b"d\n"]
    for file in files:
        file.close()
    os.close(appender)
    os.close(writer)


def test_reading_along_leaves_the_writers_offset_alone(tmp_path: Path) -> None:
    writer = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    (file,) = own_output_files((writer,))
    os.write(writer, b"step 1 of 2\n")
    assert read_all(file) == b"step 1 of 2\n"
    assert os.lseek(writer, 0, os.SEEK_CUR) == len(b"step 1 of 2\n")
    os.close(writer)
    file.close()


def test_a_pipe_is_no_file() -> None:
    read, write = os.pipe()
    assert own_output_files((read, write)) == []
    os.close(read)
    os.close(write)
