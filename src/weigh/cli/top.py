"""``weigh top``: options, the screen, and the list of GPUs."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Any, Self, TextIO, cast

import click
import msgspec

from weigh import config
from weigh.cli import options
from weigh.cli.options import SECONDS
from weigh.cli.output import PatientStream
from weigh.errors import SIGNAL_BASE, StoreError, UsageError
from weigh.flow.records.records import open_store
from weigh.flow.request.request import configured_headroom
from weigh.flow.watch.gpus import nvml_gpus
from weigh.flow.watch.top import Watcher, Watching
from weigh.render.top_lines import WIDTH, TopView, render_text
from weigh.units import Seconds

QUIT, TICK, REDRAW, STOP, RETURN = "quit", "tick", "redraw", "stop", "return"
BY_CPU, BY_MEMORY = "by CPU", "by memory"
_KEYS = dict.fromkeys(b"qQ\x03\x04", QUIT)  # Ctrl-C, Ctrl-D, where they come as keys
_KEYS |= dict.fromkeys(b"cC", BY_CPU) | dict.fromkeys(b"mM", BY_MEMORY)
_NAMES = {"INT": QUIT, "WINCH": REDRAW, "TSTP": STOP, "CONT": RETURN}
_ENDINGS = ("TERM", "HUP", "QUIT")


class Ended(Exception):  # noqa: N818 - no error: somebody ended it
    """A signal ended the program; ``number`` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Events:
    """Handles signals and keys; restores the old handlers on exit."""

    def __init__(self) -> None:
        self._events: dict[int, str | None] = _numbered()
        self._found: dict[int, Any] = {}
        self._keys: int | None = None
        self._read = self._write = self._wakeup = -1

    def __enter__(self) -> Self:
        if sys.platform == "win32":  # it wakes for sockets only: Ctrl-C is all there is
            return self
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in self._events:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves HUP
                self._found[number] = signal.signal(number, _only_wake)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)
        self._found.clear()
        if self._read >= 0:
            signal.set_wakeup_fd(self._wakeup)
            os.close(self._read)
            os.close(self._write)
            self._read = self._write = -1

    @contextmanager
    def keyboard(self) -> Iterator[None]:
        """Read keys one by one without echo; restore the terminal afterwards."""
        if sys.platform == "win32" or not _is_terminal(sys.stdin):
            yield
            return
        import termios  # noqa: PLC0415 - not on Windows
        import tty  # noqa: PLC0415

        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
        try:
            tty.setcbreak(keys, termios.TCSANOW)  # one that is stopped never drains
            self._keys = keys
            yield
        finally:
            self._keys = None
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(keys, termios.TCSANOW, before)

    def wait(self, seconds: Seconds) -> str:
        """Wait for the next event, TICK after so long.

        Raises:
            Ended: a signal ended the program.
        """
        if self._read < 0:
            return _sleep(seconds)
        sources = [self._read] if self._keys is None else [self._read, self._keys]
        ready, _, _ = select.select(sources, [], [], max(0.0, seconds))
        if self._read in ready:
            return self._signalled(os.read(self._read, 1)[0])
        if ready:
            return _key(sources[1])
        return TICK

    def stop(self) -> None:
        """Stop this process as Ctrl-Z would; come back when it is continued."""
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, _only_wake)

    def _signalled(self, number: int) -> str:
        event = self._events.get(number, TICK)
        if event is None:
            raise Ended(number)
        return event


def _numbered() -> dict[int, str | None]:
    """Map the signals that this system has to events; None means to end."""
    named: dict[str, str | None] = {**_NAMES, **dict.fromkeys(_ENDINGS)}
    numbers = {name: getattr(signal, f"SIG{name}", None) for name in named}
    return {number: named[name] for name, number in numbers.items() if number}


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the wakeup pipe has the signal's number."""


def _key(descriptor: int) -> str:
    try:
        typed = os.read(descriptor, 1024)
    except OSError:
        return QUIT  # the terminal is gone
    events = [_KEYS[key] for key in typed if key in _KEYS]
    if QUIT in events or not typed:
        return QUIT
    return events[-1] if events else REDRAW


def _sleep(seconds: Seconds) -> str:
    try:
        time.sleep(max(0.0, seconds))
    except KeyboardInterrupt:
        return QUIT
    return TICK


def _is_terminal(stream: Any) -> bool:  # noqa: ANN401 - None where it came closed
    return stream is not None and stream.isatty()


_SHORTEST_INTERVAL = 0.1
_LONGEST_INTERVAL = 3600.0
_FIRST_INTERVAL = 0.5  # seconds between the two looks that a share of CPU takes
_LEAVING = 1.0  # seconds that a terminal has to take the last of the screen


def _interval(_context: click.Context, option: click.Parameter, value: float) -> float:
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
    callback=_interval,
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
    headroom = configured_headroom(config.load(_folder(), os.environ))
    watching = Watching(name=name, headroom=headroom, gpus=nvml_gpus)
    with closing(Watcher(open_store(_folder(), os.environ), watching)) as watcher:
        with suppress(AttributeError):  # a label may hold what the terminal cannot
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        if once or not _stdin_is_terminal():
            return _print_once(watcher, interval)
        return _watch(watcher, interval)


def _print_gpus(*, as_json: bool) -> int:
    from weigh.flow.watch.gpus import list_gpus  # noqa: PLC0415 - only for --gpus
    from weigh.render.columns import fill  # noqa: PLC0415
    from weigh.render.gpu_lines import (  # noqa: PLC0415
        render_json,
    )
    from weigh.render.gpu_lines import render_text as gpu_text  # noqa: PLC0415
    from weigh.render.printable import printable  # noqa: PLC0415

    listing = list_gpus(os.environ)
    if as_json:
        click.echo(render_json(listing).decode())
    for line in () if as_json else gpu_text(listing.gpus):
        click.echo(line)
    for note in listing.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise StoreError("the current directory was deleted: cd to another") from error


def _stdin_is_terminal() -> bool:
    """Return whether a screen can be drawn: the terminal can move its cursor."""
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
    """Draw until the user quits; return the exit code."""
    try:
        with Events() as events:
            while True:
                event = _draw_on_terminal(watcher, events, interval)
                if event == QUIT:
                    return 0
                if event == STOP:
                    events.stop()
    except Ended as ended:
        return SIGNAL_BASE + ended.number


def _draw_on_terminal(watcher: Watcher, events: Events, interval: Seconds) -> str:
    """Draw until another event; return it.

    A terminal that is blocked by Ctrl-S must not delay a signal.
    """
    from weigh.render.top_screen import TopScreen  # noqa: PLC0415 - rich, when drawn

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
    """Read and draw until another event; return it."""
    view = watcher.look()
    due = time.monotonic() + min(interval, _FIRST_INTERVAL)
    while True:
        try:
            show(view)
        except OSError:  # the terminal is gone
            raise Ended(signal.SIGHUP) from None
        event = events.wait(due - time.monotonic())
        if event in {BY_CPU, BY_MEMORY}:
            view = msgspec.structs.replace(view, by_cpu=event == BY_CPU)
        elif event not in {TICK, REDRAW}:
            return event
        if time.monotonic() >= due:
            due = time.monotonic() + interval
            view = msgspec.structs.replace(watcher.look(), by_cpu=view.by_cpu)
