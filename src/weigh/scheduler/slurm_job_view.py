"""What Slurm recorded as a job's request: ``scontrol -o show job``, read as text.

The keys are those of 22.05 to 25.05. ``TRES=`` (``ReqTRES=`` from 23.02 on) lists only
what the site tracks: GPUs are missing from it unless AccountingStorageTRES names
``gres/gpu``. ``TresPerNode=`` and its kin have them as they were requested.
"""

import re
from collections.abc import Mapping, Sequence

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
_TRES_MEMORY = re.compile(r"(?:^|,)mem=([^,]+)")
# gres:gpu:v100:2 (22.05), gres/gpu:v100:2 (23.11), gres/gpu=2; gpu:2 before 19.05
_GPU = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<kind>[^:=,()\d][^:=,()]*))?(?:[:=](?P<n>\d{1,9}))?"
    r"(?=[,(]|$)"
)
_MEMORY_PER_GPU = re.compile(r"(?:^|,)(?:gres[:/])?gpu[:=]([^:=,]+)")


def parse_job(text: str) -> Understood | None:
    """Read the first job of *text*, of an array all its lines; None without a job."""
    rows = [
        pairs_of(_NAME.sub(" UserId=", line))
        for line in text.splitlines()
        if line.startswith("JobId=")
    ]
    if not rows:
        return None
    row = rows[0]
    if "HetJobId" in row:
        return Understood()  # each component has a request of its own
    tres = row.get("ReqTRES") or row.get("TRES") or ""
    gpus = _gpus(row, tres)
    throttles = (whole_number(one.get("ArrayTaskThrottle")) for one in rows)
    return Understood(
        memory=_memory(row, tres, None if gpus is None else sum(gpus.values())),
        cpus=_least(row.get("NumCPUs")),
        gpus=None if gpus is None else sum(gpus.values()),
        gpu_types=tuple(sorted(name for name in gpus or () if name != UNTYPED)),
        time_limit=_time(row.get("TimeLimit", "")),
        queue=_word(row.get("Partition")),
        account=_word(row.get("Account")),
        elements=_elements(rows),
        throttle=next(filter(None, throttles), None),
        reason=_word(row.get("Reason")),
    )


def _elements(rows: Sequence[Mapping[str, str]]) -> int | None:
    """Count the elements: those that wait share a line, each other one has its own."""
    job = rows[0].get("ArrayJobId")
    listed = [
        row["ArrayTaskId"]
        for row in rows
        if row.get("ArrayJobId") == job and row.get("ArrayTaskId")
    ]
    return sum(map(count_elements, listed)) if listed else None


def _gpus(row: Mapping[str, str], tres: str) -> dict[str, int] | None:
    """Count the GPUs of an element on all its nodes, by type; None if not known."""
    tracked = tres_gpus(tres)
    if tracked:
        return tracked
    times = {
        "TresPerJob": 1,
        "TresPerNode": _least(row.get("NumNodes")),
        "TresPerTask": whole_number(row.get("NumTasks")),
        "TresPerSocket": None,
        "Gres": _least(row.get("NumNodes")),
    }
    for key, times_each in times.items():
        counts = _requested_gpus(row.get(key, ""))
        if counts:
            if times_each is None:
                return None
            return {kind: n * times_each for kind, n in counts.items()}
    return {} if tres else None


def _requested_gpus(text: str) -> dict[str, int]:
    """Read ``gres:gpu:v100:2``; without a number it is one."""
    counts: dict[str, int] = {}
    for found in _GPU.finditer(text):
        kind = found["kind"] or UNTYPED
        counts[kind] = counts.get(kind, 0) + int(found["n"] or 1)
    return counts


def _memory(row: Mapping[str, str], tres: str, gpus: int | None) -> Bytes | None:
    """Return the memory of an element, on all nodes where it has several."""
    per_gpu = _MEMORY_PER_GPU.search(row.get("MemPerTres", ""))
    if per_gpu:  # TRES shows the default instead while the job waits
        each = _size(per_gpu[1])
        return None if each is None or not gpus else each * gpus
    total = _TRES_MEMORY.search(tres)
    if total:
        return _size(total[1])
    for key, count in (("MinMemoryNode", "NumNodes"), ("MinMemoryCPU", "NumCPUs")):
        size = _size(row.get(key, ""))
        if size is not None:
            return size * (_least(row.get(count)) or 1)
    return None


def _least(text: str | None) -> int | None:
    """Read ``3``, and the fewest of ``2-4``."""
    return whole_number((text or "").partition("-")[0])


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
