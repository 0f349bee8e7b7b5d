"""``weigh run --attach``: measure a process that is already running."""

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import UsageError
from weigh.flow.run.options import RunOptions
from weigh.flow.run.record_sink import RecordKeeper, RecordOutputFile, WarningCollector
from weigh.flow.run.run import WatchedCommand, blank_record, finished, signals_held
from weigh.lazy_modules import lazy_module
from weigh.model.record import RunOutcome

if TYPE_CHECKING:
    from weigh.measure import attached, command
else:  # each is imported when it is first used
    attached = lazy_module("weigh.measure.attached")
    command = lazy_module("weigh.measure.command")


def attach(
    pid: int, options: RunOptions, *, notify: Callable[[str], None] | None = None
) -> WatchedCommand:
    """Measure the running process *pid* until it ends, or a signal ends weigh.

    Its exit code is unknown, so the state is UNKNOWN. *notify* gets a message at the
    start, and one if the process outlives weigh.

    Raises:
        UsageError: the process does not exist, or this is not Linux.
        StoreError: the file ``output`` cannot be opened.
    """
    if sys.platform != "linux":
        raise UsageError("--attach needs Linux: start the job under weigh run instead")
    warner = WarningCollector()
    output = RecordOutputFile(options.output)
    keeper = RecordKeeper(os.environ, warner)
    blank = blank_record(attached.command_of_process(pid), options, os.environ)
    watch = command.WatchSettings(
        interval=options.interval,
        checkpoint=keeper.follow(blank),
    )
    # a process that does not exist is refused below
    if notify is not None and os.path.exists(f"/proc/{pid}"):
        notify(f"measuring process {pid} until it ends (Ctrl-C stops only weigh)")
    # Ctrl-C ends the watching, and the record is still written
    with signals_held():
        measured = attached.watch_process(pid, watch)
        if measured.end_signal is not None and notify is not None:
            notify(f"process {pid} goes on without weigh")
        how = "goes on" if measured.end_signal is not None else "ended"
        record = msgspec.structs.replace(
            finished(blank, [measured], options),
            state="UNKNOWN",
            outcome=RunOutcome(f"watched from outside; the process {how}"),
        )
        for line in measured.monitor.warnings:
            warner.warn(line)
        keeper.keep(record)
        output.write(record, warner)
    return WatchedCommand(record, warner.lines, losses=warner.losses)
