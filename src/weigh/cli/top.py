"""``weigh top``: options, the screen, and the list of GPUs."""

import os
import shutil
import sys
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, NoReturn

import click

from weigh.cli import options
from weigh.errors import UsageError
from weigh.flow.records.records import open_store
from weigh.flow.watch.top import TopWatcher
from weigh.lazy_modules import lazy_module
from weigh.probe.driver import visible_gpus
from weigh.render.printable import shortened_text, unguarded_stream

if TYPE_CHECKING:
    from weigh.flow.watch import gpus as watch_gpus
    from weigh.render import columns, gpu_lines, printable, top_screen
else:  # each is imported when it is first used
    watch_gpus = lazy_module("weigh.flow.watch.gpus")
    columns = lazy_module("weigh.render.columns")
    gpu_lines = lazy_module("weigh.render.gpu_lines")
    printable = lazy_module("weigh.render.printable")
    top_screen = lazy_module("weigh.render.top_screen")

_INTERVAL = 1.0  # seconds between two screens, as many as a person can read
_FIRST_INTERVAL = 0.5  # seconds between the two looks that a share of CPU takes
_WIDTH, _HEIGHT = 80, 24  # where no terminal has a size
# control sequences: an empty screen, its first line, the rest of a line, all below
_CLEAR, _HOME, _NEXT, _CLEAR_BELOW = "\x1b[2J", "\x1b[H", "\x1b[K\n", "\x1b[J"


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.option(
    "--gpus", is_flag=True, help="List my GPUs once: memory, load and processes."
)
@options.as_json("With --gpus: print one JSON document.")
def top(*, gpus: bool, as_json: bool) -> int:
    """Watch what `weigh run` runs here, the machine and the GPUs.

    Tasks are not listed: `weigh status` and `weigh report last` show them. Ctrl-C
    quits; the runs continue. If the output is not a terminal, one screen is
    printed. `weigh records show ID` shows all of one run.

    With --gpus my GPUs are listed once, one line each, as CUDA_VISIBLE_DEVICES and
    the scheduler's allocation define them. The number is the driver's, the same as
    in nvidia-smi. Without a GPU nothing is printed, stderr reports the reason, and
    the exit code is 0; it is 125 if the driver is broken.

    \b
    weigh top
    weigh top | head
    weigh top --gpus --json
    """  # noqa: D301 - click reads \b as: keep these lines
    if gpus:
        return _print_gpus(as_json=as_json)
    if as_json:
        raise UsageError("--json needs --gpus")
    store = open_store(os.getcwd(), os.environ)
    with closing(TopWatcher(store, visible_gpus)) as watcher:
        with suppress(AttributeError):  # a label may hold what the terminal cannot
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        # a dumb terminal cannot move its cursor; Windows names none
        can_draw = os.environ.get("TERM", "dumb") != "dumb"
        if can_draw and sys.stdout is not None and sys.stdout.isatty():
            _draw_until_interrupted(watcher)
        return _print_once(watcher)


def _print_gpus(*, as_json: bool) -> int:
    listing = watch_gpus.list_gpus(os.environ)
    if as_json:
        click.echo(gpu_lines.gpu_list_document(listing).decode())
    for line in () if as_json else gpu_lines.gpu_list(listing.gpus):
        click.echo(line)
    for note in listing.notes:
        options.notify(note)
    return 0


def _print_once(watcher: TopWatcher) -> int:
    # the share of a CPU is known only from the second look on
    watcher.look()
    time.sleep(_FIRST_INTERVAL)
    for line in top_screen.top_screen_lines(watcher.look(), _WIDTH):
        click.echo(line)
    return 0


def _draw_until_interrupted(watcher: TopWatcher) -> NoReturn:
    """Draw over the last screen, where the next line of the shell then stands.

    The terminal is left as it is, so that any signal may end or stop weigh.
    """
    stream = unguarded_stream(sys.stdout)
    stream.write(_CLEAR)
    pause = _FIRST_INTERVAL
    while True:
        width, height = shutil.get_terminal_size((_WIDTH, _HEIGHT))
        title, *lines = top_screen.top_screen_lines(watcher.look(), width)
        shown = [shortened_text(f"{title}   Ctrl-C quits", width), *lines]
        stream.write(_HOME + "".join(f"{line}{_NEXT}" for line in shown[: height - 1]))
        stream.write(_CLEAR_BELOW)
        stream.flush()
        time.sleep(pause)
        pause = _INTERVAL
