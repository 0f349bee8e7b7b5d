"""The journal of a run: what it writes, what it refuses, and what it knows again."""

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.errors import StoreError, UsageError, WeighError
from weigh.joblog import HEADER, JoblogEntry
from weigh.runner.events import AttemptEnded, RunOpened
from weigh.runner.journal import (
    WAITING,
    RunJournal,
    match_ends_to_tasks,
)
from weigh.runner.owned_file import JoblogHolder
from weigh.runner.task_source import TaskSource
from weigh.store.identity import process_identity, this_machine

ME = JoblogHolder(this_machine(), process_identity(os.getpid()))
LINE = "{}\t:\t1.000\t     1.000\t0\t0\t{}\t0\t{}\n"


class JournalPlace:
    """A folder with the joblog ``log``; its journal is opened anew each time."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        self.log = folder / "log"
        self._opened = opened
        self._journal = ExitStack()
        opened.callback(self._journal.close)

    def journal(self, **options: Any) -> RunJournal:
        """Open the journal; the one before is closed."""
        self._journal.close()
        journal = RunJournal(str(self.log), ME, **options)
        self._journal.callback(journal.close)
        return journal

    def tasks(self, *lines: str) -> TaskSource:
        """Write a task file, and open it."""
        path = self.folder / "tasks.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        source = TaskSource(str(path))
        self._opened.callback(source.close)
        return source

    def numbers(self) -> str:
        """Return the numbers of the tasks in the joblog."""
        return "".join(line[:1] for line in self.log.read_text().splitlines()[1:])


@pytest.fixture
def place(tmp_path: Path) -> Iterator[JournalPlace]:
    with ExitStack() as opened:
        yield JournalPlace(tmp_path, opened)


def entry(seq: int, command: str = "true", *, exit_code: int = 0) -> JoblogEntry:
    return JoblogEntry(
        seq=seq,
        host=":",
        started=1.0,
        wall_time=1.0,
        sent=0,
        received=0,
        exit_code=exit_code,
        signal=0,
        command=command,
    )


def ended(seq: int, time: float) -> AttemptEnded:
    return AttemptEnded(seq, 1, time, "COMPLETED", 0, None, record="x")


def opened_afresh(time: float) -> RunOpened:
    return RunOpened("r", time, ME.machine, ME.process, "t", 2, "0", afresh=True)


def test_worked_examples_of_a_journal(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())

    def new_place() -> JournalPlace:
        (folder := next(folders)).mkdir()
        return JournalPlace(folder, opened)

    made = {"entry": entry, "ended": ended, "opened_afresh": opened_afresh}
    names = {"Place": new_place, "LINE": LINE, **made}
    with ExitStack() as opened:
        check_session(Path(__file__).with_name("journal.session"), names)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def made_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


REMOVALS: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "moved away": lambda path: path.rename(path.with_name("moved")),
    "replaced": replaced,
    "made a folder": made_a_folder,
}
TAMPERS: dict[str, Callable[[Path], object]] = {
    **REMOVALS,
    "truncated": lambda path: os.truncate(path, 0),
    "cut by a byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "overwritten": lambda path: path.write_bytes(b"x" * (path.stat().st_size + 5)),
}


@pytest.mark.parametrize("tamper", TAMPERS)
def test_nothing_more_is_written_to_a_joblog_that_others_took(
    place: JournalPlace, tamper: str
) -> None:
    journal, path = place.journal(), place.log
    journal.append_end(entry(1))
    TAMPERS[tamper](path)
    after = path.read_bytes() if path.is_file() else None

    trouble = journal.append_end(entry(2))

    assert trouble is not None
    assert f"{path} was removed or overwritten by another program" in trouble
    assert journal.trouble() == trouble
    assert [one.seq for one in journal.unwritten] == [2]
    assert (path.read_bytes() if path.is_file() else None) == after


@pytest.mark.parametrize("tamper", REMOVALS)
def test_events_that_others_took_are_named(place: JournalPlace, tamper: str) -> None:
    journal = place.journal()
    REMOVALS[tamper](Path(journal.events_path))
    trouble = journal.trouble()
    assert trouble is not None
    assert trouble.startswith(f"{journal.events_path} was removed or overwritten")


def test_what_was_written_is_flushed_to_the_disk_once(
    place: JournalPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, flushed = place.journal(), list[int]()
    monkeypatch.setattr("os.fsync", flushed.append)
    for _ in range(2):
        journal.append_end(entry(1))
        journal.sync()
        journal.keep()
    assert len(flushed) == 2


# between two runs


def test_a_line_cut_anywhere_is_cut_off_and_loses_no_other(
    place: JournalPlace,
) -> None:
    first = f"{HEADER}\n" + LINE.format(1, 0, "true")
    second = LINE.format(2, 0, "a\ttab and more")
    for size in range(len(second)):
        place.log.write_text(first + second[:size])
        place.journal().append_end(entry(3))
        assert place.log.read_text() == first + LINE.format(3, 0, "true"), size


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("made", ["notes\n", f"{HEADER}x\n", "\0", os.mkfifo, os.mkdir])
def test_what_is_no_joblog_stays_as_it_is(
    place: JournalPlace, made: Any, *, resume: bool
) -> None:
    path = place.log
    path.write_text(made) if isinstance(made, str) else made(path)
    with pytest.raises(WeighError, match=r"log(: Is a directory| is not a )"):
        place.journal(resume=resume)
    assert [path.name for path in place.folder.iterdir()] == ["log"]
    assert not path.is_file() or path.read_text() == made


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=os.strerror(errno.ENOENT)):
        RunJournal(str(tmp_path / "none/log"), ME)


@pytest.mark.parametrize(
    ("in_joblog", "ends", "lost"),
    [
        ((), (10.0, 20.0), "2 tasks"),
        ((2,), (10.0, 200.0), "1 task "),  # long before the last end
        ((2,), (150.0, 200.0), None),  # a machine that crashed loses the last minute
        ((1, 2), (10.0, 200.0), None),
    ],
)
def test_an_end_that_only_the_events_know_stops_the_next_run(
    place: JournalPlace,
    in_joblog: tuple[int, ...],
    ends: tuple[float, float],
    lost: str | None,
) -> None:
    journal, source = place.journal(), place.tasks("a", "b")
    journal.append_events(*(ended(at + 1, time) for at, time in enumerate(ends)))
    for seq in in_joblog:
        journal.append_end(entry(seq, "ab"[seq - 1]))
    if lost is None:
        assert journal.read_past(source)[0].done == len(in_joblog)
    else:
        with pytest.raises(UsageError, match=f"has no line of {lost}"):
            journal.read_past(source)


# which tasks the ends are about


@given(
    old=st.lists(st.integers(0, 5), max_size=12),
    seed=st.integers(0, 1000),
)
def test_lines_moved_about_are_all_still_done(old: list[int], seed: int) -> None:
    ends = [(seq, True, key) for seq, key in enumerate(old, 1)]
    moved = old.copy()
    random.Random(seed).shuffle(moved)
    assert match_ends_to_tasks(moved, ends).done == len(old)


@given(
    keys=st.lists(st.integers(0, 3), max_size=8),
    ends=st.lists(st.tuples(st.integers(1, 10), st.booleans(), st.integers(0, 3))),
)
def test_no_more_tasks_are_settled_than_ends_are_known(
    keys: list[int], ends: list[tuple[int, bool, int]]
) -> None:
    settled = match_ends_to_tasks(keys, ends)
    for key in set(keys):
        here = [s for s, k in zip(settled.states, keys, strict=True) if k == key]
        distinct = {seq for seq, _, k in ends if k == key}
        assert sum(state != WAITING for state in here) <= len(distinct)
