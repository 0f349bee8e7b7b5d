"""Make the context of a run of ``weigh exec``, for tests of single parts of it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weigh.flow.exec.exec import _with_task_regions
from weigh.flow.run.run import RunOptions, blank_record
from weigh.runner.journal import RunJournal
from weigh.runner.owned_file import JoblogHolder
from weigh.runner.run_context import (
    ExecOptions,
    RunConsole,
    RunContext,
)
from weigh.runner.shared_queue import PulledTasks
from weigh.runner.slots import TaskPlan, lay_out
from weigh.runner.task_source import TaskParameters, TaskSource
from weigh.store.identity import process_identity, this_machine


def exec_context(
    folder: Path,
    *,
    notify: Callable[[str], None] = lambda _line: None,
    shared: PulledTasks | None = None,
    **options: Any,
) -> RunContext:
    """Return the context of a run of one task in *folder*, with these options."""
    tasks = folder / "tasks.txt"
    tasks.write_text("true\n")
    holder = JoblogHolder(this_machine(), process_identity(os.getpid()))
    source = TaskSource(str(tasks))
    source.close()
    table = TaskParameters(str(tasks))
    table.close()
    journal = RunJournal(f"{tasks}.joblog", holder)
    journal.close()
    return RunContext(
        id="r",
        options=ExecOptions(**options),
        console=RunConsole(notify=notify, show=lambda _tally: 1.0),
        source=source,
        journal=journal,
        cwd=str(folder),
        env={},
        layout=lay_out(1, cpu_count=1),
        mask=frozenset(),
        blank=blank_record([], RunOptions(), {}),
        ends_at=None,
        ask=str,
        add_regions=_with_task_regions,
        table=table,
        plan=shared or TaskPlan(),
        shared=shared,
    )
