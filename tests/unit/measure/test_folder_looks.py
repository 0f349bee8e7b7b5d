"""Which files a look at a process's descriptors takes for read."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from weigh.measure.programs import FolderLooks
from weigh.model.record import FileCalls, Usage
from weigh.usage_needs import small_read_words

CALLS = FileCalls(reads=30_000, writes=9, read=3_000_000, written=9)
MOUNTS = b"1 0 0:9 / / rw - ext4 /dev/a rw\n2 1 0:10 / {} rw - nfs4 server:/ rw\n"


class Looks:
    """Looks at descriptors of one process, below a doctored /proc."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.folders = FolderLooks(str(proc))

    def note(
        self, *files: tuple[str, str], has_pipe: bool = True, flags: str = "0100000"
    ) -> None:
        noted = {"0": "pipe:[3]"} if has_pipe else {}
        for number, (path, position) in enumerate(files, start=3):
            info = self.proc / "7/fdinfo" / str(number)
            info.parent.mkdir(parents=True, exist_ok=True)
            info.write_text(f"pos:\t{position}\nflags:\t{flags}\nmnt_id:\t30\n")
            noted[str(number)] = path
        self.folders.note(7, noted)

    @property
    def folder(self) -> str | None:
        return self.folders.add_to(CALLS).folder


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.chdir(tmp_path)
    return Looks(tmp_path)


@pytest.mark.parametrize(
    ("positions", "has_pipe", "is_read"),
    [
        (("0", "100", "200"), True, True),
        # opened once, and then only mapped: the calls may be those of the pipe
        (("0", "0", "0"), True, False),
        # read at an offset, which moves nothing, but nothing else can be read
        (("0", "0", "0"), False, True),
    ],
)
def test_a_file_is_read_that_moves_or_is_the_only_one(
    looks: Looks, positions: Sequence[str], *, has_pipe: bool, is_read: bool
) -> None:
    for position in positions:
        looks.note(("/srv/data/big", position), has_pipe=has_pipe)

    assert looks.folder == ("/srv/data/" if is_read else None)


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("/srv/out.txt", "0100001"),  # O_WRONLY
        ("/srv/folder", "0300000"),  # O_DIRECTORY
        ("/proc/7/stat", "0100000"),
        ("/srv/lib/module.pyc", "0100000"),
        ("/srv/gone (deleted)", "0100000"),
        ("/srv/\udcff/data", "0100000"),  # no Unicode, so no record can hold it
    ],
)
def test_output_programs_and_odd_names_are_no_data(
    looks: Looks, path: str, flags: str
) -> None:
    for position in ("1", "2", "3"):
        looks.note((path, position), flags=flags)

    assert looks.folder is None


def test_a_folder_is_named_as_it_is_staged(looks: Looks, tmp_path: Path) -> None:
    for number in range(4):
        looks.note((f"{tmp_path}/data/{number}/a.txt", "0"))

    assert looks.folder == "data/"


@pytest.mark.parametrize(("kind", "is_shared"), [(b"nfs4", True), (b"ext4", False)])
def test_the_mount_of_the_folder_is_named(
    looks: Looks, tmp_path: Path, kind: bytes, *, is_shared: bool
) -> None:
    (tmp_path / "self").mkdir()
    text = MOUNTS.replace(b"{}", os.fsencode(tmp_path)).replace(b"nfs4", kind)
    (tmp_path / "self/mountinfo").write_bytes(text)
    for position in ("1", "2"):
        looks.note((f"{tmp_path}/big.bin", position))

    calls = looks.folders.add_to(CALLS)

    assert calls.mount == str(tmp_path)
    assert (calls.file_system, calls.is_shared) == (kind.decode(), is_shared)


@pytest.mark.parametrize(
    ("changed", "is_harm"),
    [
        ({}, True),
        ({"minutes": 600.0}, False),
        ({"is_shared": False}, False),
        ({"is_shared": None}, False),
        ({"folder": None}, False),
        ({"reads": 9000}, False),
        ({"read": 30_000 * 8192}, False),  # as Python's buffered files read
        ({"read": 30_000 * 8192, "files": 9}, True),  # of many small files
        ({"read": 30_000 << 17, "files": 9}, False),
    ],
)
def test_only_many_small_reads_over_a_network_do_harm(
    changed: dict[str, Any], *, is_harm: bool
) -> None:
    figures: dict[str, Any] = {"folder": "my data/", "files": 1, "mount": "/home"}
    changed = figures | {"is_shared": True, "file_system": "nfs"} | changed
    seconds = 60 * changed.pop("minutes", 1.5)
    calls = replace(CALLS, **changed)
    words = list(small_read_words(Usage(wall_time=seconds, file_calls=calls)))

    harm = "20,000 small reads a minute on /home (nfs): use --stage-in 'my data/'"
    assert words == ([harm] if is_harm else [])
