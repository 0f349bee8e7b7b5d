"""``weigh logs``: the words of the command line; files shown, or followed."""

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
@click.option("-f", "--follow", is_flag=True, help="Go on as more is written.")
@click.option("--failed", is_flag=True, help="What the tasks that failed printed.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=1),
    metavar="N",
    help="The last N lines of each.  [default: all of one file, 10 of several]",
)
@click.option("--paths", is_flag=True, help="Only say where the files are.")
def logs(
    name: str, *, follow: bool, failed: bool, lines: int | None, paths: bool
) -> int:
    """Show what a job's elements, or one of its tasks, have printed.

    JOB is a job's id, a plan's name or folder, or `last`; TASK the number of a task
    as `weigh status` shows it.

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
    """Print a file, or its last lines; give how far it was read."""
    try:
        with open(one.path, "rb") as file:
            whole = file if most is None else deque(file, most)
            if is_titled:
                _write(f"==> {printable(one.title)}: {printable(one.path)}\n".encode())
            for line in whole:
                _write(line)
            return file.tell()
    except FileNotFoundError:
        return 0


def _follow(files: Sequence[LogFile], ends: list[int]) -> None:
    """Print what is added, until all have ended."""
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
