"""Read sacct: the resources that jobs requested and used.

``sacct -P`` quotes nothing: a job's name, command or comment may contain the delimiter
and newlines. A row is therefore read by its header, and checked.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from itertools import combinations, islice

import msgspec

from weigh.model.record import State
from weigh.model.report import Accounted, AccountedStep, PastJob, Whose
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.schedulers.slurm.commands import STATES
from weigh.units import DAY, HOUR, KIB, MINUTE, Bytes, Seconds

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
    "NNodes",
    "NTasks",
    "AveRSS",
    "TRESUsageInTot",
    "Start",
    "End",
    "JobName",  # the last: it may contain the delimiter
)
_PAST_FIELDS = (
    *_FIELDS[:-1],
    *("Submit", "Eligible", "User", "Account", "Partition", "ExitCode", "JobName"),
)
# columns whose values users or sites write
_FREE = frozenset(
    [
        "jobname",
        "submitline",
        "workdir",
        "comment",
        "admincomment",
        "systemcomment",
        "container",
        "extra",
        "reason",
        "wckey",
        "reservation",
        "constraints",
        "failednode",
    ]
)
_COUNTS = frozenset(
    [
        "alloccpus",
        "ncpus",
        "reqcpus",
        "allocnodes",
        "nnodes",
        "ntasks",
        "elapsedraw",
        "cputimeraw",
        "uid",
        "gid",
        "dbindex",
    ]
)
_SPANS = frozenset(
    ["elapsed", "cputime", "totalcpu", "systemcpu", "usercpu", "suspended"]
)
_MOMENTS = frozenset(["submit", "eligible", "start", "end"])
_OTHER_NAMES = {
    "alloccpus": ("ncpus",),
    "nnodes": ("allocnodes",),
    "jobid": ("jobidraw",),
}
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)([nc]?)$")
_count = lru_cache(maxsize=1 << 14)(whole_number)  # few values, many times
_TASK = re.compile(r"^(\d+)(?:[_+](\d+))?(?:\.(.+))?$", re.DOTALL)
_CPU_TIME = re.compile(r"^(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,8}):(\d\d(?:\.\d+)?)$")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:[0-5]\d:[0-5]\d$", re.ASCII)
_MOST_DIGITS = 15
_LONGEST_ROW = 1 << 16
_MOST_FITS = 500  # ways to distribute delimiters over the free columns of a row
_NO_NODE = frozenset(("", "None assigned"))
_ONE_NODE = frozenset(("batch", "interactive"))
_NOT_THE_JOBS = "extern"
_NO_ENERGY = frozenset(("", "0"))
_OURS = "weigh"  # the name of the step that measures others
_MOST_STEPS = 50
_KILLED_BY_ROOT = "CANCELLED by 0"
_IN_NO_TIME = frozenset(("", "Unknown", "None"))
SAMPLED_EVERY: Seconds = 30.0  # slurm.conf(5), JobAcctGatherFrequency
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

    A job's own line holds what was requested, its steps what was used. The parts of a
    heterogeneous job are its elements.
    """
    rows = (line.split("|") for line in out.splitlines())
    least = _FIELDS.index("NNodes")  # the first columns, which are enough
    known = (
        row[: len(_FIELDS)] + [""] * (len(_FIELDS) - len(row))
        for row in rows
        if len(row) >= least
    )
    jobs = _jobs(known, _Columns(_FIELDS))
    found = {job.accounted.element: job.accounted for job in jobs}
    return tuple(one for _, one in sorted(found.items()))


def past_argv(whose: Whose, span: Seconds) -> Argv:
    """Return the command that lists the jobs of the last *span* seconds."""
    who = ("-a",) if whose.user is None else ("-u", whose.user)
    if whose.account is not None:
        who = (*who, "-A", whose.account)
    days, rest = divmod(round(span), DAY)
    since = ("-S", f"now-{round(span)}seconds" if rest else f"now-{days}days")
    return ("sacct", "-P", "-D", *who, *since, "-o", ",".join(_PAST_FIELDS))


def past_file(env: Mapping[str, str]) -> str | None:  # noqa: ARG001 - a database
    """Return None: all jobs are in a database."""
    return None


def is_past(head: str) -> bool:
    """Return whether *head* begins with the header of ``sacct -P``."""
    names = _header(head.partition("\n")[0])
    return names is not None and {"JobID", "State"} <= {*names[0]}


def read_past(lines: Iterable[str]) -> Iterator[PastJob | None]:
    """Yield each job of ``sacct -P``, with any columns; None for a row that is dropped.

    The first line is the header. A requeued job is a job for each of its attempts,
    which sacct lists apart (-D). Times without a zone are local.
    """
    lines = iter(lines)
    header = _header(next(lines, "").rstrip("\r\n"))
    if header is None:
        return
    names, separator = header
    at = _Columns(names)
    dropped: list[int] = []
    for job in _jobs(_rows(lines, separator, at, dropped.append), at):
        yield from (None for _ in dropped)
        dropped.clear()
        yield job
    yield from (None for _ in dropped)


class _Columns:
    """The places of sacct's columns, and how to read their values from a row.

    A column that is not there is read as an empty text.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.width = len(names)
        places = {name.lower(): place for place, name in enumerate(names)}
        for name, others in _OTHER_NAMES.items():
            for other in others:
                if name not in places and other in places:
                    places[name] = places[other]
        self._places = places
        self.free = [n for n, name in enumerate(names) if name.lower() in _FREE]
        self.job = self.of("jobid")
        self.state = self.of("state")
        self.start, self.end = self.of("start"), self.of("end")
        self.submit, self.eligible = self.of("submit"), self.of("eligible")
        self.account, self.queue = self.of("account"), self.of("partition")
        self.max_rss, self.ave_rss = self.of("maxrss"), self.of("averss")
        self.total = self.of("tresusageintot")
        self.most = self.of("tresusageinmax")
        self.tasks, self.nodes = self.of("ntasks"), self.of("nnodes")
        self.energy = self.of("consumedenergyraw")
        self.cpus = self.of("alloccpus")
        self.tres = self.of("alloctres")
        self.elapsed = self.of("elapsed")
        self.elapsed_raw = self.of("elapsedraw")
        self.exit_code = self.of("exitcode")
        self.name = self.of("jobname")
        self.node = self.of("nodelist")
        self.asked = self.of("reqmem")
        self.command = self.of("submitline")
        self.limit = self.of("timelimit")
        self.limit_raw = self.of("timelimitraw")
        self.cpu_time = self.of("totalcpu")
        self.user = self.of("user")
        self.cwd = self.of("workdir")
        self._checks = [
            (place, check)
            for names, check in (
                (_COUNTS, _is_count),
                (_SPANS, _is_span),
                (_MOMENTS, _is_time),
                (("reqmem",), _is_size),
                (("workdir",), _is_folder),
            )
            for name, place in places.items()
            if name in names
        ]

    def of(self, name: str) -> int:
        """Return the place of a column; beyond the end of a row if it is not there."""
        return self._places.get(name, self.width)

    def fits(self, row: Sequence[str]) -> bool:
        """Return whether the values are in their own columns."""
        return (
            _TASK.match(row[self.job]) is not None
            and _state(row[self.state]) != "UNKNOWN"
            and all(check(row[place]) for place, check in self._checks)
        )


def _header(line: str) -> tuple[list[str], str] | None:
    """Read the columns and their delimiter; None if *line* is no such header."""
    found = re.match(r"\w+([^\w \n]{1,4})\w", line)
    if found is None:
        return None
    return line.split(found[1]), found[1]


def _rows(
    lines: Iterable[str], separator: str, at: _Columns, drop: Callable[[int], None]
) -> Iterator[list[str]]:
    """Yield rows of the header's width; call *drop* for each that cannot be read.

    A line with too few delimiters continues in the next: a newline was in a value.
    """
    held = ""
    width = at.width
    for line in lines:
        line = line.rstrip("\n")  # noqa: PLW2901 - the loop runs for a million lines
        row = line.split(separator)
        if len(row) == width and not held:
            yield row
            continue
        if held:
            whole = f"{held}\n{line}"
            fields = whole.split(separator)
            if len(fields) < width and len(whole) < _LONGEST_ROW:
                held = whole
                continue
            fitting = _fitted(fields, separator, at)
            if fitting is not None:
                held = ""
                yield fitting
                continue
            drop(1)  # a torn row: this line may be a whole one
            held = ""
        if len(row) < width:
            held = line
            continue
        fitting = _fitted(row, separator, at)
        if fitting is None:
            drop(1)
        else:
            yield fitting
    if held:
        drop(1)


def _fitted(fields: list[str], separator: str, at: _Columns) -> list[str] | None:
    """Join the values that delimiters of their own have split; None if nothing fits."""
    surplus = len(fields) - at.width
    if surplus == 0:
        return fields if at.fits(fields) else None
    if surplus < 0 or not at.free:
        return None
    # how many surplus delimiters each free column has: stars and bars
    places = range(surplus + len(at.free) - 1)
    for bars in islice(combinations(places, len(at.free) - 1), _MOST_FITS):
        edges = [-1, *bars, surplus + len(at.free) - 1]
        extra = [edges[n + 1] - edges[n] - 1 for n in range(len(at.free))]
        row, place = [], 0
        more = dict(zip(at.free, extra, strict=True))
        for column in range(at.width):
            count = 1 + more.get(column, 0)
            row.append(separator.join(fields[place : place + count]))
            place += count
        if at.fits(row):
            return row
    return None


def _jobs(rows: Iterable[list[str]], at: _Columns) -> Iterator[PastJob]:
    """Join steps to their jobs, which sacct lists before them; other rows are skipped.

    They are joined by order, not by id: a requeued job has its id twice.
    """
    job: list[str] | None = None
    steps: list[list[str]] = []
    prefix = ""
    for row in rows:
        row.append("")  # a column that is not there
        name = row[at.job]
        if "." in name:
            if job is not None and name.startswith(prefix):
                steps.append(row)
            continue
        if job is not None:
            yield _job(job, steps, at)
        job, steps, prefix = row, [], f"{name}."
        if _TASK.match(name) is None:  # 12_[3-9], which waits
            job = None
    if job is not None:
        yield _job(job, steps, at)


class _Step(msgspec.Struct, frozen=True, gc=False):
    """A step: its name, times as sacct writes them, and memory on its fullest node."""

    name: str
    start: str
    end: str
    memory: Bytes | None


def _job(row: list[str], rows: list[list[str]], at: _Columns) -> PastJob:
    place = _TASK.match(row[at.job])
    index = (place[2] if place else None) or "0"
    cpus = _count(row[at.cpus])
    nodes = _count(row[at.nodes]) or 1
    limit = _limit(row, at)
    node = row[at.node]
    # a job without a node never started
    is_waiting = node in _NO_NODE and at.node < at.width
    state = _state(row[at.state])
    asked = _asked(row[at.asked], cpus, nodes)
    steps = [_step(one, at) for one in rows]
    memory = _memory(steps)
    if memory is None:
        memory = _size(row[at.max_rss])  # of a list of jobs without steps
    is_short = _was_over_memory(row[at.state], memory, asked)
    energies = [row[at.energy]]
    for one, step in zip(rows, steps, strict=True):
        energies.append(one[at.energy])
        word = one[at.state]
        if word != "COMPLETED":  # nearly all are
            is_short |= _state(word) == "OUT_OF_MEMORY"
            is_short |= _was_over_memory(word, step.memory, asked)
    if is_short and state in {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}:
        state = "OUT_OF_MEMORY"
    gpu_memory, gpu_share = _gpu_use(rows, at)
    code, _, signal = row[at.exit_code].partition(":")
    return PastJob(
        id=row[at.job],
        name=row[at.name],
        user=row[at.user] or None,
        command=row[at.command] or None,
        cwd=row[at.cwd] or None,
        exit_code=_count(code),
        signal=_count(signal) or None,
        started=_epoch(row[at.start]),
        ended=_epoch(row[at.end]),
        submitted=_epoch(row[at.submit]),
        eligible=_epoch(row[at.eligible]),
        account=row[at.account] or None,
        queue=row[at.queue] or None,
        accounted=Accounted(
            element=int(index) if len(index) <= _MOST_DIGITS else 0,
            state=state,
            node=None if node in _NO_NODE else node,
            wall_time=None if is_waiting else _elapsed(row, at),
            cpu_time=_cpu_time(row[at.cpu_time]),
            max_rss=memory,
            cpus=cpus,
            nodes=_count(row[at.nodes]) or None,
            gpus=_gpus(row[at.tres]),
            memory_asked=asked,
            time_limit=limit,
            gpu_memory=gpu_memory,
            gpu_utilization=gpu_share,
            steps=tuple(_listed(rows, steps, at)),
            energy=_most(_energy(one) for one in energies if one not in _NO_ENERGY),
        ),
    )


def _step(row: list[str], at: _Columns) -> _Step:
    """Read a step. Its memory on a node is a share of all tasks', at least one task's.

    MaxRSS is the largest task, TRESUsageInTot the sum of all.
    """
    name = row[at.job].partition(".")[2]
    if name == _NOT_THE_JOBS:
        return _Step(name, "", "", None)
    largest = _size(row[at.max_rss])
    total = _tres_memory(row[at.total])
    tasks = _count(row[at.tasks]) or 1
    if total is None:
        each = _size(row[at.ave_rss]) or largest
        total = None if each is None else each * tasks
    nodes = 1 if name in _ONE_NODE else _count(row[at.nodes]) or 1
    memory = largest
    if total is not None:
        memory = max(-(-total // nodes), largest or 0)
    return _Step(name, row[at.start], row[at.end], memory)


def _listed(
    rows: Sequence[list[str]], steps: Sequence[_Step], at: _Columns
) -> Iterator[AccountedStep]:
    """Yield the steps that the job itself started."""
    own = [(r, s) for r, s in zip(rows, steps, strict=True) if s.name.isdecimal()]
    for row, step in own[:_MOST_STEPS]:
        name = row[at.name]
        if name != _OURS:
            yield AccountedStep(
                name=step.name,
                program=name or None,
                state=_state(row[at.state]),
                tasks=_count(row[at.tasks]) or None,
                nodes=_count(row[at.nodes]) or None,
                memory=step.memory,
            )


def _memory(steps: Sequence[_Step]) -> Bytes | None:
    """Return the batch script's memory and the most of steps that ran side by side.

    sacct knows the times to the second; a step that ends as another begins was before.
    """
    numbered: list[tuple[str, str, Bytes]] = []
    script: Bytes | None = None
    for step in steps:
        if step.memory is None:
            continue
        if step.name in _ONE_NODE:
            script = (script or 0) + step.memory
        else:
            numbered.append((step.start, step.end, step.memory))
    if not numbered:
        return script
    if len(numbered) == 1:
        return (script or 0) + numbered[0][2]
    numbered.sort()
    held = most = 0
    running: list[tuple[str, Bytes]] = []
    for start, end, memory in numbered:
        while running and running[0][0] <= start:
            held -= heapq.heappop(running)[1]
        heapq.heappush(running, (end, memory))
        held += memory
        most = max(most, held)
    return (script or 0) + most


def _was_over_memory(state: str, memory: Bytes | None, asked: Bytes | None) -> bool:
    """Return whether a step was killed for memory by Slurm's own samples.

    OverMemoryKill has no state of its own: root cancels the step (slurm.conf(5),
    JobAcctGatherParams).
    """
    if state != _KILLED_BY_ROOT or memory is None or not asked:
        return False
    return memory > asked


def _gpu_use(
    rows: Sequence[list[str]], at: _Columns
) -> tuple[Bytes | None, float | None]:
    memory: Bytes | None = None
    share: float | None = None
    for row in rows:
        if "gres/gpu" in row[at.most]:
            used = dict(_pairs(row[at.most]))
            memory = _most((memory, _size(used.get("gres/gpumem", ""))))
            busy = _count(used.get("gres/gpuutil"))
            share = share if busy is None else busy / 100
    return memory, share


_STATES: dict[str, State] = dict(STATES)


def _state(word: str) -> State:
    found = _STATES.get(word)
    if found is None:
        found = STATES.get(word.partition(" ")[0].rstrip("+"), "UNKNOWN")
    return found


@lru_cache(maxsize=1 << 10)
def _asked(text: str, cpus: int | None, nodes: int) -> Bytes | None:
    """Read ReqMem as bytes on one node.

    It is the whole job's; before 21.08 ``4Gn`` is per node and ``4Gc`` is per CPU.
    """
    size = _size(text)
    if not size:
        return None
    if text.endswith("n"):
        return size
    if text.endswith("c"):
        return None if cpus is None else -(-size * cpus // nodes)
    return -(-size // nodes)


def _size(text: str) -> Bytes | None:
    """Read ``3768K``, ``105683.50K`` and ``108007680``; units vary in one column."""
    if text[-1:] == "K" and text[:-1].isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text[:-1]) * KIB  # nearly all: this is twice as fast
    found = _SIZE.match(text.strip()) if text else None
    if found is None:
        return None
    return round(float(found[1]) * (1 << 10 * _POWERS[found[2]]))


def _tres_memory(text: str) -> Bytes | None:
    """Read ``cpu=00:00:06,mem=422734K``; where nothing was sampled, it has no mem."""
    place = text.find("mem=")
    if place < 0 or (place and text[place - 1] != ","):
        return None
    end = text.find(",", place)
    return _size(text[place + 4 : end if end >= 0 else len(text)])


def _cpu_time(text: str) -> Seconds | None:
    """Read ``1-02:03:04``, ``02:03:04`` and ``03:04.567``."""
    found = _CPU_TIME.match(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups("0")
    whole = int(days) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
    return whole + float(seconds)


def _elapsed(row: list[str], at: _Columns) -> Seconds | None:
    seconds = _count(row[at.elapsed_raw])
    if seconds is not None:
        return float(seconds)
    return _cpu_time(row[at.elapsed])


def _limit(row: list[str], at: _Columns) -> int | None:
    minutes = _count(row[at.limit_raw])
    if minutes is not None:
        return minutes * MINUTE
    seconds = _cpu_time(row[at.limit])
    return None if seconds is None else round(seconds)


@lru_cache(maxsize=1 << 12)  # a job's times repeat, and those of its steps
def _epoch(text: str) -> Seconds | None:
    """Read a local time in ISO 8601, or seconds since the epoch (SLURM_TIME_FORMAT)."""
    if text in _IN_NO_TIME:
        return None
    if text.isdecimal():  # seconds: SLURM_TIME_FORMAT
        return whole_number(text)
    if _MOMENT.match(text):  # nearly all; zones change by whole hours of local time
        hour = _hour(text[:13])
        return hour and hour + int(text[14:16]) * MINUTE + int(text[17:19])
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


@lru_cache(maxsize=1 << 14)
def _hour(text: str) -> Seconds | None:
    """Return when a local hour (``2026-01-31T23``) begins, None if there is none."""
    try:
        return datetime.fromisoformat(f"{text}:00:00").timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _is_time(text: str) -> bool:
    return text in _IN_NO_TIME or _epoch(text) is not None


def _is_folder(text: str) -> bool:
    return not text or text.startswith("/")


def _is_count(text: str) -> bool:
    return not text or _count(text) is not None


def _is_span(text: str) -> bool:
    return not text or _cpu_time(text) is not None


def _is_size(text: str) -> bool:
    return not text or _size(text.rstrip("?")) is not None


@lru_cache(maxsize=1 << 10)
def _gpus(tres: str) -> int | None:
    """Read ``gres/gpu=2``; where a site tracks only types, their sum."""
    if "gres/gpu" not in tres:
        return None
    found = dict(_pairs(tres))
    if "gres/gpu" in found:
        return _count(found["gres/gpu"])
    typed = [_count(n) for name, n in found.items() if name[:9] == "gres/gpu:"]
    return sum(number or 0 for number in typed) if typed else None


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value


def _energy(text: str) -> float | None:
    """Read joules; without an energy plugin the field is 0 or has all bits set."""
    number = _count(text)
    return float(number) if number and number < 1 << 60 else None


def _most(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(max(known)) if known else None
