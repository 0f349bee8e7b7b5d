"""What Slurm took a job to ask for: ``scontrol -o show job``, read as text.

The keys are those of 22.05 to 25.05. A job that waits has ``TRES=``, from 23.02 on
``ReqTRES=``; its GPUs are in there, or in ``TresPer...`` as they were asked for.
"""

import re
from collections.abc import Mapping

from weigh.dialect import slurm
from weigh.dialect.numerals import whole_number
from weigh.errors import FormatError
from weigh.model.cluster import UNTYPED
from weigh.model.job import Understood
from weigh.scheduler.elements_view import count_elements
from weigh.scheduler.slurm_view import pairs_of, tres_gpus
from weigh.units import Bytes

_NONE = frozenset({"", "(null)", "N/A", "None", "Unknown"})
_NAME = re.compile(r" JobName=.* UserId=")  # a name may hold anything, keys too
_MEMORY = ("MinMemoryNode", "MinMemoryCPU")
_PER_CPU = "MinMemoryCPU"


def parse_job(text: str) -> Understood | None:
    """Read the first job of *text*; None where there is none."""
    line = next((one for one in text.splitlines() if one.startswith("JobId=")), None)
    if line is None:
        return None
    row = pairs_of(_NAME.sub(" UserId=", line))
    tres = row.get("ReqTRES") or row.get("TRES") or ""
    gpus = tres_gpus(tres)
    expression = row.get("ArrayTaskId", "")
    throttle = whole_number(row.get("ArrayTaskThrottle"))
    return Understood(
        memory=_memory(row, tres),
        cpus=whole_number(row.get("NumCPUs", "").partition("-")[0]),
        gpus=sum(gpus.values()) if tres else None,
        gpu_types=tuple(sorted(name for name in gpus if name != UNTYPED)),
        time_limit=_time(row.get("TimeLimit", "")),
        queue=_word(row.get("Partition")),
        account=_word(row.get("Account")),
        elements=count_elements(expression) if expression else None,
        throttle=throttle or None,
        reason=_word(row.get("Reason")),
    )


def _memory(row: Mapping[str, str], tres: str) -> Bytes | None:
    """Give the memory of an element on its node; of all nodes where it has several."""
    found = re.search(r"(?:^|,)mem=([^,]+)", tres)
    if found:
        return _size(found[1])
    for key in _MEMORY:
        size = _size(row.get(key, ""))
        if size is not None:
            cpus = whole_number(row.get("NumCPUs", "").partition("-")[0]) or 1
            return size * (cpus if key == _PER_CPU else 1)
    return None


def _size(text: str) -> Bytes | None:
    """Read ``100M``, ``62.50G``, which is how Slurm writes what it would refuse."""
    whole, dot, rest = text.partition(".")
    try:
        if not dot:
            return slurm.parse_memory(text) or None
        unit = rest[-1:]
        exact = slurm.parse_memory(f"{whole}{unit}")
        part = slurm.parse_memory(f"1{unit}") * float(f"0.{rest[:-1]}")
    except (FormatError, ValueError):
        return None
    return exact + round(part)


def _time(text: str) -> int | None:
    try:
        return None if text in _NONE else slurm.parse_time(text)
    except FormatError:
        return None


def _word(text: str | None) -> str | None:
    return None if text is None or text in _NONE else text
