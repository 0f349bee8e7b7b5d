"""What weigh says of a file that it was named and that does not exist."""

import errno
import os
from pathlib import Path

import pytest

from weigh.errors import cannot_read, cannot_write, why_nothing_is_at

MISSING = FileNotFoundError(2, "No such file or directory")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("task.txt", "did you mean {}/tasks.txt?"),
        ("x9", "one command a line"),
        ("nope.txt", "one command a line"),
        ("runs/tasks.txt", "there is no folder {}/runs"),
    ],
)
def test_the_way_out_is_named(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "tasks.txt").touch()
    message = cannot_read(f"{tmp_path}/{name}", MISSING, "one command a line")
    assert message == (
        f"cannot read {tmp_path}/{name}: No such file or directory"
        f" ({said.format(tmp_path)})"
    )


def test_a_file_that_may_not_be_read_is_not_looked_for(tmp_path: Path) -> None:
    (tmp_path / "tasks.txt").touch()
    error = PermissionError(13, "Permission denied")
    assert cannot_read(f"{tmp_path}/task.txt", error, "hint").endswith(
        "task.txt: Permission denied"
    )


def test_what_helps_follows_from_the_error() -> None:
    for number, way_out in (
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.ENOENT, "create it first: mkdir -p a"),
        (errno.EACCES, "choose another -o FILE"),
    ):
        error = OSError(number, os.strerror(number))
        assert cannot_write("a/b", error, "choose another -o FILE") == (
            f"cannot write a/b: {os.strerror(number)} ({way_out})"
        )


def test_what_cannot_be_reached_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")  # as a closed folder, but for root, too
    for name in ("nowhere", "a/b"):
        assert why_nothing_is_at(f"{tmp_path}/{name}") == "no such file"
    assert why_nothing_is_at(f"{tmp_path}/loop/x") == os.strerror(errno.ELOOP)
    assert why_nothing_is_at(str(tmp_path)) is None
