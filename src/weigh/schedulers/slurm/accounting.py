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
from operator import itemgetter

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
_IN_HOUR = {
    f":{second // 60:02}:{second % 60:02}": second for second in range(round(HOUR))
}
_MOST_DIGITS = 15
_LONGEST_ROW = 1 << 16
_MOST_FITS = 500  # ways to distribute delimiters over the free columns of a row
_NO_NODE = frozenset(("", "None assigned"))
_RESIZED = "RESIZING"
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


_OF_JOB = (
    *("jobid", "jobname", "user", "submitline", "workdir", "state", "exitcode"),
    *("start", "end", "submit", "eligible", "account", "partition", "nodelist"),
    *("elapsedraw", "elapsed", "totalcpu", "maxrss", "consumedenergyraw"),
    *("alloccpus", "nnodes", "alloctres", "reqmem", "timelimitraw", "timelimit"),
)
_OF_STEP = (
    *("jobid", "jobname", "state", "start", "end", "ntasks", "nnodes"),
    *("maxrss", "averss", "tresusageintot", "tresusageinmax", "consumedenergyraw"),
)


class _Columns:
    """The places of sacct's columns, and how to read their values from a row.

    ``of_job`` and ``of_step`` pick the values of a job and of a step at once. A column
    that is not there is read as an empty text.
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
        self.job, self.state = self.of("jobid"), self.of("state")
        self.of_job = itemgetter(*map(self.of, _OF_JOB))
        self.of_step = itemgetter(*map(self.of, _OF_STEP))
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

    They are joined by order, not by id: a requeued job has its id twice. A job whose
    memory or nodes were reduced while it ran is listed in parts, and is one job here.
    """
    resized: dict[str, list[_Part]] = {}
    for part in _parts(rows, at):
        name = part.row[at.job]
        if part.row[at.state].startswith(_RESIZED):
            resized.setdefault(name, []).append(part)
        elif name in resized:
            yield _whole([*resized.pop(name), part], at)
        else:
            yield _job(part.row, part.steps, at, part.element)
    for parts in resized.values():
        yield _whole(parts, at)


class _Part(msgspec.Struct, frozen=True, gc=False):
    """The row of a job, or of a part of it, and those of its steps."""

    row: list[str]
    steps: list[list[str]]
    element: str | None


def _parts(rows: Iterable[list[str]], at: _Columns) -> Iterator[_Part]:
    job: list[str] | None = None
    steps: list[list[str]] = []
    prefix, element = "", None
    for row in rows:
        row.append("")  # a column that is not there
        name = row[at.job]
        if "." in name:
            if job is not None and name.startswith(prefix):
                steps.append(row)
            continue
        if job is not None:
            yield _Part(job, steps, element)
        job, steps, prefix, element = row, [], f"{name}.", None
        if not name.isdecimal():
            place = _TASK.match(name)
            if place is None:  # 12_[3-9], which waits
                job = None
            else:
                element = place[2]
    if job is not None:
        yield _Part(job, steps, element)


def _whole(parts: Sequence[_Part], at: _Columns) -> PastJob:
    """Return the job of these parts: it began as the first, and ended as the last.

    sacct lists its steps with the part in which they began.
    """
    first, last = parts[0], parts[-1]
    row = [*first.row]
    for place in (at.state, at.of("exitcode"), at.of("end")):
        if place < at.width:
            row[place] = last.row[place]
    job = _job(row, [step for part in parts for step in part.steps], at, first.element)
    each = [_job(part.row, [], at, part.element).accounted for part in parts]
    own = job.accounted
    # what ran out of memory did so with what was left to it
    is_short = own.state == "OUT_OF_MEMORY"
    return msgspec.structs.replace(
        job,
        accounted=msgspec.structs.replace(
            own,
            wall_time=_sum(one.wall_time for one in each),
            cpu_time=_sum(one.cpu_time for one in each),
            memory_asked=each[-1].memory_asked if is_short else own.memory_asked,
        ),
    )


def _sum(spans: Iterable[Seconds | None]) -> Seconds | None:
    found = [*spans]
    known = [one for one in found if one is not None]
    return sum(known) if len(known) == len(found) else None


class _Request(msgspec.Struct, frozen=True, gc=False):
    """What a job requested; ``memory`` is on one node, ``time`` the limit."""

    cpus: int | None
    nodes: int | None
    gpus: int | None
    memory: Bytes | None
    time: int | None


def _job(
    row: list[str], rows: list[list[str]], at: _Columns, element: str | None
) -> PastJob:
    # fmt: off
    (
        job, name, user, command, cwd, word, code,
        start, end, submit, eligible, account, queue, node,
        elapsed_raw, elapsed, cpu_time, max_rss, energy, *asked,
    ) = at.of_job(row)
    # fmt: on
    request = _request(*asked)
    used = _used(rows, at, request.memory)
    gpu_memory, gpu_share = _gpu_use(used.gpus) if used.gpus else (None, None)
    # MaxRSS: of a list of jobs without steps
    memory = _size(max_rss) if used.memory is None else used.memory
    state = _state(word)
    is_short = used.is_short or _was_over_memory(word, memory, request.memory)
    if is_short and state in {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}:
        state = "OUT_OF_MEMORY"
    # a job without a node never started
    is_waiting = node in _NO_NODE and at.of("nodelist") < at.width
    exit_code, signal = _ended_with(code)
    return PastJob(
        id=job,
        name=name,
        user=user or None,
        command=command or None,
        cwd=cwd or None,
        exit_code=exit_code,
        signal=signal,
        started=_epoch(start),
        ended=_epoch(end),
        submitted=_epoch(submit),
        eligible=_epoch(eligible),
        account=account or None,
        queue=queue or None,
        accounted=Accounted(
            element=_count(element) or 0,
            state=state,
            node=None if node in _NO_NODE else node,
            wall_time=None if is_waiting else _elapsed(elapsed_raw, elapsed),
            cpu_time=_cpu_time(cpu_time),
            max_rss=memory,
            cpus=request.cpus,
            nodes=request.nodes,
            gpus=request.gpus,
            memory_asked=request.memory,
            time_limit=request.time,
            gpu_memory=gpu_memory,
            gpu_utilization=gpu_share,
            steps=tuple(used.steps),
            energy=_most(map(_energy, (energy, *used.energies))),
        ),
    )


class _Used(msgspec.Struct, frozen=True, gc=False):
    """What the steps of a job used; ``is_short``: one was killed for memory."""

    memory: Bytes | None
    is_short: bool
    energies: set[str]
    gpus: list[str]
    steps: list[AccountedStep]


def _used(rows: list[list[str]], at: _Columns, asked: Bytes | None) -> _Used:
    script: Bytes | None = None
    numbered: list[tuple[str, str, Bytes]] = []
    listed: list[AccountedStep] = []
    is_short, energies, gpus = False, set[str](), list[str]()
    for row in rows:
        # fmt: off
        (
            job, program, word, start, end, tasks, nodes,
            max_rss, ave_rss, total, most, energy,
        ) = at.of_step(row)
        # fmt: on
        name = job[job.find(".") + 1 :]
        memory = None
        if name != _NOT_THE_JOBS:
            is_script = name in _ONE_NODE
            on = "1" if is_script else nodes
            memory = _on_a_node(tasks, on, max_rss, ave_rss, total)
            if memory is not None and is_script:
                script = (script or 0) + memory
            elif memory is not None:
                numbered.append((start, end, memory))
        if word != "COMPLETED":  # nearly all are
            is_short |= _state(word) == "OUT_OF_MEMORY"
            is_short |= _was_over_memory(word, memory, asked)
        if energy not in _NO_ENERGY:
            energies.add(energy)
        if "gres/gpu" in most:
            gpus.append(most)
        if name.isdecimal() and program != _OURS and len(listed) < _MOST_STEPS:
            listed.append(
                AccountedStep(
                    name=name,
                    program=program or None,
                    state=_state(word),
                    tasks=_count(tasks) or None,
                    nodes=_count(nodes) or None,
                    memory=memory,
                )
            )
    if numbered:
        script = (script or 0) + _side_by_side(numbered)
    return _Used(script, is_short, energies, gpus, listed)


def _side_by_side(steps: list[tuple[str, str, Bytes]]) -> Bytes:
    """Return the most memory of steps, by start and end, that ran at once.

    sacct knows the times to the second; a step that ends as another begins was before.
    """
    if len(steps) == 1:
        return steps[0][2]
    held = most = 0
    running: list[tuple[str, Bytes]] = []
    for start, end, memory in sorted(steps):
        while running and running[0][0] <= start:
            held -= heapq.heappop(running)[1]
        heapq.heappush(running, (end, memory))
        held += memory
        most = max(most, held)
    return most


def _gpu_use(rows: Iterable[str]) -> tuple[Bytes | None, float | None]:
    """Read the largest GPU memory of the steps, and the last one's utilization."""
    memory: Bytes | None = None
    share: float | None = None
    for row in rows:
        used = dict(_pairs(row))
        memory = _most((memory, _size(used.get("gres/gpumem", ""))))
        busy = _count(used.get("gres/gpuutil"))
        share = share if busy is None else busy / 100
    return memory, share


def _on_a_node(
    tasks: str, nodes: str, max_rss: str, ave_rss: str, total: str
) -> Bytes | None:
    """Return a step's memory on a node: a share of all tasks', at least one task's.

    MaxRSS is the largest task, TRESUsageInTot the sum of all.
    """
    largest, held = _size(max_rss), _tres_memory(total)
    if held is None:
        each = _size(ave_rss) or largest
        if each is None:
            return None
        held = each * (_count(tasks) or 1)
    if nodes != "1":
        held = -(-held // (_count(nodes) or 1))
    return held if largest is None or largest < held else largest


def _was_over_memory(state: str, memory: Bytes | None, asked: Bytes | None) -> bool:
    """Return whether a step was killed for memory by Slurm's own samples.

    OverMemoryKill has no state of its own: root cancels the step (slurm.conf(5),
    JobAcctGatherParams).
    """
    if state != _KILLED_BY_ROOT or memory is None or not asked:
        return False
    return memory > asked


_STATES: dict[str, State] = dict(STATES)


def _state(word: str) -> State:
    found = _STATES.get(word)
    if found is None:
        found = STATES.get(word.partition(" ")[0].rstrip("+"), "UNKNOWN")
    return found


@lru_cache(maxsize=1 << 14)  # alike for all elements of an array
def _request(  # noqa: PLR0913, PLR0917 - the columns of a row
    cpus: str, nodes: str, tres: str, memory: str, minutes: str, limit: str
) -> _Request:
    on = _count(nodes) or None
    processors = _count(cpus)
    return _Request(
        cpus=processors,
        nodes=on,
        gpus=_gpus(tres),
        memory=_asked(memory, processors, on or 1),
        time=_limit(minutes, limit),
    )


@lru_cache(maxsize=1 << 10)
def _ended_with(text: str) -> tuple[int | None, int | None]:
    """Read ``1:0``: an exit code and a signal."""
    code, _, signal = text.partition(":")
    return _count(code), _count(signal) or None


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
    place = 0 if text.startswith("mem=") else text.find(",mem=") + 1
    if not place and not text.startswith("mem="):
        return None
    return _size(text[place + 4 :].partition(",")[0])


def _cpu_time(text: str) -> Seconds | None:
    """Read ``1-02:03:04``, ``02:03:04`` and ``03:04.567``."""
    rest = _IN_HOUR.get(text[2:])
    if rest is not None and text[:2].isdecimal():
        return float(int(text[:2]) * HOUR + rest)
    found = _CPU_TIME.match(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups("0")
    whole = int(days) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
    return whole + float(seconds)


def _elapsed(raw: str, text: str) -> Seconds | None:
    seconds = _count(raw)
    return _cpu_time(text) if seconds is None else float(seconds)


def _limit(raw: str, text: str) -> int | None:
    minutes = _count(raw)
    if minutes is not None:
        return minutes * MINUTE
    seconds = _cpu_time(text)
    return None if seconds is None else round(seconds)


@lru_cache(maxsize=1 << 12)  # a job's times repeat, and those of its elements
def _epoch(text: str) -> Seconds | None:
    """Read a local time in ISO 8601, or seconds since the epoch (SLURM_TIME_FORMAT)."""
    rest = _IN_HOUR.get(text[13:])
    if rest is not None:  # nearly all; zones change by whole hours of local time
        hour = _hour(text[:13])
        return hour and hour + rest
    if text in _IN_NO_TIME:
        return None
    return whole_number(text) if text.isdecimal() else _moment(text)


@lru_cache(maxsize=1 << 14)
def _hour(text: str) -> Seconds | None:
    """Return when a local hour (``2026-01-31T23``) begins, None if there is none."""
    return _moment(f"{text}:00:00")


def _moment(text: str) -> Seconds | None:
    try:
        return datetime.fromisoformat(text).timestamp()
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
    number = None if text in _NO_ENERGY else _count(text)
    return float(number) if number and number < 1 << 60 else None


def _most(values: Iterable[float | None]) -> int | None:
    known = [value for value in values if value is not None]
    return round(max(known)) if known else None
