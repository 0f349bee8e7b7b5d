"""``weigh logs``: its options, and printing or following the log files."""

import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from weigh.cli import options
from weigh.flow.follow.logs import LogFile, log_files_of_job
from weigh.flow.here import here_now
from weigh.regular_file import only_regular
from weigh.render.printable import indented_json, printable_text

_PAUSE = 0.5  # seconds between two looks at the files
_PIECE = 1 << 16  # bytes that are read of a file before the next one has its turn
_LAST = 10  # lines of each of several files
_FAILED = "failed"  # in place of a task's number
_MOST_FILES = 20  # files that are shown; an array can have thousands


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; click's names are those of the fields."""

    follow: bool
    limit: int | None
    as_json: bool


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


@click.command(context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB", shell_complete=options.jobs)
@click.argument("task", metavar="[TASK|failed]", type=TaskNumber(), required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the files grow.")
@options.limit(
    "Show the last N lines of each file.  [default: all of one file, 10 of several]"
)
@options.as_json("Print where the files are, as one JSON document.")
def logs(name: str, task: int | str | None, **words: int | bool | None) -> int:
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
    chosen = LogOptions(**words)  # type: ignore[arg-type]
    number = task if isinstance(task, int) else None
    files = log_files_of_job(here_now(), name, number, failed=task == _FAILED)
    if not files:
        click.echo("weigh: nothing has been printed yet", err=True)
    if chosen.as_json:
        found = [{"title": one.title, "path": one.to_show()} for one in files]
        click.echo(indented_json({"schema": "weigh.logs/1", "files": found}))
        return 0
    if len(files) > _MOST_FILES and not chosen.follow:
        click.echo(
            f"weigh: {_MOST_FILES} of {len(files):,} tasks, those that printed last "
            f"(weigh logs {name} TASK)",
            err=True,
        )
        files = tuple(sorted(files, key=_last_change)[-_MOST_FILES:])
    # 0 lines cannot be requested, so "or" serves as the default
    most = chosen.limit or (_LAST if len(files) > 1 else None)

    # a file to follow that is not there yet comes later, and begins at 0
    ends = [
        _show(
            one.path if chosen.follow else one.to_show(),
            most,
            title=one.title if len(files) > 1 else None,
        )
        for one in files
    ]
    if chosen.follow:
        _follow(files, ends)
    return 0


def _last_change(one: LogFile) -> float:
    try:
        return os.stat(one.to_show()).st_mtime
    except OSError:
        return 0.0


def _show(path: str, most: int | None, *, title: str | None) -> int:
    """Print a file, or its last lines; return the offset that was reached."""
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
        return 0


def _follow(files: Sequence[LogFile], ends: list[int]) -> None:
    """Print what is appended, until all elements have ended."""
    last = None
    while True:
        # before the reading: what an element writes just before its end is read after
        # it
        over = all(one.is_over() for one in files)
        is_behind = False
        for place, one in enumerate(files):
            added = _added(one.to_show() if over else one.path, ends[place])
            is_behind |= len(added) == _PIECE
            ends[place] += len(added)
            # a title where the file changes, as tail -f prints it
            if added and last != place and len(files) > 1:
                _write_log_bytes(f"==> {printable_text(one.title)}\n".encode())
                last = place
            _write_log_bytes(added)
        if over and not is_behind:
            return
        # a file that filled its piece has more, so no pause
        if not is_behind:
            time.sleep(_PAUSE)


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
