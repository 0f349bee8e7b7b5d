"""Reading along with a file that somebody else writes, cuts, renames and removes."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.output import WatchedOutput, own_output_files


def read_all(file: WatchedOutput) -> bytes:
    chunks: list[bytes] = []
    file.look(chunks.append)
    return b"".join(chunks)


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_all_that_is_written_is_read_once(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("read") / "out"
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


def test_after_the_hole_that_cutting_leaves_lines_are_read_as_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out"
    with path.open("wb", buffering=0) as writer:
        writer.write(b"x" * 1_000_000)
        file = WatchedOutput(str(path))
        read_all(file)
        os.truncate(path, 0)
        read_all(file)
        writer.write(b"step 3 of 9\n")
        seen = read_all(file)
        writer.write(b"step 4 of 9\n")
        seen = read_all(file)
    assert seen == b"step 4 of 9\n"


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


def test_of_too_much_the_beginning_and_the_end_are_read_in_whole_lines(
    tmp_path: Path,
) -> None:
    path = tmp_path / "out"
    lines = [b"step %d of 299999" % number for number in range(299_999)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    seen = read_all(WatchedOutput(str(path)))
    assert len(seen) < 1_000_000
    found = [line for line in seen.split(b"\n") if line]
    assert (found[0], found[-1]) == (lines[0], lines[-1])
    # of the line before the gap the end is missing
    assert len(set(found).difference(lines)) <= 1


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


def test_reading_along_leaves_the_writers_offset_alone_and_pipes_too(
    tmp_path: Path,
) -> None:
    writer, pipe = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT), os.pipe()
    (file,) = own_output_files((writer, *pipe))
    os.write(writer, b"step 1 of 2\n")
    assert read_all(file) == b"step 1 of 2\n"
    assert os.lseek(writer, 0, os.SEEK_CUR) == len(b"step 1 of 2\n")
    for fd in (writer, *pipe):
        os.close(fd)
    file.close()
