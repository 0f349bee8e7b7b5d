"""Read qacct: the resources that a job requested and used."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from weigh.model.record import State
from weigh.model.report import AccountedElement, PastJob, without_impossible
from weigh.schedulers import gridengine as gridengine_text
from weigh.schedulers.gridengine import scheduler as gridengine_commands
from weigh.schedulers.kind import AccountingWords, Argv, PastAccounting
from weigh.schedulers.words import parsed_or_none, printed_size, whole_number
from weigh.units import DAY, KIB, Bytes, Seconds

_SECONDS = re.compile(r"^(\d{1,12}(?:\.\d{1,9})?)s?$")
_REQUESTS = re.compile(r"\b(h_vmem|h_rt)=([^\s,]+)")
_ABOVE = "the largest process without page cache (its KB means 1024 KiB)"
_count = lru_cache(maxsize=1 << 14)(whole_number)  # few values, many times


def _gridengine_past_job(block: Mapping[str, str]) -> PastJob | None:
    """Read a job's fields; None for an attempt that was requeued."""
    ended = gridengine_commands.read_end(
        block.get("failed", ""), block.get("exit_status", "")
    )
    job, task = block.get("jobnumber", ""), _count(block.get("taskid", "")) or 0
    if ended is None or whole_number(job) is None:
        return None
    return PastJob(
        id=f"{job}.{task}" if task else job,
        name=block.get("jobname", ""),
        accounted=_accounted_gridengine_element(max(task - 1, 0), ended.state, block),
    )


def _accounted_gridengine_element(
    number: int, state: State, block: Mapping[str, str]
) -> AccountedElement:
    figure = defaultdict(str, block).__getitem__
    cpus = _count(figure("slots")) or None
    asked, limit = _category(figure("category"), cpus)
    # 0: the job was too short
    virtual = printed_size(figure("maxvmem")) or None
    # a job that never ran took no time, not 0 s
    has_run = figure("start_time") != "-/-"
    wall_time = _qacct_seconds(figure("ru_wallclock")) if has_run else None
    # limits of time and of memory share a state: the figures show which it was
    if state == "TIMEOUT" and virtual is not None and asked is not None:
        is_early = limit is None or (wall_time is not None and wall_time < limit)
        if is_early and virtual > asked:
            state = "OUT_OF_MEMORY"
    return without_impossible(
        AccountedElement(
            element=number,
            state=state,
            node=figure("hostname") or None,
            wall_time=wall_time,
            cpu_time=_qacct_seconds(figure("cpu")),
            max_rss=_resident_memory(figure("ru_maxrss")),
            virtual_memory=virtual,
            cpus=cpus,
            memory_asked=asked,
            time_limit=limit,
        )
    )


@lru_cache(maxsize=4096)
def _category(text: str, slots: int | None) -> tuple[Bytes | None, int | None]:
    """Return the address space and the time requested; h_vmem is per slot."""
    asked = dict(_REQUESTS.findall(text))
    memory = gridengine_text.memory_or_none(asked.get("h_vmem"))
    limit = parsed_or_none(gridengine_text.TEXT.parse_time, asked.get("h_rt"))
    return None if memory is None else memory * (slots or 1), limit


def _resident_memory(text: str) -> Bytes | None:
    """Read ru_maxrss, in KiB, which version 8 divides by 1024 and prints as KB.

    107.750KB is 110,336 KiB; a bare number is KiB.
    """
    return printed_size(text, unit=KIB)


def _qacct_seconds(text: str) -> Seconds | None:
    found = _SECONDS.match(text)
    return None if found is None else float(found[1])


class GridEngineAccounting(PastAccounting):
    """Grid Engine: what its accounting reports."""

    WORDS = AccountingWords(
        memory="qacct ru_maxrss",
        unmeasured=_ABOVE,
        below="the largest single process (its KB means 1024 KiB): trust weigh's",
        above=_ABOVE,
        virtual="qacct maxvmem",
        virtual_word="address space, which h_vmem limits; not memory in use",
        cpu_time="qacct cpu",
        wall_time="qacct ru_wallclock",
    )
    SAMPLED_EVERY: Seconds = 40.0  # sge_conf(5), load_report_time

    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job, for an array all its elements."""
        return ("qacct", "-j", job_id)

    def past_argv(self, user_name: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of *span* seconds, and more.

        qacct counts whole days.
        """
        return ("qacct", "-o", user_name, "-d", str(math.ceil(span / DAY)), "-j")

    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """Yield each job of ``qacct -j``."""
        jobs = map(_gridengine_past_job, gridengine_commands.qacct_blocks(lines))
        return (job for job in jobs if job is not None)


ACCOUNTING = GridEngineAccounting()
