"""``weigh report --all-users``: what a group or a site held and used, from accounting.

Accounting is read once, line by line; no job is kept, nothing is stored.
"""

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from weigh import config
from weigh.errors import UsageError
from weigh.flow.records.imported import (
    NO_NAMES,
    accounting_lines,
    kind_of_name,
    past_accounting,
)
from weigh.flow.site.cluster import site_flags
from weigh.flow.site.schedulers import current_user, installed_scheduler
from weigh.model.report import PastJob, Whose
from weigh.render.report_group import Grouped
from weigh.review.group import Group, masked
from weigh.schedulers import KINDS, accounting
from weigh.schedulers.command import lines_of, run
from weigh.schedulers.protocol import Kind
from weigh.units import DAY, MINUTE, Seconds, parse_duration

SPAN = "7d"
_LEAST: Seconds = MINUTE
_MOST: Seconds = 20 * 366 * DAY


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """Whose jobs to report, of which time.

    ``source`` is accounting's command, or a file with what that printed; by default
    the command on PATH.
    """

    since: str | None = None
    user: str | None = None
    account: str | None = None
    all_users: bool = False
    source: str | None = None
    mask: bool = False

    @property
    def file(self) -> str | None:
        """Return the file, if the source is one."""
        is_command = any(kind.accounts == self.source for kind in KINDS.values())
        return None if is_command else self.source


def group(chosen: Chosen, *, cwd: str, env: Mapping[str, str]) -> Grouped:
    """Add up what the chosen jobs held and used.

    Raises:
        UsageError: no accounting lists past jobs here, or the file cannot be read.
        FormatError: the time, the file or a setting is invalid.
        SchedulerError: the accounting command is missing or fails.
    """
    span = parse_duration(chosen.since or SPAN)
    if not _LEAST <= span <= _MOST:
        raise UsageError(f"--since {chosen.since}: from a minute to 20 years")
    own = chosen.user is None and chosen.account is None and not chosen.all_users
    whose = Whose(
        user=current_user() if own and chosen.file is None else chosen.user,
        account=chosen.account,
    )
    kind, source, jobs = _jobs(chosen, whose, span, env)
    every = _interval(kind, chosen, env)
    site = site_flags(kind.name, config.load(cwd, env).cluster)
    found = Group(kind, every, per_cpu=site.per_cpu)
    begin = _begin(chosen, span)
    for job in jobs:
        if job is None:
            found.dropped += 1
        elif _is_chosen(job, whose, begin):
            name = _name_of(job.name)
            found.add(job, name, is_named=name not in NO_NAMES)
    summary = found.summary()
    summary = msgspec.structs.replace(
        summary,
        whose=_whose_words(chosen, whose),
        since="all that is in the file" if begin is None else _since_words(begin),
        source=source,
        notes=tuple(_notes(summary, chosen, kind)),
    )
    return masked(summary) if chosen.mask else summary


_name_of = lru_cache(maxsize=1 << 16)(kind_of_name)


def _jobs(
    chosen: Chosen, whose: Whose, span: Seconds, env: Mapping[str, str]
) -> tuple[Kind, str, Iterable[PastJob | None]]:
    """Return the scheduler, the name of the source, and its jobs."""
    if chosen.file is not None:
        kind, lines = accounting_lines(chosen.file)
        return kind, chosen.file, past_accounting(kind).read_past(lines)
    named = (name for name, kind in KINDS.items() if kind.accounts == chosen.source)
    kind = KINDS[next(named, None) or installed_scheduler(env)]
    source = past_accounting(kind)
    path = source.past_file(env)
    if path is not None and os.access(path, os.R_OK):
        kind, lines = accounting_lines(path)
        return kind, path, past_accounting(kind).read_past(lines)
    lines = lines_of(source.past_argv(whose, span), env=env)
    return kind, kind.accounts, source.read_past(lines)


def _interval(kind: Kind, chosen: Chosen, env: Mapping[str, str]) -> Seconds:
    usual = past_accounting(kind).SAMPLED_EVERY
    if chosen.file is not None:
        return usual
    every = accounting.sample_interval(kind.name, run=run, env=env)
    return usual if every is None else every or math.inf


def _begin(chosen: Chosen, span: Seconds) -> Seconds | None:
    """Return since when jobs count; None for all of a file."""
    if chosen.file is not None and chosen.since is None:
        return None
    return time.time() - span


def _is_chosen(job: PastJob, whose: Whose, begin: Seconds | None) -> bool:
    """Return whether a job is of *whose*, and ended since *begin* or still runs."""
    if begin is not None and job.ended is not None and job.ended < begin:
        return False
    if whose.user is not None and whose.user != job.user:
        return False
    return whose.account is None or whose.account == job.account


def _whose_words(chosen: Chosen, whose: Whose) -> str:
    parts = []
    if whose.account is not None:
        parts.append("one account" if chosen.mask else f"account {whose.account}")
    if whose.user is not None:
        parts.append("one user" if chosen.mask else whose.user)
    return ", ".join(parts) or "all users"


def _since_words(begin: Seconds) -> str:
    return f"since {time.strftime('%Y-%m-%d %H:%M', time.localtime(begin))}"


def _notes(found: Grouped, chosen: Chosen, kind: Kind) -> Iterator[str]:
    total = found.total
    if chosen.all_users and len(found.by["user"]) == 1:
        only = "one user" if chosen.mask else found.by["user"][0].name
        yield f"only jobs of {only} are listed: the site may hide those of others"
    if total.held.memory and not total.known.memory:
        yield f"{kind.accounts} shows no use of memory here"
    elif found.unsampled:
        share = 100 * found.unsampled / total.jobs
        yield (
            f"memory was never sampled in {found.unsampled:,} of {total.jobs:,} jobs "
            f"({share:.0f} %): too short, or not counted"
        )
    if found.sampled is not None and total.known.memory:
        yield (
            f"memory is sampled every {found.sampled:g} s: peaks in between are missed"
            if not found.counts_addresses
            else "memory is address space, which the limit counts, not memory in use"
        )
    if total.held.gpu and not total.known.gpu:
        yield "accounting does not show whether GPUs were busy: weigh run measures it"
    elif total.held.gpu > total.known.gpu:
        share = 100 * total.known.gpu / total.held.gpu
        yield f"accounting shows the use of {share:.0f} % of the GPU hours"
    if found.running:
        verbs = "job waits or runs" if found.running == 1 else "jobs wait or run"
        yield f"{found.running:,} {verbs}: not counted"
    if found.dropped:
        noun = "row" if found.dropped == 1 else "rows"
        yield f"{found.dropped:,} {noun} could not be read"
    yield (
        "a job counts with all of its hours, also those before that time; cancelled "
        "jobs are not counted as lost"
    )
