"""``weigh top``: options, the screen, and the list of GPUs."""

import os
import select
import signal
import sys
import time
from contextlib import closing, suppress
from types import FrameType
from typing import Any, Self, TextIO, cast

import click

from weigh import config
from weigh.cli import options
from weigh.cli.options import SECONDS
from weigh.cli.output import PatientStream
from weigh.errors import SIGNAL_BASE, StoreError, UsageError
from weigh.flow.records.records import open_store
from weigh.flow.request.request import configured_headroom
from weigh.flow.watch.gpus import nvml_gpus
from weigh.flow.watch.top import TopSubject, TopWatcher
from weigh.units import Seconds

_SHORTEST_INTERVAL = 0.1
_LONGEST_INTERVAL = 3600.0
_FIRST_INTERVAL = 0.5  # seconds between the two looks that a share of CPU takes
_LEAVING = 1.0  # seconds that a terminal has to take the last of the screen
_QUIT = b"qQ\x03\x04"  # Ctrl-C, Ctrl-D, where they come as keys
_TO_WAKE = ("WINCH", "CONT")  # the others end the screen, TSTP for a while
_TERMINAL_GONE: int = getattr(signal, "SIGHUP", signal.SIGTERM)
_SIGNALS = ("INT", "TERM", "HUP", "QUIT", "TSTP", *_TO_WAKE)


def _checked_interval(
    _context: click.Context, option: click.Parameter, value: float
) -> float:
    if not _SHORTEST_INTERVAL <= value <= _LONGEST_INTERVAL:
        raise click.BadParameter(
            f"{value:g} s is not possible: "
            f"{_SHORTEST_INTERVAL:g} to {_LONGEST_INTERVAL:g} s",
            param=option,
        )
    return value


@click.command(context_settings=options.SETTINGS)
@click.option(
    "--gpus", is_flag=True, help="List my GPUs once: memory, load and processes."
)
@click.option(
    "--interval",
    type=SECONDS,
    default=1.0,
    metavar="SECONDS",
    callback=_checked_interval,
    help="Time between updates.  [default: 1]",
)
@click.option("--once", is_flag=True, help="Print one screen as plain text.")
@options.as_json("With --gpus: print one JSON document.")
@click.argument("name", metavar="[ID]", required=False, shell_complete=options.records)
def top(
    name: str | None, *, gpus: bool, interval: float, once: bool, as_json: bool
) -> int:
    """Watch a run in progress; without ID, all runs here, GPUs and my processes.

    ID is a record's id, the beginning of one, its label or `last`. q or Ctrl-C
    quits; the run continues. If the output is not a terminal, one screen is
    printed.

    With --gpus my GPUs are listed once, one line each, as CUDA_VISIBLE_DEVICES and
    the scheduler's allocation define them. The number is the driver's, the same as
    in nvidia-smi. Without a GPU nothing is printed, stderr reports the reason, and
    the exit code is 0; it is 125 if the driver is broken.

    \b
    weigh top
    weigh top alice --interval 5
    weigh top --once | head
    weigh top --gpus --json
    """  # noqa: D301 - click reads \b as: keep these lines
    if gpus:
        if name is not None:
            raise UsageError(f"--gpus lists all of my GPUs: remove {name}")
        return _print_gpus(as_json=as_json)
    if as_json:
        raise UsageError("--json needs --gpus")
    headroom = configured_headroom(config.load(_existing_folder(), os.environ))
    watching = TopSubject(name=name, headroom=headroom, gpus=nvml_gpus)
    with closing(
        TopWatcher(open_store(_existing_folder(), os.environ), watching)
    ) as watcher:
        with suppress(AttributeError):  # a label may hold what the terminal cannot
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        if once or not _has_screen():
            return _print_once(watcher, interval)
        return _draw_until_quit(watcher, interval)


def _print_gpus(*, as_json: bool) -> int:
    from weigh.flow.watch.gpus import list_gpus  # noqa: PLC0415 - only for --gpus
    from weigh.render.columns import fill  # noqa: PLC0415
    from weigh.render.gpu_lines import gpu_list as gpu_text  # noqa: PLC0415
    from weigh.render.gpu_lines import (  # noqa: PLC0415
        gpu_list_document,
    )
    from weigh.render.printable import printable  # noqa: PLC0415

    listing = list_gpus(os.environ)
    if as_json:
        click.echo(gpu_list_document(listing).decode())
    for line in () if as_json else gpu_text(listing.gpus):
        click.echo(line)
    for note in listing.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0


def _existing_folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise StoreError("the current directory was deleted: cd to another") from error


def _has_screen() -> bool:
    """Return whether a screen can be drawn: the terminal can move its cursor."""
    if sys.stdout is None or not sys.stdout.isatty():
        return False
    return os.name == "nt" or os.environ.get("TERM", "dumb") != "dumb"


def _print_once(watcher: TopWatcher, interval: float) -> int:
    from weigh.render.top_screen import TOP_WIDTH, top_page  # noqa: PLC0415 - rich

    watcher.look()
    time.sleep(min(interval, _FIRST_INTERVAL))
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns or TOP_WIDTH
    except (OSError, ValueError):
        width = TOP_WIDTH
    click.echo(top_page(watcher.look(), min(TOP_WIDTH, width)))
    return 0


def _draw_until_quit(watcher: TopWatcher, interval: Seconds) -> int:
    """Draw until the user quits; return the exit code."""
    from weigh.render.top_screen import TopScreen  # noqa: PLC0415 - rich, when drawn

    colour = not os.environ.get("NO_COLOR")
    while True:
        # a terminal that is blocked by Ctrl-S must not delay a signal
        out = PatientStream(sys.stdout, patience=0.0)
        with TopEvents() as events, TopScreen(cast("TextIO", out), colour=colour) as it:
            pause, ended = min(interval, _FIRST_INTERVAL), None
            while ended is None:
                if out.wait(0.0):
                    it.show(watcher.look())
                ended = _TERMINAL_GONE if out.error else events.wait(pause)
                pause = interval
        out.wait(_LEAVING)
        if ended == signal.SIGINT:
            return 0
        if ended != getattr(signal, "SIGTSTP", None):
            return SIGNAL_BASE + ended
        os.kill(os.getpid(), ended)  # stops here until it is continued


class TopEvents:
    """Signals and keys while the screen is shown; the old handling on exit."""

    def __init__(self) -> None:
        self._read = self._write = self._before = -1
        self._handlers: dict[int, Any] = {}
        self._terminal: list[Any] | None = None

    def __enter__(self) -> Self:
        if sys.platform == "win32":  # it wakes for sockets only: Ctrl-C is all there is
            return self
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415

        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for name in _SIGNALS:
            number = getattr(signal, f"SIG{name}")
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves HUP
                self._handlers[number] = signal.signal(number, _only_wake)
        if sys.stdin is not None and sys.stdin.isatty():
            self._terminal = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin, termios.TCSANOW)  # it may not drain
        return self

    def __exit__(self, *_: object) -> None:
        if sys.platform == "win32":
            return
        import termios  # noqa: PLC0415 - not on Windows

        if self._terminal is not None:
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, self._terminal)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: Seconds) -> int | None:
        """Wait so long, or until the window changes; return the signal that ends it.

        A key that quits counts as Ctrl-C.
        """
        if self._read < 0:
            try:
                time.sleep(seconds)
            except KeyboardInterrupt:
                return signal.SIGINT
            return None
        sources = [self._read] if self._terminal is None else [self._read, sys.stdin]
        ready, _, _ = select.select(sources, [], [], seconds)
        if self._read in ready:
            number = os.read(self._read, 1)[0]
            is_awake = number in {getattr(signal, f"SIG{name}") for name in _TO_WAKE}
            return None if is_awake else number
        if ready:
            with suppress(OSError):
                typed = os.read(sys.stdin.fileno(), 1024)
                return signal.SIGINT if not typed or set(typed) & set(_QUIT) else None
            return _TERMINAL_GONE
        return None


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup pipe has the signal's number."""
