"""TMPDIR may be missing, a file, or another machine's: nothing depends on it."""

import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from called_weigh import called_apart
from processes import Weigh, job_of

from weigh.project_folders import remove_abandoned
from weigh.store.index import read_index, read_record

UNUSABLE: dict[str, Callable[[Path], object]] = {
    "missing": lambda _: None,
    "a file": Path.touch,
    "dangling": lambda place: place.symlink_to("/nonexistent/folder"),
    "a loop": lambda place: place.symlink_to(place),
    "read-only": lambda place: place.symlink_to("/proc/1"),
}


@pytest.mark.few(7)  # each of them
@pytest.mark.parametrize("what", UNUSABLE)
@pytest.mark.parametrize("verb", [("run", "-q", "--", "sh", "tasks.txt"), ("exec",)])
def test_an_unusable_tmpdir_stops_no_task(
    tmp_path: Path, what: str, verb: tuple[str, ...]
) -> None:
    UNUSABLE[what](tmp_path / "place")
    (tmp_path / "tasks.txt").write_text("echo a >> ran\necho b >> ran\necho c >> ran\n")
    words = verb if verb[0] == "run" else (*verb, "tasks.txt")

    done = called_apart(tmp_path, *words, TMPDIR=str(tmp_path / "place"))

    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "ran").read_text().split()) == ["a", "b", "c"]


@pytest.mark.parametrize("verb", ["run", "exec"])
def test_what_a_run_left_that_was_killed_at_once_goes_with_a_later_one(
    weigh: Weigh, tmp_path: Path, verb: str
) -> None:
    """No record has its name: it had no time to write one."""
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "tasks.txt").write_text("sleep 60\n")
    temporary = {"TMPDIR": str(place)}
    words = {"run": ("--", "sleep", "60"), "exec": (str(tmp_path / "tasks.txt"),)}
    started = weigh.start(verb, "-q", *words[verb], env=weigh.env(**temporary))
    job = job_of(started.pid, "sleep")
    later = partial(called_apart, tmp_path, "run", "-q", "--", "true", **temporary)

    two_minutes_ago = (time.time() - 120,) * 2
    for path in place.iterdir():
        os.utime(path, two_minutes_ago)
    assert later().returncode == 0
    assert [*place.iterdir()]  # it runs, however old that is

    os.kill(started.pid, signal.SIGKILL)
    os.kill(job, signal.SIGKILL)
    started.wait()
    assert later().returncode == 0
    assert not [*place.iterdir()]


@pytest.mark.parametrize("verb", [("run", "-q", "--", "sh"), ("exec", "--jobs=1")])
def test_a_job_that_empties_tmpdir_keeps_its_regions(
    tmp_path: Path, verb: tuple[str, ...]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    program = "import weigh\nwith weigh.phase('load'): pass\n"
    (tmp_path / "measured.py").write_text(program)
    line = f'{sys.executable} measured.py; rm -rf "$TMPDIR"/*\n'
    (tmp_path / "tasks.txt").write_text(line * 2)
    done = called_apart(tmp_path, *verb, "tasks.txt", TMPDIR=str(place))
    assert (done.returncode, "load" in done.stderr) == (0, False)
    records = map(read_record, read_index(str(tmp_path / "store")).entries)
    calls = [sum(phase.calls for phase in record.phases) for record in records]
    assert calls == {"run": [2], "exec": [1, 1]}[verb[0]]
    assert not [*place.iterdir()]


def test_what_somebody_else_left_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".weigh-exec-0123"
    folder.mkdir()
    (folder / "1.events").touch()
    os.utime(folder, (0, 0))
    somebody = os.getuid() + 1

    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: somebody)
        remove_abandoned(str(tmp_path))
    assert [*folder.iterdir()]

    remove_abandoned(str(tmp_path))
    assert not folder.exists()
