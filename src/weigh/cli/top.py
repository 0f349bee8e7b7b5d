"""``weigh top``: options, the screen, and the list of GPUs."""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, TextIO, cast

import click

from weigh.cli import options
from weigh.cli.output import PatientStream
from weigh.errors import SIGNAL_BASE, StoreError, UsageError
from weigh.flow.records.records import open_store
from weigh.flow.watch.gpus import nvml_gpus
from weigh.flow.watch.top import TopWatcher
from weigh.lazy_modules import lazy_module
from weigh.units import Seconds

if TYPE_CHECKING:
    import termios
    import tty

    from weigh.flow.watch import gpus as watch_gpus
    from weigh.render import columns, gpu_lines, printable, top_screen
else:  # each is imported when it is first used
    termios = lazy_module("termios")
    tty = lazy_module("tty")
    watch_gpus = lazy_module("weigh.flow.watch.gpus")
    columns = lazy_module("weigh.render.columns")
    gpu_lines = lazy_module("weigh.render.gpu_lines")
    printable = lazy_module("weigh.render.printable")
    top_screen = lazy_module("weigh.render.top_screen")

_INTERVAL = 1.0  # seconds between two screens, as many as a person can read
_FIRST_INTERVAL = 0.5  # seconds between the two looks that a share of CPU takes
_LEAVING = 1.0  # seconds that a terminal has to take the last of the screen
_QUIT = b"qQ\x03\x04"  # Ctrl-C, Ctrl-D, where they come as keys
_TERMINAL_GONE: int = getattr(signal, "SIGHUP", signal.SIGTERM)
_SIGNALS = ("INT", "TERM", "HUP", "QUIT", "TSTP")  # TSTP ends the screen for a while


@click.command(context_settings=options.SETTINGS)
@click.option(
    "--gpus", is_flag=True, help="List my GPUs once: memory, load and processes."
)
@options.as_json("With --gpus: print one JSON document.")
def top(*, gpus: bool, as_json: bool) -> int:
    """Watch the runs in progress here, the machine and the GPUs.

    q or Ctrl-C quits; the runs continue. If the output is not a terminal, one screen
    is printed. `weigh records show ID` shows all of one run.

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
    store = open_store(_existing_folder(), os.environ)
    with closing(TopWatcher(store, nvml_gpus)) as watcher:
        with suppress(AttributeError):  # a label may hold what the terminal cannot
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        if not _has_screen():
            return _print_once(watcher)
        return _draw_until_quit(watcher)


def _print_gpus(*, as_json: bool) -> int:
    listing = watch_gpus.list_gpus(os.environ)
    if as_json:
        click.echo(gpu_lines.gpu_list_document(listing).decode())
    for line in () if as_json else gpu_lines.gpu_list(listing.gpus):
        click.echo(line)
    for note in listing.notes:
        click.echo(
            columns.fill_by_columns(f"weigh: {printable.printable_text(note)}", 80),
            err=True,
        )
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


def _print_once(watcher: TopWatcher) -> int:
    # the share of a CPU is known only from the second look on
    watcher.look()
    time.sleep(_FIRST_INTERVAL)
    try:
        width = (
            os.get_terminal_size(sys.stdout.fileno()).columns or top_screen.TOP_WIDTH
        )
    except (OSError, ValueError):
        width = top_screen.TOP_WIDTH
    click.echo(top_screen.top_page(watcher.look(), min(top_screen.TOP_WIDTH, width)))
    return 0


def _draw_until_quit(watcher: TopWatcher) -> int:
    """Draw until the user quits; return the exit code."""
    colour = not os.environ.get("NO_COLOR")
    while True:
        # a terminal that is blocked by Ctrl-S must not delay a signal
        out = PatientStream(sys.stdout, patience=0.0)
        screen = top_screen.TopScreen(cast("TextIO", out), colour=colour)
        ended = 0
        try:
            with _signals_and_keys(), screen:
                pause = _FIRST_INTERVAL
                screen.show(watcher.look())
                while not out.error and not _is_quit_typed(pause):
                    # the last screen is still being written: do not queue another one
                    # behind it
                    if out.wait(0.0):
                        screen.show(watcher.look())
                    pause = _INTERVAL
                ended = _TERMINAL_GONE if out.error else 0
        except TopEndedBySignal as end:
            ended = end.number
        out.wait(_LEAVING)
        if ended != getattr(signal, "SIGTSTP", None):
            return 0 if ended in {0, signal.SIGINT} else SIGNAL_BASE + ended
        # the handlers were put back, so this stops weigh as Ctrl-Z stops any program
        os.kill(os.getpid(), ended)  # stops here until it is continued


class TopEndedBySignal(BaseException):
    """A signal came that ends the screen."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_and_keys() -> Iterator[None]:
    """Have signals end the screen, and keys arrive without Enter and unseen."""
    if sys.platform == "win32":
        try:
            yield
        except KeyboardInterrupt:
            raise TopEndedBySignal(signal.SIGINT) from None
        return

    def end(number: int, _frame: FrameType | None) -> None:
        for other in handlers:  # the terminal is given back once
            signal.signal(other, signal.SIG_IGN)
        raise TopEndedBySignal(number)

    numbers = [getattr(signal, f"SIG{name}") for name in _SIGNALS]
    handlers = {
        number: signal.getsignal(number)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN  # as nohup leaves HUP
    }
    terminal = None
    if sys.stdin is not None and sys.stdin.isatty():
        terminal = termios.tcgetattr(sys.stdin)
    try:
        for number in handlers:
            signal.signal(number, end)
        if terminal is not None:
            tty.setcbreak(sys.stdin, termios.TCSANOW)  # it may not drain
        yield
    finally:
        if terminal is not None:
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(sys.stdin, termios.TCSANOW, terminal)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_quit_typed(seconds: Seconds) -> bool:
    """Wait so long for a key that quits, or the end of the input."""
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    if not select.select([sys.stdin], [], [], seconds)[0]:
        return False
    with suppress(OSError):  # the terminal is gone
        typed = os.read(sys.stdin.fileno(), 1024)
        # an empty read is the end of the input
        return not typed or bool(set(typed) & set(_QUIT))
    return True
