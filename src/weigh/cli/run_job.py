"""What ``weigh run`` does with a command line that was read, and what it prints.

Without click: a plain command line (plain_run) starts in three quarters of the time.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from weigh.cli.output import shall_use_colour
from weigh.config import ConfigValues
from weigh.errors import NOT_FOUND, SIGNAL_BASE, TOO_LARGE, WEIGH_FAILED, FormatError
from weigh.flow.run.run import WatchedCommand, request_from_run
from weigh.lazy_modules import lazy_module
from weigh.measure.launcher import script_trouble
from weigh.model.record import Record
from weigh.schedulers import installed_scheduler

if TYPE_CHECKING:
    from weigh import units
    from weigh.flow.request import request as request_request
    from weigh.render import printable, record_lines
    from weigh.sweep import values as sweep_values
else:  # each is imported when it is first used
    request_request = lazy_module("weigh.flow.request.request")
    printable = lazy_module("weigh.render.printable")
    record_lines = lazy_module("weigh.render.record_lines")
    sweep_values = lazy_module("weigh.sweep.values")
    units = lazy_module("weigh.units")

Notify = Callable[[str], None]


def label_trouble(label: str) -> str | None:
    """Return why a label could not be typed to find the record; None if it can."""
    if label.strip() and label != "last" and not label.startswith("-"):
        return None
    return f"{label!r} cannot be a label (neither 'last' nor -NAME can)"


def typed_parameters(texts: Sequence[str]) -> dict[str, int | float | str]:
    """Return the parameters of a run, of which most runs have none.

    Raises:
        FormatError: a text is not NAME=VALUE.
    """
    return sweep_values.parse_parameters(texts) if texts else {}


def run_notifier(*, quiet: bool) -> Notify:
    """Return what prints a line at once, while the command runs; nothing if *quiet*."""
    return (lambda _line: None) if quiet else _warn


def report_on(
    watched: WatchedCommand,
    settings: ConfigValues,
    *,
    quiet: bool,
    headroom: float | None,
    fail_above: int | None = None,
) -> int:
    """Print what a command used, and return its exit code.

    With *fail_above* it is another one if the command completed with more memory.
    """
    record, warnings, joined, losses = watched
    # 127 can also come from a script whose interpreter does not exist
    if record.exit_code == NOT_FOUND:
        warnings += filter(None, (script_trouble(record.command[0]),))
    if record.part:  # the first rank reports for all
        quiet, losses = True, ()
    for line in losses if quiet else (*settings.warnings, *warnings):
        _warn(line)
    if not quiet:
        _report_of_run(joined or record, headroom, settings)
    # as a shell reports it
    if record.signal is not None:
        return SIGNAL_BASE + record.signal
    # of a failed run its own exit code matters more than its memory
    if not record.exit_code and fail_above is not None:
        return _check_limit(joined or record, fail_above)
    return record.exit_code or 0


def _warn(line: str) -> None:
    start = "\n" if line.startswith("\n") else ""  # after the job's open line
    _print_run_line(start + printable.weigh_line(line.lstrip()))


def _check_limit(record: Record, limit: int) -> int:
    """Return 0 if the peak memory is at most *limit*; else report it, also if quiet."""
    peak = record.peak_memory
    if peak is None:
        _warn("--memory: the memory was not measured")
        return WEIGH_FAILED
    if peak <= limit:
        return 0
    _warn(
        f"peak memory {units.format_size(peak)} exceeds the "
        f"{units.format_size(limit)} of --memory"
    )
    return TOO_LARGE


def _report_of_run(
    record: Record, headroom: float | None, settings: ConfigValues
) -> None:
    if record.signal == signal.SIGINT and sys.stderr and sys.stderr.isatty():
        _print_run_line("\n")  # the terminal wrote ^C where the first line would begin
    try:
        _summarise(record, headroom, settings)
    except Exception as error:  # noqa: BLE001 - the job's exit code must pass
        _warn(f"internal error: {type(error).__name__}: {error}")


def _summarise(record: Record, headroom: float | None, settings: ConfigValues) -> None:
    request = request_from_run(record, headroom)
    if request is not None and settings.cluster:
        with suppress(FormatError):  # weigh request and weigh submit report it
            request = request_request.as_site_wants(
                request, settings.cluster, os.environ
            )
    # a job's GPUs are named by its allocation, or by this variable
    has_allocation = bool(record.allocation or os.environ.get("CUDA_VISIBLE_DEVICES"))
    colour = shall_use_colour(sys.stderr)
    scheduler = installed_scheduler(os.environ)
    if record.allocation is not None:
        scheduler = record.allocation.scheduler
    text = record_lines.render_summary(
        record,
        request,
        colour=colour,
        gpus_allocated=has_allocation,
        scheduler=scheduler,
    )
    _print_run_line(text, is_coloured=colour)


def _print_run_line(text: str, *, is_coloured: bool = False) -> None:
    """Write to stderr, which :mod:`weigh.cli.main` keeps from blocking."""
    if sys.stderr is not None:
        (printable.unguarded_stream(sys.stderr) if is_coloured else sys.stderr).write(
            text
        )
