"""``weigh top``: the words of the command line, and the screen drawn."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import TextIO, cast

import click

from weigh import config
from weigh.cli import complete
from weigh.cli.events import QUIT, REDRAW, STOP, TICK, Ended, Events
from weigh.cli.patient_stream import PatientStream
from weigh.cli.quantities import SECONDS
from weigh.errors import FormatError, StoreError
from weigh.flow.records.records import open_store
from weigh.flow.watch.gpu_watch import nvml_gpus
from weigh.flow.watch.top import Watcher, Watching
from weigh.report.top_lines import WIDTH, render_text
from weigh.report.top_view import TopView
from weigh.request import DEFAULT_HEADROOM, parse_headroom
from weigh.units import Seconds

_SHORTEST_INTERVAL = 0.1
_LONGEST_INTERVAL = 3600.0
_FIRST_INTERVAL = 0.5  # seconds between the two looks that a share of CPU takes
_SIGNAL_BASE = 128
_LEAVING = 1.0  # seconds that a terminal has to take the last of the screen


def _interval(_context: click.Context, option: click.Parameter, value: float) -> float:
    if not _SHORTEST_INTERVAL <= value <= _LONGEST_INTERVAL:
        raise click.BadParameter(
            f"{value:g} s is not possible: "
            f"{_SHORTEST_INTERVAL:g} to {_LONGEST_INTERVAL:g} s",
            param=option,
        )
    return value


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--interval",
    type=SECONDS,
    default=1.0,
    metavar="SECONDS",
    callback=_interval,
    help="Time between looks.  [default: 1]",
)
@click.option("--once", is_flag=True, help="Print one screen as plain text.")
@click.argument("name", metavar="[ID]", required=False, shell_complete=complete.records)
def top(name: str | None, *, interval: float, once: bool) -> int:
    """Watch a run in progress; or without ID all runs here, GPUs and my processes.

    ID is a record's id, the beginning of one, its label or `last`. q or Ctrl-C
    quits; the run goes on. Where the output is no terminal, one screen is
    printed.

    \b
    weigh top
    weigh top alice --interval 5
    weigh top --once | head
    """  # noqa: D301 - click reads \b as: keep these lines
    watching = Watching(name=name, headroom=_headroom(), gpus=nvml_gpus)
    with closing(Watcher(open_store(_folder(), os.environ), watching)) as watcher:
        with suppress(AttributeError):  # a label may hold what the terminal cannot
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        if once or not _is_terminal():
            return _print_once(watcher, interval)
        return _watch(watcher, interval)


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise StoreError("the current folder is gone: cd to another") from error


def _headroom() -> float:
    value = config.load(_folder(), os.environ).value("headroom")
    try:
        return DEFAULT_HEADROOM if value is None else parse_headroom(str(value))
    except FormatError as error:
        raise click.UsageError(str(error)) from error


def _is_terminal() -> bool:
    """Tell whether a screen can be drawn: on a terminal that can move its cursor."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    return os.name == "nt" or os.environ.get("TERM", "dumb") != "dumb"


def _print_once(watcher: Watcher, interval: float) -> int:
    watcher.look()
    time.sleep(min(interval, _FIRST_INTERVAL))
    click.echo(render_text(watcher.look(), _width()))
    return 0


def _width() -> int:
    try:
        return min(WIDTH, os.get_terminal_size(sys.stdout.fileno()).columns or WIDTH)
    except (OSError, ValueError):
        return WIDTH


def _watch(watcher: Watcher, interval: Seconds) -> int:
    """Draw until somebody quits; give the exit code."""
    try:
        with Events() as events:
            while True:
                event = _draw_on_terminal(watcher, events, interval)
                if event == QUIT:
                    return 0
                if event == STOP:
                    events.stop()
    except Ended as ended:
        return _SIGNAL_BASE + ended.number


def _draw_on_terminal(watcher: Watcher, events: Events, interval: Seconds) -> str:
    """Draw until something else is to be done; return what.

    A terminal that is blocked by Ctrl-S must not delay a signal.
    """
    from weigh.report.top_screen import TopScreen  # noqa: PLC0415 - rich, when drawn

    out = PatientStream(sys.stdout, patience=0.0)
    colour = not os.environ.get("NO_COLOR")
    try:
        with events.keyboard(), TopScreen(cast("TextIO", out), colour=colour) as screen:

            def show(view: TopView) -> None:
                if out.error is not None:
                    raise out.error
                if out.wait(0.0):
                    screen.show(view)

            return _draw(watcher, show, events, interval)
    finally:
        out.wait(_LEAVING)


def _draw(
    watcher: Watcher,
    show: Callable[[TopView], None],
    events: Events,
    interval: Seconds,
) -> str:
    """Look and draw until something else is to be done; give what."""
    view = watcher.look()
    due = time.monotonic() + min(interval, _FIRST_INTERVAL)
    while True:
        try:
            show(view)
        except OSError:  # the terminal is gone
            raise Ended(signal.SIGHUP) from None
        event = events.wait(due - time.monotonic())
        if event not in {TICK, REDRAW}:
            return event
        if time.monotonic() >= due:
            due = time.monotonic() + interval
            view = watcher.look()
