"""The copier between a job and its terminal or pipe, and what weigh gets of it."""

import errno
import os
import signal
import threading
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weigh.measure.pty_tee import PtyTee


def opened(interposed: PtyTee, fd: int) -> int:
    """Open what the job is to have in the place of *fd*, as its first process does."""
    return os.open(interposed.streams[fd].lstrip("<>"), os.O_WRONLY | os.O_NOCTTY)


def drain(fd: int, into: list[bytes]) -> None:
    while chunk := os.read(fd, 1 << 16):
        into.append(chunk)


class Job:
    """A writer behind a copier, and a reader that takes all that arrives."""

    def __init__(self) -> None:
        self._out, target = os.pipe()
        os.set_inheritable(target, True)  # as a shell gives it
        self.interposed = PtyTee((target,))
        self.writer = opened(self.interposed, target)
        self.interposed.launched()
        os.close(target)
        self._arrived: list[bytes] = []
        self._reader = threading.Thread(
            target=drain, args=(self._out, self._arrived), daemon=True
        )
        self._reader.start()

    def finish(self) -> tuple[bytes, bytes]:
        """Return what arrived and what weigh heard."""
        os.close(self.writer)
        heard: list[bytes] = []
        (passage,) = self.interposed.passages
        self.interposed.finish(lambda: passage.look(heard.append))
        self._reader.join(10)
        os.close(self._out)
        return b"".join(self._arrived), b"".join(heard)


@settings(max_examples=20)
@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=8))
def test_every_byte_arrives_and_is_read(pieces: list[bytes]) -> None:
    job = Job()
    for piece in pieces:
        os.write(job.writer, piece)
    arrived, heard = job.finish()
    assert arrived == b"".join(pieces)
    assert heard == arrived


def test_of_a_flood_all_arrives_and_what_weigh_leaves_out_tears_no_line() -> None:
    job = Job()
    whole = [b"step %d of 500000" % step for step in range(500_000)]
    every, heard = b"\n".join(whole) + b"\n", list[bytes]()
    lines = memoryview(every)
    for turn in count(1):
        lines = lines[os.write(job.writer, lines[:64_000]) :]
        # less often than its pipe is full
        if turn % 40 == 0:
            job.interposed.passages[0].look(heard.append)
        if not lines:
            break
    arrived, rest = job.finish()
    found = [line for line in (b"".join(heard) + rest).split(b"\n") if line]
    torn = sorted(set(found).difference(whole))
    assert arrived == every
    assert 1000 < len(found) < len(whole)  # else nothing was left out
    # of the last line before a gap the end is missing: one a gap, and few gaps
    assert len(torn) < len(found) / 100
    assert all(any(w.startswith(line) for w in whole) for line in torn[:3])


def test_without_a_descriptor_left_no_signal_stays_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, target = os.pipe()
    os.set_inheritable(target, True)
    pipes = [os.pipe(), os.pipe()]

    def pipe() -> tuple[int, int]:
        if not pipes:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipes.pop()

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(OSError, match="Too many"):
        PtyTee((target,))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    for fd in (out, target):
        os.close(fd)


def test_two_descriptors_of_one_pipe_share_a_passage() -> None:
    out, target = os.pipe()
    os.set_inheritable(target, True)
    again = os.dup(target)
    os.set_inheritable(again, True)
    interposed = PtyTee((target, again))
    assert interposed.streams[target] == interposed.streams[again]
    (passage,) = interposed.passages
    interposed.finish(lambda: passage.look(lambda _chunk: None))
    for fd in (out, target, again):
        os.close(fd)


def test_a_file_is_not_interposed(tmp_path: object) -> None:
    fd = os.open(f"{tmp_path}/out", os.O_WRONLY | os.O_CREAT)
    os.set_inheritable(fd, True)
    assert PtyTee((fd,)).pid is None
    os.close(fd)
