"""Read qacct: the resources that a job requested and used."""

import re

from weigh.errors import FormatError
from weigh.model.record import State
from weigh.model.report import Accounted
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.gridengine import text as dialect
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.units import KIB, Bytes, Seconds

_NUMBER = re.compile(r"^(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?)(B?)$", re.IGNORECASE)
_SECONDS = re.compile(r"^(\d{1,12}(?:\.\d{1,9})?)s?$")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_H_VMEM = re.compile(r"\bh_vmem=([^\s,]+)")
_H_RT = re.compile(r"\bh_rt=([^\s,]+)")
_BELOW = "the largest single process (its KB means 1000 KiB): trust weigh's"
_ABOVE = "the largest process without page cache (its KB means 1000 KiB)"
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


def argv(job: str) -> Argv:
    """Return the command that lists a job, for an array all its elements."""
    return ("qacct", "-j", job)


def parse(out: str) -> tuple[Accounted, ...]:
    """Read qacct's blocks; the last attempt of an element counts."""
    ended = gridengine_commands.parse_ended(out)
    found: dict[int, Accounted] = {}
    for block in gridengine_commands.qacct_blocks(out):
        job = block.get("jobnumber", "")
        number = (whole_number(block.get("taskid", "")) or 1) - 1
        state = ended.get(job, {}).get(number)
        if state is not None:
            found[number] = _accounted(number, state.state, block)
    return tuple(one for _, one in sorted(found.items()))


def _accounted(number: int, state: State, block: dict[str, str]) -> Accounted:
    slots = whole_number(block.get("slots", "")) or None
    category = block.get("category", "")
    return Accounted(
        element=number,
        state=state,
        node=block.get("hostname"),
        wall_time=_seconds(block.get("ru_wallclock", "")),
        cpu_time=_seconds(block.get("cpu", "")),
        max_rss=_resident(block.get("ru_maxrss", "")),
        virtual_memory=_virtual(block.get("maxvmem", "")),
        cpus=slots,
        memory_asked=_asked(category, slots),
        time_limit=_limit(category),
    )


def _resident(text: str) -> Bytes | None:
    """Read ru_maxrss, in KiB, which version 8 divides by 1000 and prints as KB.

    207.828KB is 207,828 KiB; a bare number is KiB.
    """
    found = _NUMBER.match(text)
    if found is None:
        return None
    return round(float(found[1]) * 10.0 ** (3 * _POWERS[found[2].upper()]) * KIB)


def _virtual(text: str) -> Bytes | None:
    """Read maxvmem, which counts by 1024; 0 means that the job was too short."""
    found = _NUMBER.match(text)
    if found is None:
        return None
    return round(float(found[1]) * (1 << 10 * _POWERS[found[2].upper()])) or None


def _seconds(text: str) -> Seconds | None:
    found = _SECONDS.match(text)
    return None if found is None else float(found[1])


def _asked(category: str, slots: int | None) -> Bytes | None:
    """Read h_vmem, which is per slot."""
    found = _H_VMEM.search(category)
    try:
        return dialect.parse_memory(found[1]) * (slots or 1) if found else None
    except FormatError:
        return None


def _limit(category: str) -> int | None:
    found = _H_RT.search(category)
    try:
        return dialect.parse_time(found[1]) if found else None
    except FormatError:
        return None
