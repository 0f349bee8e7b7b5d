"""A FIFO or a device where weigh expects its files: named, not waited for."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from called_weigh import called_apart as weigh

from weigh.errors import UsageError
from weigh.flow.submit.staging import measure_source


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, endless])
def test_other_records_are_read_though_a_file_is_none(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    assert weigh(tmp_path, "run", "-q", "--", "true").returncode == 0
    (month,) = (tmp_path / "store/records").iterdir()
    make(month / "other-12345678-aaaaaaaa.jsonl")

    for words in (("records",), ("report", "last"), ("request",)):
        done = weigh(tmp_path, *words)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("make", [os.mkfifo, endless])
@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("plan/p/plan.json", ("submit", "plan/p", "--on", "local")),
        ("store/jobs.jsonl", ("status",)),
        ("tasks.txt.joblog", ("exec", "tasks.txt")),
    ],
)
def test_a_file_that_is_none_is_named(
    tmp_path: Path,
    make: Callable[[Path], None],
    file: str,
    words: tuple[str, ...],
) -> None:
    (tmp_path / "tasks.txt").write_text("true\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    make(tmp_path / file)

    done = weigh(tmp_path, *words)

    assert done.returncode in {2, 125}
    assert Path(file).name in done.stderr
    assert "not a regular file" in done.stderr


def test_a_link_to_a_device_is_not_staged(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    endless(tmp_path / "data/all.bin")

    with pytest.raises(UsageError, match=r"leads to /dev/zero, a device"):
        measure_source(str(tmp_path / "data"))
