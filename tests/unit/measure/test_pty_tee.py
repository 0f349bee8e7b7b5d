"""The copier between a job and its terminal or pipe, and what weigh gets of it."""

import errno
import os
import signal
import threading
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weigh.measure.pty_tee import PtyTee


class Job:
    """A writer behind a copier, and a reader that takes all that arrives."""

    def __init__(self) -> None:
        self._out, target = inheritable_pipe()
        self.tee = PtyTee((target,))
        # what the job has in the place of its descriptor, as its first process does
        path = self.tee.streams[target].lstrip("<>")
        self.writer = os.open(path, os.O_WRONLY | os.O_NOCTTY)
        self.tee.launched()
        os.close(target)
        self._arrived: list[bytes] = []
        self._reader = threading.Thread(target=self._drain, daemon=True)
        self._reader.start()

    def _drain(self) -> None:
        while chunk := os.read(self._out, 1 << 16):
            self._arrived.append(chunk)

    def finish(self, late: bytes = b"") -> tuple[bytes, bytes]:
        """Return what arrived and what weigh heard.

        The job ends at once, or writes *late* when what it wrote before was heard.
        """
        heard: list[bytes] = []
        (passage,) = self.tee.passages
        ends = [self.writer]

        def read() -> bool:
            has_found = passage.look(heard.append)
            if ends and (heard or not late):
                os.write(ends[0], late)
                os.close(ends.pop())
            return has_found

        if not late:
            read()
        self.tee.finish(read)
        self._reader.join(10)
        os.close(self._out)
        return b"".join(self._arrived), b"".join(heard)


def inheritable_pipe() -> tuple[int, int]:
    """Return a pipe whose end to write to is as a shell passes it on."""
    out, target = os.pipe()
    os.set_inheritable(target, True)
    return out, target


@settings(max_examples=20)
@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=8))
def test_every_byte_arrives_and_is_read(pieces: list[bytes]) -> None:
    job = Job()
    for piece in pieces:
        os.write(job.writer, piece)
    arrived, heard = job.finish()
    assert arrived == b"".join(pieces)
    assert heard == arrived


def test_what_comes_while_weigh_waits_for_the_end_is_read_too() -> None:
    job = Job()
    os.write(job.writer, b"one\n")
    assert job.finish(late=b"two\n") == (b"one\ntwo\n", b"one\ntwo\n")


def test_of_a_flood_all_arrives_and_what_weigh_leaves_out_tears_no_line() -> None:
    job = Job()
    whole = [b"step %d of 300000" % step for step in range(300_000)]
    every, heard = b"\n".join(whole) + b"\n", list[bytes]()
    lines = memoryview(every)
    for turn in count(1):
        lines = lines[os.write(job.writer, lines[:64_000]) :]
        # less often than its pipe is full
        if turn % 40 == 0:
            job.tee.passages[0].look(heard.append)
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
    ends = inheritable_pipe()
    pipes = [os.pipe(), os.pipe()]

    def pipe() -> tuple[int, int]:
        if not pipes:
            raise OSError(errno.EMFILE, "Too many open files")
        return pipes.pop()

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    monkeypatch.setattr(os, "pipe", pipe)
    with pytest.raises(OSError, match="Too many"):
        PtyTee(ends[1:])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    for fd in ends:
        os.close(fd)


def test_two_descriptors_of_one_pipe_share_a_passage_and_a_file_has_none(
    tmp_path: Path,
) -> None:
    out, target = inheritable_pipe()
    again, file = os.dup(target), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    for fd in (again, file):
        os.set_inheritable(fd, True)
    tee = PtyTee((target, again, file))
    assert tee.streams == {target: tee.streams[target], again: tee.streams[target]}
    (passage,) = tee.passages
    tee.finish(lambda: passage.look(lambda _chunk: None))
    assert PtyTee((file,)).pid is None
    for fd in (out, target, again, file):
        os.close(fd)
