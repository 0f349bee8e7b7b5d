"""``weigh logs``: its options, and printing or following the log files."""

import os
import sys
import time
from collections import deque
from collections.abc import Sequence

import click

from weigh.cli import options
from weigh.flow.follow.logs import LogFile
from weigh.flow.follow.logs import logs as logs_flow
from weigh.render.printable import printable

_PAUSE = 0.5
_PIECE = 1 << 16
_LAST = 10


@click.command(context_settings=options.SETTINGS)
@click.argument("name", metavar="JOB[_TASK]", shell_complete=options.jobs)
@click.option("-f", "--follow", is_flag=True, help="Keep printing as the files grow.")
@click.option("--failed", is_flag=True, help="Show the output of failed tasks.")
@click.option(
    "-n",
    "--lines",
    type=options.Count(),
    metavar="N",
    help="Show the last N lines of each file.  [default: all of one file, 10 of "
    "several]",
)
@click.option("--paths", is_flag=True, help="Print only the paths of the files.")
def logs(
    name: str, *, follow: bool, failed: bool, lines: int | None, paths: bool
) -> int:
    """Show the output of a job's elements, or of one of its tasks.

    JOB is a job's id, a plan's name or directory, or `last`; TASK is the number of a
    task as `weigh status` shows it.

    \b
    weigh logs 481516
    weigh logs 481516_58
    weigh logs -f last
    weigh logs --failed ppo-sweep
    """  # noqa: D301 - click reads \b as: keep these lines
    files = logs_flow(name, failed=failed, cwd=os.getcwd(), env=os.environ)
    if not files:
        click.echo("weigh: nothing has been printed yet", err=True)
    if paths:
        for one in files:
            click.echo(printable(one.path))
        return 0
    most = lines or (_LAST if len(files) > 1 else None)
    ends = [_show(one, most, is_titled=len(files) > 1) for one in files]
    if follow:
        _follow(files, ends)
    return 0


def _show(one: LogFile, most: int | None, *, is_titled: bool) -> int:
    """Print a file, or its last lines; return the offset that was reached."""
    try:
        with open(one.path, "rb") as file:
            whole = file if most is None else deque(file, most)
            if is_titled:
                _write(f"==> {printable(one.title)}: {printable(one.path)}\n".encode())
            for line in whole:
                _write(line)
            return file.seek(0, os.SEEK_CUR)
    except FileNotFoundError:
        return 0


def _follow(files: Sequence[LogFile], ends: list[int]) -> None:
    """Print what is appended, until all elements have ended."""
    last = None
    while True:
        over = all(one.is_over() for one in files)
        for place, one in enumerate(files):
            added = _added(one.path, ends[place])
            if added and last != place and len(files) > 1:
                _write(f"==> {printable(one.title)}\n".encode())
                last = place
            _write(added)
            ends[place] += len(added)
        if over:
            return
        time.sleep(_PAUSE)


def _added(path: str, begin: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(begin)
            return file.read(_PIECE)
    except FileNotFoundError:
        return b""


def _write(text: bytes) -> None:
    if text:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()
