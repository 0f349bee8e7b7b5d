"""The journal of a run: what it writes, what it refuses, and what it knows again."""

import errno
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_programs import room_for

from weigh.errors import FormatError, StoreError, UsageError, WeighError
from weigh.joblog import HEADER, JoblogEntry
from weigh.model.mask import SecretMask
from weigh.runner.events import AttemptEnded, RunOpened
from weigh.runner.journal import (
    DONE,
    FAILED,
    WAITING,
    RunJournal,
    match_ends_to_tasks,
    settle_by,
)
from weigh.runner.owned_file import JoblogHolder
from weigh.runner.task_source import TaskSource
from weigh.store.identity import process_identity, this_machine

ME = JoblogHolder(this_machine(), process_identity(os.getpid()))
LINE = "{}\t:\t1.000\t     1.000\t0\t0\t{}\t0\t{}\n"
Open = Callable[..., RunJournal]
Tasks = Callable[..., TaskSource]


@pytest.fixture
def open_journal(tmp_path: Path) -> Iterator[Open]:
    """Open the journal of ``log`` anew; the one before is closed."""
    opened: list[RunJournal] = []

    def again(**options: Any) -> RunJournal:
        if opened:
            opened.pop().close()
        opened.append(RunJournal(str(tmp_path / "log"), ME, **options))
        return opened[-1]

    yield again
    for journal in opened:
        journal.close()


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


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[Tasks]:
    """Write a task file, and open it; it is closed at the end."""
    opened: list[TaskSource] = []

    def written(*lines: str) -> TaskSource:
        path = tmp_path / "tasks.txt"
        path.write_text("".join(f"{line}\n" for line in lines))
        opened.append(TaskSource(str(path)))
        return opened[-1]

    yield written
    for source in opened:
        source.close()


def test_each_end_is_a_line_below_the_header(
    open_journal: Open, tmp_path: Path
) -> None:
    journal = open_journal()
    assert journal.append_end(entry(1)) is None
    assert journal.append_end(entry(2, "echo a", exit_code=3)) is None
    expected = f"{HEADER}\n" + LINE.format(1, 0, "true") + LINE.format(2, 3, "echo a")
    assert (tmp_path / "log").read_text() == expected
    assert (journal.trouble(), journal.unwritten) == (None, [])


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
    open_journal: Open, tmp_path: Path, tamper: str
) -> None:
    journal, path = open_journal(), tmp_path / "log"
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
def test_events_that_others_took_are_named(open_journal: Open, tamper: str) -> None:
    journal = open_journal()
    REMOVALS[tamper](Path(journal.events_path))
    trouble = journal.trouble()
    assert trouble is not None
    assert trouble.startswith(f"{journal.events_path} was removed or overwritten")


def test_what_could_not_be_written_is_written_once_the_joblog_is_back(
    open_journal: Open, tmp_path: Path
) -> None:
    journal, path = open_journal(), tmp_path / "log"
    path.rename(tmp_path / "moved")
    journal.append_end(entry(1))
    assert journal.append_end(entry(2)) is not None
    (tmp_path / "moved").rename(path)
    assert journal.try_again() is None
    assert journal.trouble() is None
    assert [line[:1] for line in path.read_text().splitlines()[1:]] == ["1", "2"]


def test_a_line_that_a_full_disk_cut_is_taken_back_and_written_once_there_is_room(
    open_journal: Open, tmp_path: Path
) -> None:
    journal, path = open_journal(), tmp_path / "log"
    journal.append_end(entry(1))
    before = path.read_bytes()
    with room_for(len(before) + 10):
        trouble = journal.append_end(entry(2))
    assert trouble == f"cannot write {path}: No space left on device"
    assert path.read_bytes() == before
    assert [one.seq for one in journal.unwritten] == [2]
    assert journal.append_end(entry(3)) is None
    assert path.read_text().endswith(
        LINE.format(2, 0, "true") + LINE.format(3, 0, "true")
    )
    assert journal.unwritten == []


def test_events_that_a_full_disk_refused_are_written_once_there_is_room(
    open_journal: Open,
) -> None:
    journal = open_journal()
    with room_for(10):
        journal.append_events(_ended(1, 5.0))
    assert journal.trouble() == (
        f"cannot write {journal.events_path}: No space left on device"
    )
    journal.keep()
    assert journal.trouble() is None
    (whole,) = Path(journal.events_path).read_text().splitlines()
    assert whole.startswith('{"event":"ended","seq":1')


def test_what_was_written_is_flushed_to_the_disk_once(
    open_journal: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, flushed = open_journal(), list[int]()
    monkeypatch.setattr("os.fsync", flushed.append)
    for _ in range(2):
        journal.append_end(entry(1))
        journal.sync()
        journal.keep()
    assert len(flushed) == 2


def test_lines_that_others_append_stay(open_journal: Open, tmp_path: Path) -> None:
    journal, path = open_journal(), tmp_path / "log"
    journal.append_end(entry(1))
    with path.open("a") as file:
        file.write(LINE.format(9, 0, "by hand"))
    assert journal.trouble() is None
    for seq in (2, 3):
        assert journal.append_end(entry(seq)) is None
    assert [line[:1] for line in path.read_text().splitlines()[1:]] == list("1923")


def test_a_lock_shows_a_sign_of_life_seldom_and_is_made_again_where_it_was_removed(
    open_journal: Open, tmp_path: Path
) -> None:
    journal, lock = open_journal(), tmp_path / "log.lock"
    for turn in (1, 2):
        os.utime(lock, (0, 0))
        journal.keep()
        assert (lock.stat().st_mtime == 0) == (turn == 2)
    before = lock.read_bytes()
    lock.unlink()
    journal.keep()
    assert lock.read_bytes() == before
    assert journal.trouble() is None
    lock.unlink()
    lock.write_bytes(before.replace(b'"pid":', b'"pid":1'))
    journal.keep()
    assert f"another weigh exec is running on {tmp_path / 'log'}: process 1" in str(
        journal.trouble()
    )


# between two runs


def test_a_line_cut_anywhere_is_cut_off_and_loses_no_other(
    open_journal: Open, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    first = f"{HEADER}\n" + LINE.format(1, 0, "true")
    second = LINE.format(2, 0, "a\ttab and more")
    for size in range(len(second)):
        path.write_text(first + second[:size])
        open_journal().append_end(entry(3))
        assert path.read_text() == first + LINE.format(3, 0, "true"), size


@pytest.mark.parametrize("size", [0, 1, len(HEADER), len(HEADER) + 1])
def test_a_header_cut_anywhere_is_written_anew(
    open_journal: Open, tmp_path: Path, size: int
) -> None:
    (tmp_path / "log").write_text(f"{HEADER}\n"[:size])
    open_journal()
    assert (tmp_path / "log").read_text() == f"{HEADER}\n"


def test_an_event_that_was_cut_swallows_none_after_it(
    open_journal: Open, tmp_path: Path
) -> None:
    (tmp_path / "log.events.jsonl").write_text('{"event":"st')
    journal = open_journal()
    journal.append_events(_ended(1, 5.0))
    torn, whole = (tmp_path / "log.events.jsonl").read_text().splitlines()
    assert torn == '{"event":"st'
    assert whole.startswith('{"event":"ended","seq":1')


@pytest.mark.parametrize("resume", [True, False])
@pytest.mark.parametrize("made", ["notes\n", f"{HEADER}x\n", "\0", os.mkfifo, os.mkdir])
def test_what_is_no_joblog_stays_as_it_is(
    open_journal: Open, tmp_path: Path, made: Any, *, resume: bool
) -> None:
    path = tmp_path / "log"
    path.write_text(made) if isinstance(made, str) else made(path)
    with pytest.raises(WeighError, match=r"log(: Is a directory| is not a )"):
        open_journal(resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert not path.is_file() or path.read_text() == made


def test_begun_anew_the_old_joblog_is_put_aside(
    open_journal: Open, tmp_path: Path
) -> None:
    open_journal().append_end(entry(1))
    old = (tmp_path / "log").read_bytes()
    journal = open_journal(resume=False)
    assert journal.append_end(entry(2)) is None
    assert (tmp_path / "log.old").read_bytes() == old
    assert (tmp_path / "log").read_text() == f"{HEADER}\n" + LINE.format(2, 0, "true")


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=os.strerror(errno.ENOENT)):
        RunJournal(str(tmp_path / "none/log"), ME)


def _ended(seq: int, time: float) -> AttemptEnded:
    return AttemptEnded(seq, 1, time, "COMPLETED", 0, None, record="x")


def test_what_earlier_runs_settled_is_read_with_its_events(
    open_journal: Open, tasks: Tasks
) -> None:
    journal, source = open_journal(), tasks("a", "b", "c")
    journal.append_events(_ended(1, 1.0), _ended(2, 2.0))
    journal.append_end(entry(1, "a"))
    journal.append_end(entry(2, "b", exit_code=1))
    settled, past = journal.read_past(source)
    assert list(settled.states) == [DONE, FAILED, WAITING]
    assert (settled.done, settled.failed, settled.known) == (1, 1, 2)
    # those that are done may not run again: nothing of them is kept
    assert list(past.ended) == [2]


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
    open_journal: Open,
    tasks: Tasks,
    in_joblog: tuple[int, ...],
    ends: tuple[float, float],
    lost: str | None,
) -> None:
    journal, source = open_journal(), tasks("a", "b")
    journal.append_events(*(_ended(at + 1, time) for at, time in enumerate(ends)))
    for seq in in_joblog:
        journal.append_end(entry(seq, "ab"[seq - 1]))
    if lost is None:
        assert journal.read_past(source)[0].done == len(in_joblog)
    else:
        with pytest.raises(UsageError, match=f"has no line of {lost}"):
            journal.read_past(source)


def test_an_end_of_a_task_that_the_file_lacks_now_stops_nothing(
    open_journal: Open, tasks: Tasks
) -> None:
    journal, source = open_journal(), tasks("a", "b")
    journal.append_events(_ended(3, 10.0))
    assert list(journal.read_past(source)[0].states) == [WAITING, WAITING]


def test_a_run_afresh_makes_earlier_ends_no_matter(
    open_journal: Open, tasks: Tasks
) -> None:
    source = tasks("a", "b")
    open_journal().append_events(_ended(1, 10.0))
    settled, _ = open_journal(resume=False).read_past(source)
    assert list(settled.states) == [WAITING, WAITING]
    journal = open_journal()
    opened = RunOpened(
        "r", 15.0, ME.machine, ME.process, "tasks.txt", 2, "0", afresh=True
    )
    journal.append_events(opened, _ended(2, 20.0))
    journal.append_end(entry(2, "b"))
    settled, past = journal.read_past(source)
    assert list(settled.states) == [WAITING, DONE]
    assert past.ended == {}


def test_the_joblog_of_another_task_file_is_refused(
    open_journal: Open, tasks: Tasks, tmp_path: Path
) -> None:
    open_journal().append_end(entry(1, "other"))
    source = tasks("a")
    with pytest.raises(FormatError, match=r"none of its 1 lines is about a task"):
        settle_by(str(tmp_path / "log"), source)
    # one known line is enough: the file was edited
    source = tasks("a", "other")
    settled = settle_by(str(tmp_path / "log"), source)
    assert list(settled.states) == [WAITING, DONE]
    assert (settled.moved, settled.strange) == (1, 0)


def test_tasks_that_differ_in_a_secret_alone_stay_two_without_it(
    open_journal: Open, tasks: Tasks, tmp_path: Path
) -> None:
    lines = [f"train --password=number-{n} x" for n in (1, 2)]
    journal, source = open_journal(), tasks(*lines)
    journal.append_end(entry(1, lines[0]))
    written = (tmp_path / "log").read_text()
    assert re.search(r"-[0-9a-f]{10} x$", written), written  # as earlier joblogs
    assert "number-1" not in written
    assert list(settle_by(str(tmp_path / "log"), source).states) == [DONE, WAITING]
    source = tasks(*reversed(lines))
    assert list(settle_by(str(tmp_path / "log"), source).states) == [WAITING, DONE]
    assert (tmp_path / "log.key").stat().st_mode & 0o077 == 0


def test_a_joblog_that_has_its_secrets_or_lost_its_key_is_known_again(
    open_journal: Open, tasks: Tasks, tmp_path: Path
) -> None:
    line = "train --password=number-1 x"
    journal, source = open_journal(), tasks(line, "train 2")
    journal.append_end(entry(1, line))
    (tmp_path / "log.key").unlink()
    assert list(settle_by(str(tmp_path / "log"), source).states) == [DONE, WAITING]
    # as it was written while nothing was hidden
    (tmp_path / "log").write_text(f"{HEADER}\n" + LINE.format(1, 0, line))
    assert list(settle_by(str(tmp_path / "log"), source).states) == [DONE, WAITING]


def test_events_that_are_gone_before_they_are_read_stop_the_run(
    open_journal: Open, tasks: Tasks
) -> None:
    journal, source = open_journal(), tasks("a")
    os.unlink(journal.events_path)
    with pytest.raises(StoreError, match="cannot read"):
        journal.read_past(source)


def test_tasks_that_differ_in_what_a_users_pattern_hides_stay_two(
    open_journal: Open, tasks: Tasks, tmp_path: Path
) -> None:
    mask = SecretMask(patterns=(r"word-(\w+)",))
    journal, source = open_journal(mask=mask), tasks("say word-a", "say word-b")
    journal.append_end(entry(1, "say word-a"))
    assert "word-a" not in (tmp_path / "log").read_text()
    settled = settle_by(str(tmp_path / "log"), source, mask)
    assert (list(settled.states), settled.known) == ([DONE, WAITING], 1)


# which tasks the ends are about


@pytest.mark.parametrize(
    ("keys", "ends", "states"),
    [
        # by number and text; the last end counts; another text is another task
        ([11, 22, 33], [(1, True, 11), (3, False, 33)], [DONE, WAITING, FAILED]),
        ([11], [(1, False, 11), (1, True, 11)], [DONE]),
        ([12], [(1, True, 11)], [WAITING]),
        # done under another number meanwhile: a line stood before it
        ([11, 22], [(1, True, 11), (2, False, 22), (3, True, 22)], [DONE, DONE]),
        # of equal lines as many are done as succeeded
        ([11, 11], [(1, False, 11), (2, True, 11), (3, True, 11)], [DONE, DONE]),
    ],
)
def test_ends_settle_the_tasks_that_they_are_about(
    keys: list[int], ends: list[tuple[int, bool, int]], states: list[int]
) -> None:
    assert list(match_ends_to_tasks(keys, ends).states) == states


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
