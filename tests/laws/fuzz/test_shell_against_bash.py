"""The reader of shell and bash itself see the same redirections in drawn lines."""

import ctypes
import os
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from drawn_shell import DrawnShell
from run_captured import run_captured

from weigh.schedulers.shell import read_body

LINES = 500 if os.environ.get("WEIGH_FUZZ") == "long" else 100
_IN_OPEN = 0x20
_EVENT = struct.Struct("iIII")
_NAMES = re.compile(r"\b(?:in|out)\d+")
_RUN_ALL = """
cat *.sh | bash -n
exec 9>&1 # the reader of this pipe waits for what runs in the background
for folder in */; do
  (cd "$folder" && . ../"${folder%/}.sh") >/dev/null 2>&1 </dev/null
done
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs inotify")


class TracedLine(msgspec.Struct, kw_only=True):
    """A drawn line, and the files of its folder that bash opened as it ran."""

    text: str
    opened: set[str] = set()
    appended: set[str] = set()

    def opened_as(self, *kinds: str) -> set[str]:
        return {name for name in self.opened if name.rstrip("0123456789") in kinds}


class OpenedFiles:
    """Reports which files of some folders were opened; from inotify."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK)
        self._folders: dict[int, Path] = {}

    def watch(self, folder: Path) -> None:
        path = os.fsencode(folder)
        number = self._libc.inotify_add_watch(self._descriptor, path, _IN_OPEN)
        assert number >= 0, os.strerror(ctypes.get_errno())
        self._folders[number] = folder

    def names(self) -> Iterator[tuple[Path, str]]:
        while True:
            try:
                events = os.read(self._descriptor, 1 << 16)
            except BlockingIOError:
                break
            place = 0
            while place < len(events):
                number, _, _, size = _EVENT.unpack_from(events, place)
                place += _EVENT.size
                name = events[place : place + size].rstrip(b"\0").decode()
                place += size
                yield self._folders[number], name
        os.close(self._descriptor)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> list[TracedLine]:
    root, opened = tmp_path_factory.mktemp("lines"), OpenedFiles()
    lines: dict[Path, TracedLine] = {}
    for seed in range(LINES):
        folder, text = root / f"{seed:03}", DrawnShell(seed).line()
        folder.mkdir()
        for name in _NAMES.findall(text):
            (folder / name).write_text("old\n" if name[0] == "o" else "a b\n")
        (root / f"{seed:03}.sh").write_text(text)
        lines[folder] = TracedLine(text=text)
        opened.watch(folder)
    checked = run_captured(["bash", "-c", _RUN_ALL], cwd=root)
    assert not checked.stderr
    for folder, name in opened.names():
        lines[folder].opened.add(name)
    for folder, line in lines.items():
        outputs = line.opened_as("out", "no")
        line.appended = {one for one in outputs if _is_old(folder / one)}
    return list(lines.values())


def _is_old(path: Path) -> bool:
    return path.read_text().startswith("old")


def test_files_are_read_and_written_where_bash_does(traced: list[TracedLine]) -> None:
    for one in traced:
        commands = read_body(one.text).commands
        inputs = {_plain(path) for each in commands for path in each.inputs}
        outputs = {_plain(path) for each in commands for path in each.outputs}
        appended = {_plain(path) for each in commands for path in each.appended}
        assert inputs == one.opened_as("in"), one.text
        assert outputs == one.opened_as("out", "no"), one.text
        assert appended == one.appended, one.text


def _plain(path: str) -> str:
    return path.removeprefix("./")
