"""Read qacct: the resources that a job requested and used."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from operator import itemgetter

from weigh.errors import FormatError
from weigh.model.job import ElementState
from weigh.model.record import State
from weigh.model.report import AccountedElement, PastJob, without_impossible
from weigh.schedulers.backend import PastAccounting
from weigh.schedulers.gridengine import scheduler as gridengine_commands
from weigh.schedulers.gridengine import text as dialect
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.schedulers.words import whole_number
from weigh.units import DAY, KIB, Bytes, Seconds

_NUMBER = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(B?)$", re.IGNORECASE)
_SECONDS = re.compile(r"^(\d{1,12}(?:\.\d{1,9})?)s?$")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_H_VMEM = re.compile(r"\bh_vmem=([^\s,]+)")
_H_RT = re.compile(r"\bh_rt=([^\s,]+)")
_BELOW = "the largest single process (its KB means 1024 KiB): trust weigh's"
_ABOVE = "the largest process without page cache (its KB means 1024 KiB)"


# accounting(5); the category is everything between the fields before and after it
_FILE_FIELDS = (
    *("qname", "hostname", "group", "owner", "jobname", "jobnumber", "account"),
    *("priority", "qsub_time", "start_time", "end_time", "failed", "exit_status"),
    *("ru_wallclock", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss"),
    *("ru_idrss", "ru_isrss", "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock"),
    *("ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw", "ru_nivcsw"),
    *("project", "department", "granted_pe", "slots", "taskid", "cpu", "mem", "io"),
)
_AFTER_CATEGORY = ("iow", "pe_taskid", "maxvmem", "arid", "ar_submission_time")
_CATEGORY = len(_FILE_FIELDS)
_FILE_WIDTH = _CATEGORY + 1 + len(_AFTER_CATEGORY)
_USED = (
    *("jobnumber", "taskid", "jobname", "owner", "failed", "exit_status"),
    *("start_time", "end_time", "qname", "hostname"),
    *("slots", "category", "ru_wallclock", "cpu", "ru_maxrss", "maxvmem"),
)
_used = itemgetter(
    *map((*_FILE_FIELDS, "category", *_AFTER_CATEGORY).index, _USED),
)
_JOB_NUMBER = _FILE_FIELDS.index("jobnumber")
_RULER = "====="
_count = lru_cache(maxsize=1 << 14)(whole_number)  # few values, many times
_MILLISECONDS = 10.0**11  # a time above it, of Univa, counts these


def _of_block(block: Mapping[str, str]) -> Iterator[str]:
    return (block.get(name, "") for name in _USED)


def _of_file(line: str) -> list[str] | None:
    """Read a line of the accounting file; None if it is none."""
    fields = line.rstrip("\n").split(":")
    # only the category may hold colons: what is too much belongs to it
    surplus = len(fields) - _FILE_WIDTH
    if surplus < 0 or not fields[_JOB_NUMBER].isdecimal():
        return None
    if surplus:
        last = _CATEGORY + surplus + 1
        fields[_CATEGORY:last] = [":".join(fields[_CATEGORY:last])]
    return fields


def _gridengine_past_job(fields: Iterable[str]) -> PastJob | None:
    """Read the fields of a job, those of _USED."""
    # fmt: off
    (
        job, index, name, owner, failed, status, start, end, queue, host,
        *figures,
    ) = fields
    # fmt: on
    ended = _end_of_gridengine_element(failed, status)
    if ended is None or whole_number(job) is None:
        return None
    task = _count(index) or 0
    return PastJob(
        id=f"{job}.{task}" if task else job,
        name=name,
        user=owner or None,
        exit_code=ended.exit_code,
        signal=ended.signal,
        started=_gridengine_epoch(start),
        ended=_gridengine_epoch(end),
        queue=queue or None,
        accounted=_accounted_gridengine_element(
            max(task - 1, 0), ended.state, host, figures
        ),
    )


@lru_cache(maxsize=256)
def _end_of_gridengine_element(failed: str, status: str) -> ElementState | None:
    return gridengine_commands.read_end(failed, status)


@lru_cache(maxsize=1 << 12)  # elements of an array are submitted at once
def _gridengine_epoch(text: str) -> Seconds | None:
    seconds = whole_number(text)
    if seconds is None:
        return gridengine_commands.epoch_time(text)
    # 0 in the file: it never started
    return (seconds / 1000 if seconds > _MILLISECONDS else float(seconds)) or None


def _accounted_gridengine_element(
    number: int, state: State, host_name: str, figures: Iterable[str]
) -> AccountedElement:
    slots, category, wallclock, cpu, maxrss, maxvmem = figures
    cpus = _count(slots) or None
    asked, limit = _category(category, cpus)
    wall_time, virtual = _qacct_seconds(wallclock), _peak_virtual_memory(maxvmem)
    # limits of time and of memory share a state: the figures show which it was
    if state == "TIMEOUT" and virtual is not None and asked is not None:
        is_early = limit is None or (wall_time is not None and wall_time < limit)
        if is_early and virtual > asked:
            state = "OUT_OF_MEMORY"
    return without_impossible(
        AccountedElement(
            element=number,
            state=state,
            node=host_name or None,
            wall_time=wall_time,
            cpu_time=_qacct_seconds(cpu),
            max_rss=_resident_memory(maxrss),
            virtual_memory=virtual,
            cpus=cpus,
            memory_asked=asked,
            time_limit=limit,
        )
    )


@lru_cache(maxsize=4096)
def _category(text: str, slots: int | None) -> tuple[Bytes | None, int | None]:
    """Return the address space and the time requested."""
    return _requested_h_vmem(text, slots), _requested_time_limit(text)


def _resident_memory(text: str) -> Bytes | None:
    """Read ru_maxrss, in KiB, which version 8 divides by 1024 and prints as KB.

    107.750KB is 110,336 KiB; a bare number is KiB.
    """
    number = _qacct_size(text)
    return None if number is None else round(number * KIB)


def _peak_virtual_memory(text: str) -> Bytes | None:
    """Read maxvmem, which counts by 1024; 0 means that the job was too short."""
    number = _qacct_size(text)
    return None if number is None else round(number) or None


def _qacct_size(text: str) -> float | None:
    found = _NUMBER.match(text)
    if found is None:
        return None
    return float(found[1]) * (1 << 10 * _POWERS[found[2].upper()])


def _qacct_seconds(text: str) -> Seconds | None:
    found = _SECONDS.match(text)
    return None if found is None else float(found[1])


def _requested_h_vmem(category: str, slots: int | None) -> Bytes | None:
    """Read h_vmem, which is per slot."""
    found = _H_VMEM.search(category)
    try:
        return dialect.TEXT.parse_memory(found[1]) * (slots or 1) if found else None
    except FormatError:
        return None


def _requested_time_limit(category: str) -> int | None:
    found = _H_RT.search(category)
    try:
        return dialect.TEXT.parse_time(found[1]) if found else None
    except FormatError:
        return None


class GridEngineAccounting(PastAccounting):
    """Grid Engine: what its accounting reports."""

    WORDS = AccountingWords(
        memory="qacct ru_maxrss",
        unmeasured=_ABOVE,
        below=_BELOW,
        above=_ABOVE,
        below_killed=_BELOW,
        above_killed=_ABOVE,
        virtual="qacct maxvmem",
        virtual_word="address space, which h_vmem limits; not memory in use",
        cpu_time="qacct cpu",
        wall_time="qacct ru_wallclock",
    )
    SAMPLED_EVERY: Seconds = 40.0  # sge_conf(5), load_report_time

    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job, for an array all its elements."""
        return ("qacct", "-j", job_id)

    def parse(self, command_output: str) -> tuple[AccountedElement, ...]:
        """Read qacct's blocks; the last attempt of an element counts."""
        found = {}
        for block in gridengine_commands.qacct_blocks(command_output.splitlines()):
            job = _gridengine_past_job(_of_block(block))
            if job is not None:
                found[job.accounted.element] = job.accounted
        return tuple(one for _, one in sorted(found.items()))

    def past_argv(self, user_name: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of *span* seconds, and more.

        qacct counts whole days.
        """
        return ("qacct", "-o", user_name, "-d", str(math.ceil(span / DAY)), "-j")

    def is_past(self, head: str) -> bool:
        """Return whether *head* begins as ``qacct -j`` or as the accounting file."""
        lines = [line for line in head.splitlines() if not line.startswith("#")]
        if not lines:
            return False
        if lines[0].startswith(_RULER):
            return any(line.startswith(("qname ", "jobnumber ")) for line in lines)
        return _of_file(lines[0]) is not None

    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob | None]:
        """Yield each job of ``qacct -j`` or its file; None for one not understood."""
        lines = iter(lines)
        # the file begins with comments
        first = next((line for line in lines if not line.startswith("#")), "")
        lines = chain((first,), lines)
        if first.startswith(_RULER):
            for block in gridengine_commands.qacct_blocks(lines):
                job = _gridengine_past_job(_of_block(block))
                if job is not None:
                    yield job
            return
        for line in lines:
            if line.startswith("#"):
                continue
            # None: no record; a record without a job is an attempt that was requeued
            fields = _of_file(line)
            job = None if fields is None else _gridengine_past_job(_used(fields))
            if (
                job is not None or fields is None
            ):  # an attempt that was requeued is neither
                yield job


ACCOUNTING = GridEngineAccounting()
