"""``weigh logs``: its options, and printing or following the log files."""

import os
import sys
import time
from collections import deque
from typing import Any

import click

from weigh.cli import options
from weigh.flow.follow.logs import JobOutputFinder, LogFile, LogListing
from weigh.flow.here import here_now
from weigh.regular_file import only_regular
from weigh.render.printable import indented_json, printable_text

_PAUSE = 0.5  # seconds between two looks at the files
_SHARE = 20  # pauses between two listings of the files, each as long as the last took
_PIECE = 1 << 16  # bytes that are read of a file before the next one has its turn
_LAST = 10  # lines of each of several files
_FAILED = "failed"  # in place of a task's number
_MOST_FILES = 20  # files that are shown; an array can have thousands


class TaskNumber(options.BoundedCount):
    """A task's number, or the word for all that failed."""

    def convert(  # type: ignore[override]
        self,
        value: Any,  # noqa: ANN401 - click's own
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> int | str:
        """Return the number, or ``failed``."""
        return _FAILED if value == _FAILED else super().convert(value, param, ctx)


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", shell_complete=options.jobs)
@click.argument("task", metavar="[TASK|failed]", type=TaskNumber(), required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the files grow.")
@options.limit(
    "Show the last N lines of each file.  [default: all of one file, 10 of several]"
)
@options.as_json("Print where the files are, as one JSON document.")
def logs(
    name: str,
    task: int | str | None,
    *,
    follow: bool,
    limit: int | None,
    as_json: bool,
) -> int:
    """Show the output of a job's tasks, of one of them, or of those that failed.

    JOB is a job's id, a plan's name or directory, or `last`; TASK is the number of a
    task as `weigh status` shows it, also written as 481516_58. Of many tasks those are
    shown that printed last.

    \b
    weigh logs 481516
    weigh logs 481516 58
    weigh logs -f last
    weigh logs ppo-sweep failed
    """  # noqa: D301 - click reads \b as: keep these lines
    number = task if isinstance(task, int) else None
    finder = JobOutputFinder(here_now(), name, number, failed=task == _FAILED)
    listing = finder.look()
    files = listing.files
    if not files:
        options.warn_on_stderr("nothing has been printed yet")
    if as_json:
        found = [{"title": one.title, "path": one.to_show()} for one in files]
        click.echo(indented_json({"schema": "weigh.logs/1", "files": found}))
        return 0
    if len(files) > _MOST_FILES and not follow:
        options.warn_on_stderr(
            f"{_MOST_FILES} of {len(files):,} tasks, those that printed last "
            f"(weigh logs {name} TASK)"
        )
        files = tuple(sorted(files, key=_last_change)[-_MOST_FILES:])
    # 0 lines cannot be requested, so "or" serves as the default
    most = limit or (_LAST if len(files) > 1 else None)

    ends = {}
    for one in files:
        # a file to follow that is not there yet comes later, and begins at 0
        path = _path_to_follow(one) if follow else one.to_show()
        end = _show(path, most, title=one.title if len(files) > 1 else None)
        if end is not None:
            ends[path] = end
    if follow:
        _FollowedOutput(finder, listing, ends).print_all()
    return 0


def _last_change(one: LogFile) -> float:
    try:
        return os.stat(one.to_show()).st_mtime
    except OSError:
        return 0.0


def _show(path: str, most: int | None, *, title: str | None) -> int | None:
    """Print a file, or its last lines; return the offset reached, None if none is."""
    try:
        with open(path, "rb", opener=only_regular) as file:
            # a deque of a fixed length keeps the last lines while the file is read once
            whole = file if most is None else deque(file, most)
            if title is not None:
                _write_log_bytes(
                    f"==> {printable_text(title)}: {printable_text(path)}\n".encode()
                )
            for line in whole:
                _write_log_bytes(line)
            return file.seek(0, os.SEEK_CUR)
    except FileNotFoundError:
        return None


def _path_to_follow(log_file: LogFile) -> str:
    # a task that has printed nothing yet may still print
    return log_file.to_show() if log_file.is_over else log_file.path


class _FollowedOutput:
    """Prints what is appended to a job's output, until nothing more will be."""

    def __init__(
        self, finder: JobOutputFinder, listing: LogListing, ends: dict[str, int]
    ) -> None:
        self._finder, self._listing = finder, listing
        self._ends = ends  # the offset that was reached, by path
        self._titles: dict[str, str] = {}
        # nothing more of these is printed: attempts before the first look, and files
        # that were read to their end
        self._done = {path for one in listing.files for path in one.earlier}
        self._last: str | None = None

    def print_all(self) -> None:
        """Print until all tasks have ended."""
        look_at = 0.0
        while True:
            begun = time.monotonic()
            if begun >= look_at:
                # before the reading: what a task writes just before its end is read
                # after it
                self._listing = self._finder.look()
                now = time.monotonic()
                look_at = now + max(_PAUSE, _SHARE * (now - begun))
            is_behind = self._print_added()
            if self._listing.is_over and not is_behind:
                return
            # a file that filled its piece has more, so no pause
            if not is_behind:
                time.sleep(_PAUSE)

    def _print_added(self) -> bool:
        """Print a piece of each file; return whether one has more."""
        over = set()
        for one in self._listing.files:
            path = _path_to_follow(one)
            for each in (*one.earlier, path):
                self._titles[each] = one.title
            # an attempt is over where the next one has begun
            over |= {*one.earlier, *([path] if one.is_over else [])}
        is_behind = False
        for path in [*self._titles]:
            if path in self._done:
                continue
            added = _added(path, self._ends.get(path, 0))
            if added:
                self._print_piece(path, added)
            if len(added) == _PIECE:
                is_behind = True
            elif path in over:
                self._done.add(path)
        return is_behind

    def _print_piece(self, path: str, added: bytes) -> None:
        self._ends[path] = self._ends.get(path, 0) + len(added)
        # a title where the file changes, as tail -f prints it
        if self._last != path and len(self._ends) > 1:
            title = printable_text(self._titles[path])
            _write_log_bytes(f"==> {title}\n".encode())
        self._last = path
        _write_log_bytes(added)


def _added(path: str, begin: int) -> bytes:
    try:
        # opened for one piece only: a job can have more files than descriptors
        with open(path, "rb", opener=only_regular) as file:
            file.seek(begin)
            return file.read(_PIECE)
    except FileNotFoundError:
        return b""


def _write_log_bytes(text: bytes) -> None:
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
