"""Queries of accounting, and the GPU tables in the logs of jobs."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from weigh.flow.follow.tasks import LOGS, tail_of
from weigh.flow.follow.view import JobView
from weigh.model.report import AccountedElement, GpuTable
from weigh.schedulers import accounting
from weigh.schedulers.accounting import read_tables
from weigh.schedulers.command import run_scheduler_command

_MOST_LOGS = 500  # logs that are read; an array may have thousands


def ask_accounting(
    scheduler: str | None, jobs: Iterable[str], env: Mapping[str, str]
) -> tuple[AccountedElement, ...]:
    """Query accounting for jobs, one after the other; nothing without a scheduler."""
    if scheduler is None:
        return ()
    known = tuple(
        one
        for job in jobs
        for one in accounting.accounting_of_job(
            scheduler, job, run=run_scheduler_command, env=env
        )
    )
    if not known:
        return ()
    # the interval is a setting of the site: queried once, for all elements
    sampled = accounting.sample_interval(scheduler, run=run_scheduler_command, env=env)
    return tuple(msgspec.structs.replace(one, sampled=sampled) for one in known)


def logs_of(views: Sequence[JobView]) -> Iterator[str]:
    """Yield the paths of the logs of the elements of jobs."""
    for view in views:
        job = view.job
        if job.own is not None:
            yield from (path for found in view.logs for path in found)
            continue
        for number in range(job.elements):
            name = view.scheduler.log_name(job.id, number, is_array=job.elements > 1)
            yield os.path.join(job.folder, LOGS, name)


def tables_in(paths: Iterable[str]) -> tuple[GpuTable, ...]:
    """Read the GPU tables at the ends of the first few hundred logs."""
    # lazily: the paths beyond the limit are not even built
    some = (path for _, path in zip(range(_MOST_LOGS), paths, strict=False))
    return tuple(table for path in some for table in read_tables(tail_of(path)))
