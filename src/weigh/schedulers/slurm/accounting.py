"""Read sacct: the resources that a job requested and used."""

import re
from collections.abc import Iterator

import msgspec

from weigh.model.record import State
from weigh.model.report import Accounted
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.schedulers.slurm.commands import STATES
from weigh.units import DAY, HOUR, MINUTE, Bytes, Seconds

_FIELDS = (
    "JobID",
    "State",
    "ElapsedRaw",
    "TimelimitRaw",
    "ReqMem",
    "AllocCPUS",
    "TotalCPU",
    "MaxRSS",
    "AllocTRES",
    "NodeList",
    "TRESUsageInMax",
    "ConsumedEnergyRaw",
)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)([nc]?)$")
_TASK = re.compile(r"^(\d+)(?:_(\d+))?(?:\.(.+))?$")
_CPU_TIME = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,8}):(\d\d(?:\.\d+)?)$")
_MOST_DIGITS = 15
_DEFAULT_INTERVAL = 30
_FREQUENCY = re.compile(r"^JobAcctGatherFrequency\s*=\s*(\S+)", re.MULTILINE)
_GATHERED = re.compile(r"^JobAcctGatherType\s*=\s*(\S+)", re.MULTILINE)
INTERVAL_ARGV: Argv = ("scontrol", "show", "config")
WORDS = AccountingWords(
    memory="sacct MaxRSS",
    unmeasured="{often}: peaks in between are missed",
    below="{often}, peaks are missed: trust weigh's",
    unsure="{often}, peaks may be missed",
    above=(
        "counts shared pages in each process, at some sites page cache too: an upper "
        "bound; weigh counts shared pages once"
    ),
    below_killed="its last sample before the kill: trust weigh's",
    above_killed="sampled after weigh's last sample of a killed task: trust it",
    # sacct leaves MaxRSS empty where no sample was taken
    zero="not zero: no sample was taken ({often})",
    cpu_time="sacct TotalCPU",
    wall_time="sacct Elapsed",
    gpu_memory="sacct gpumem",
    gpu_utilization="sacct gpuutil",
    sampled="{often}",
)


def argv(job: str) -> Argv:
    """Return the command that lists a job's steps, for an array of all its elements."""
    return ("sacct", "-n", "-P", "-j", job, "-o", ",".join(_FIELDS))


def parse_interval(config: str) -> Seconds | None:
    """Read the seconds between samples of tasks' memory; 0 if there are none.

    ``JobAcctGatherFrequency`` is ``30``, or ``task=30,energy=60``, where what is left
    out has its default of 30 (slurm.conf(5)). A job may have set another with
    ``--acctg-freq``. None if the site gathers nothing, or cannot be read.
    """
    gathered, found = _GATHERED.search(config), _FREQUENCY.search(config)
    if found is None or (gathered and gathered[1].endswith(("none", "(null)"))):
        return None
    word = found[1]
    if "=" in word:
        given = dict(part.partition("=")[::2] for part in word.lower().split(","))
        word = given.get("task", str(_DEFAULT_INTERVAL))
    number = whole_number(word)
    return None if number is None else float(number)


def parse(out: str) -> tuple[Accounted, ...]:
    """Read sacct's lines; lines that do not parse are skipped.

    A job's own line holds what was requested, its steps what was used. The largest step
    counts, because steps mostly run one after the other.
    """
    found: dict[int, Accounted] = {}
    for line in out.splitlines():
        fields = dict(zip(_FIELDS, line.split("|"), strict=False))
        place = _TASK.match(fields.get("JobID", ""))
        if len(fields) < len(_FIELDS) or place is None:
            continue
        element = int(place[2] or 0) if len(place[2] or "") <= _MOST_DIGITS else 0
        if place[3] is None:
            found[element] = _job(element, fields)
        elif element in found:
            found[element] = _with_step(found[element], fields)
    return tuple(one for _, one in sorted(found.items()))


def _job(element: int, fields: dict[str, str]) -> Accounted:
    cpus = whole_number(fields["AllocCPUS"])
    limit = whole_number(fields["TimelimitRaw"])
    node = None if fields["NodeList"] == "None assigned" else fields["NodeList"]
    # a job without a node never started
    wall = None if node is None else whole_number(fields["ElapsedRaw"])
    return Accounted(
        element=element,
        state=_state(fields["State"]),
        node=node,
        wall_time=None if wall is None else float(wall),
        cpu_time=_cpu_time(fields["TotalCPU"]),
        max_rss=_size(fields["MaxRSS"]),
        energy=_energy(fields["ConsumedEnergyRaw"]),
        cpus=cpus,
        gpus=_gpus(fields["AllocTRES"]),
        memory_asked=_asked(fields["ReqMem"], cpus),
        time_limit=None if limit is None else limit * MINUTE,
    )


def _with_step(job: Accounted, fields: dict[str, str]) -> Accounted:
    used = dict(_pairs(fields["TRESUsageInMax"]))
    is_short = _state(fields["State"]) == "OUT_OF_MEMORY"
    is_hidden = is_short and job.state in {"COMPLETED", "FAILED", "TIMEOUT"}
    share = whole_number(used.get("gres/gpuutil"))
    return msgspec.structs.replace(
        job,
        state="OUT_OF_MEMORY" if is_hidden else job.state,
        max_rss=_most(job.max_rss, _size(fields["MaxRSS"])),
        gpu_memory=_most(job.gpu_memory, _size(used.get("gres/gpumem", ""))),
        gpu_utilization=job.gpu_utilization if share is None else share / 100,
        energy=_most(job.energy, _energy(fields["ConsumedEnergyRaw"])),
    )


def _state(word: str) -> State:
    return STATES.get(word.partition(" ")[0].rstrip("+"), "UNKNOWN")


def _asked(text: str, cpus: int | None) -> Bytes | None:
    """Read ReqMem: before 21.08 ``4Gn`` is per node and ``4Gc`` is per CPU."""
    size = _size(text)
    if size is None or not text.endswith("c"):
        return size or None
    return None if cpus is None else size * cpus


def _size(text: str) -> Bytes | None:
    found = _SIZE.match(text.strip())
    if found is None:
        return None
    return round(float(found[1]) * (1 << 10 * _POWERS[found[2]]))


def _cpu_time(text: str) -> Seconds | None:
    """Read ``1-02:03:04``, ``02:03:04`` and ``03:04.567``."""
    found = _CPU_TIME.match(text)
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return days * DAY + hours * HOUR + minutes * MINUTE + seconds


def _gpus(tres: str) -> int | None:
    """Read ``gres/gpu=2`` from the allocated resources."""
    return whole_number(dict(_pairs(tres)).get("gres/gpu"))


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value


def _energy(text: str) -> float | None:
    """Read joules; without an energy plugin the field is 0 or has all bits set."""
    number = whole_number(text)
    return float(number) if number and number < 1 << 60 else None


def _most(one: float | None, other: float | None) -> int | None:
    known = [value for value in (one, other) if value is not None]
    return round(max(known)) if known else None
