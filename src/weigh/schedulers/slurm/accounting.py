"""Read sacct: the resources that jobs requested and used.

``sacct -P`` quotes nothing: a job's name, command or comment may contain the delimiter
and line ends. A row is therefore read by its header, and checked.
"""

import heapq
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from operator import itemgetter

import msgspec

from weigh.model.record import State
from weigh.model.report import (
    AccountedElement,
    AccountedStep,
    PastJob,
    without_impossible,
    without_unseen_nodes,
)
from weigh.schedulers.backend import PastAccounting
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.schedulers.slurm.scheduler import STATES
from weigh.schedulers.words import comma_pairs, whole_number
from weigh.units import DAY, HOUR, KIB, MINUTE, Bytes, Seconds

_OF_A_JOB = """
    JobID State ElapsedRaw TimelimitRaw ReqMem AllocCPUS TotalCPU MaxRSS AllocTRES
    NodeList TRESUsageInMax ConsumedEnergyRaw NNodes NTasks AveRSS TRESUsageInTot Start
    End
"""
_OF_THE_PAST = "User Partition ExitCode"
# last, so that a surplus delimiter shifts no other column
_LAST = "JobName"  # it may contain the delimiter
_FIELDS = (*_OF_A_JOB.split(), _LAST)
_PAST_FIELDS = (*_OF_A_JOB.split(), *_OF_THE_PAST.split(), _LAST)
# columns whose values users or sites write
_FREE = """
    jobname submitline workdir comment admincomment systemcomment container extra reason
    wckey reservation constraints failednode stderr stdin stdout
"""
_NUMBERS = """
    alloccpus ncpus reqcpus allocnodes nnodes ntasks elapsedraw cputimeraw uid gid
    dbindex elapsed cputime totalcpu systemcpu usercpu suspended submit eligible start
    end reqmem
"""
_NUMBER = re.compile(r"[\dT:.-]*[KMGTP]?[nc]?\??|Unknown|None")  # a time, a size
_OTHER_NAMES = {"ncpus": "alloccpus", "allocnodes": "nnodes", "jobidraw": "jobid"}
_TASK = re.compile(r"\d+(?:[_+](?:\d+|\[.+\]))?(?:\..+)?")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)[nc]?")
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,8}):(\d\d(?:\.\d+)?)")
_NO_NODE = frozenset(("", "None assigned"))
_NO_TIME = frozenset(("", "Unknown", "None"))
_NO_ENERGY = frozenset(("", "0"))
# state of the part of a job before it was reduced
_RESIZED = "RESIZING"
_MOST_STEPS = 50
# characters; a torn row must not swallow the rest of the text
_LONGEST_ROW = 1 << 16
_MOST_SURPLUS = 200  # delimiters in the values of a row
INTERVAL_ARGV: Argv = ("scontrol", "show", "config")
_GATHERED = re.compile(r"^JobAcctGather(Type|Frequency)\s*=\s*(\S+)", re.MULTILINE)


def parse_interval(config: str) -> Seconds | None:
    """Read the seconds between samples of tasks' memory; 0 if there are none.

    ``JobAcctGatherFrequency`` is ``30``, or ``task=30,energy=60``, where what is left
    out has its default of 30 (slurm.conf(5)). A job may have set another with
    ``--acctg-freq``. None if the site gathers nothing, or cannot be read.
    """
    found = dict(_GATHERED.findall(config))
    word = found.get("Frequency", "").lower()
    if found.get("Type", "").endswith(("none", "(null)")):
        return None
    if "=" in word:
        word = dict(part.partition("=")[::2] for part in word.split(",")).get(
            "task", "30"
        )
    # 0 switches periodic samples off: one is taken at the end
    number = whole_number(word)
    return None if number is None else float(number)


def _header(line: str) -> tuple[list[str], str]:
    """Read the columns and their delimiter; none if *line* is no such header."""
    found = re.match(r"\w+([^\w \n]{1,4})\w", line)
    return (line.split(found[1]), found[1]) if found else ([], "")


class _SacctColumns:
    """The places of sacct's columns; ``job`` and ``step`` pick values from a row.

    A column that is not there is read as an empty text.
    """

    def __init__(self, names: Sequence[str]) -> None:
        plain = [name.lower() for name in names]
        self.width = len(names)
        # equal columns have two names; if both are there, each has its own place below
        self.at = {_OTHER_NAMES.get(name, name): n for n, name in enumerate(plain)}
        self.at |= {name: n for n, name in enumerate(plain)}
        self.free = {n for n, name in enumerate(plain) if name in _FREE.split()}
        self.checks = {
            n: _CHECKS[name] for name, n in self.at.items() if name in _CHECKS
        }
        self.id, self.state = self.of("jobid"), self.of("state")
        self.job = itemgetter(*map(self.of, _JOB_VALUES.split()))
        self.step = itemgetter(*map(self.of, _STEP_VALUES.split()))

    def of(self, name: str) -> int:
        """Return the place of a column; beyond the end of a row if it is not there."""
        return self.at.get(name, self.width)


def _sacct_rows(
    lines: Iterable[str], separator: str, columns: _SacctColumns
) -> Iterator[list[str] | None]:
    """Yield rows of the header's width; None for one that cannot be read.

    A line with too few delimiters continues in the next: a line end was in a value.
    """
    held = ""
    for line in lines:
        text = line.rstrip("\n")
        fitting = _rejoined_fields(text, separator, columns)
        both = f"{held}\n{text}"
        if held and not fitting and len(both) < _LONGEST_ROW:
            text, fitting = both, _rejoined_fields(both, separator, columns)
        elif held:
            yield None  # a torn row: this line is one by itself
        held = text
        if fitting or text.count(separator) >= columns.width - 1:
            held = ""
            yield fitting
    if held:
        yield None


def _rejoined_fields(
    text: str, separator: str, columns: _SacctColumns
) -> list[str] | None:
    """Join the values that their own delimiters have split; None if nothing fits.

    Only free columns hold delimiters, the later ones first, where all values fit.
    """
    fields = text.split(separator)
    surplus = len(fields) - columns.width
    if not surplus:  # nearly all: times in a format of the user's are no fault
        both = (columns.id, columns.state)
        return fields if all(columns.checks[n](fields[n]) for n in both) else None
    if not 0 < surplus <= _MOST_SURPLUS:
        return None
    # the values from a column on, by the field with which they begin
    tails: dict[int, list[str]] = {len(fields): []}
    for column in reversed(range(columns.width)):
        check, most = columns.checks.get(column), surplus * (column in columns.free)
        after, tails = tails, {}
        for at in range(column, column + surplus + 1):
            for end in range(at + 1, at + most + 2):
                if end not in after:
                    continue
                value = separator.join(fields[at:end])
                if check is None or check(value):
                    tails[at] = [value, *after[end]]
                    break
    return tails.get(0)


def _slurm_past_jobs(
    rows: Iterable[list[str] | None], columns: _SacctColumns
) -> Iterator[PastJob | None]:
    """Join steps to their jobs, which sacct lists before them; pass None on.

    They are joined by order, not by id: a requeued job has its id twice.
    """
    job: list[str] | None = None
    prefix, steps = "", list[list[str]]()
    for row in rows:
        if row is None:
            yield None
            continue
        row.append("")  # a column that is not there
        name = row[columns.id]
        if "." in name:
            # a step without its job in front of it belongs to a row that was dropped
            if job is not None and name.startswith(prefix):
                steps.append(row)
            continue
        # a job that was reduced goes on in the next row
        if row[columns.state].startswith(_RESIZED):
            continue
        if job is not None:
            yield _slurm_past_job(job, steps, columns)
        is_job = _TASK.fullmatch(name) and "[" not in name  # not 12_[3-9], which waits
        job, prefix, steps = row if is_job else None, f"{name}.", []
    if job is not None:
        yield _slurm_past_job(job, steps, columns)


_JOB_VALUES = """
    jobid jobname user submitline workdir state exitcode start end
    partition nodelist elapsedraw elapsed totalcpu maxrss consumedenergyraw
    alloccpus nnodes alloctres reqmem timelimitraw timelimit
"""


def _slurm_past_job(
    row: list[str], rows: list[list[str]], columns: _SacctColumns
) -> PastJob:
    # fmt: off
    (
        job, name, user, command, cwd, word, code, start, end,
        queue, node, elapsed_raw, elapsed, cpu_time, max_rss, energy, *asked,
    ) = columns.job(row)
    # fmt: on
    cpus, nodes, gpus, memory_asked, limit = _requested_resources(tuple(asked))
    used = _usage_of_steps(rows, columns, memory_asked)
    # MaxRSS: of a list of jobs without steps
    memory = _sacct_size(max_rss) if used.memory is None else used.memory
    state = _state_of_sacct_word(word)
    # a job may be FAILED or CANCELLED because a step was killed for memory
    is_short = used.is_short or _was_over_memory(word, memory, memory_asked)
    if is_short and state in {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}:
        state = "OUT_OF_MEMORY"
    # a job without a node never started
    is_waiting = node in _NO_NODE and columns.of("nodelist") < columns.width
    accounted = without_impossible(
        AccountedElement(
            # 12_3 is an element, 12+1 a part of a heterogeneous job
            element=0 if job.isdecimal() else _count(re.split("[_+]", job)[1]) or 0,
            state=state,
            node=None if node in _NO_NODE else node,
            wall_time=None if is_waiting else _span_of(elapsed_raw, elapsed),
            cpu_time=_parse_slurm_duration(cpu_time),
            max_rss=memory,
            cpus=cpus,
            nodes=nodes,
            gpus=gpus,
            memory_asked=memory_asked,
            time_limit=limit,
            gpu_memory=used.gpu_memory,
            gpu_utilization=used.gpu_share,
            steps=tuple(used.steps),
            energy=max(map(_slurm_energy, {energy, *used.energies}), default=0) or None,
        )
    )
    seen = _nodes_of_steps(rows, columns) if nodes and nodes > 1 else 0
    if seen:
        accounted = without_unseen_nodes(accounted, seen)
    exit_code, _, signal = code.partition(":")
    return PastJob(
        id=job,
        name=name,
        user=user or None,
        command=command or None,
        cwd=cwd or None,
        exit_code=_count(exit_code),
        signal=_count(signal) or None,
        started=_slurm_epoch(start),
        ended=_slurm_epoch(end),
        queue=queue or None,
        accounted=accounted,
    )


class _StepsUsage(msgspec.Struct, gc=False):
    """What the steps of a job used; ``is_short``: one was killed for memory."""

    steps: list[AccountedStep]
    energies: set[str]
    memory: Bytes | None = None
    is_short: bool = False
    gpu_memory: Bytes | None = None
    gpu_share: float | None = None


_STEP_VALUES = """
    jobid jobname state start end ntasks nnodes maxrss averss tresusageintot
    tresusageinmax consumedenergyraw
"""


def _usage_of_steps(
    rows: list[list[str]], columns: _SacctColumns, asked: Bytes | None
) -> _StepsUsage:
    used = _StepsUsage([], set())
    numbered: list[tuple[str, str, Bytes]] = []
    for row in rows:
        job, program, word, start, end, tasks, nodes, *sizes, most, energy = (
            columns.step(row)
        )
        name = job[job.find(".") + 1 :]
        # the job's script runs during all other steps, so that its memory is added to
        # theirs
        is_script = name in {"batch", "interactive"}
        # extern holds what logs in to the job's node, not the job's own work
        memory = None if name == "extern" else _on_a_node(tasks, *sizes)
        if memory is not None and is_script:
            used.memory = (used.memory or 0) + memory
        elif memory is not None:
            largest = _sacct_size(sizes[0]) or 0
            # the sum of all tasks, spread over the nodes, but not less than the largest
            # task
            memory = max(largest, -(-memory // (_count(nodes) or 1)))
            numbered.append((start, end, memory))
        if word != "COMPLETED":  # nearly all are
            used.is_short |= _state_of_sacct_word(word) == "OUT_OF_MEMORY"
            used.is_short |= _was_over_memory(word, memory, asked)
        if energy not in _NO_ENERGY:
            used.energies.add(energy)
        if "gres/gpu" in most:
            of_gpus = comma_pairs(most)
            held, busy = (
                _sacct_size(of_gpus.get("gres/gpumem", "")),
                of_gpus.get("gres/gpuutil"),
            )
            used.gpu_memory = max(used.gpu_memory or 0, held or 0) or None
            share = _count(busy)
            used.gpu_share = used.gpu_share if share is None else share / 100
        # weigh is the step that measures others
        if name.isdecimal() and program != "weigh" and len(used.steps) < _MOST_STEPS:
            step = AccountedStep(
                name=name,
                program=program or None,
                state=_state_of_sacct_word(word),
                tasks=_count(tasks) or None,
                nodes=_count(nodes) or None,
                memory=memory,
            )
            used.steps.append(step)
    if numbered:
        used.memory = (used.memory or 0) + _most_memory_at_once(numbered)
    return used


def _nodes_of_steps(rows: list[list[str]], columns: _SacctColumns) -> int:
    """Return on how many nodes the steps were; 0 where that is not listed.

    mpirun starts its daemons by one step on all nodes but the script's own.
    """
    largest, script = 0, 0
    for row in rows:
        step = columns.step(row)
        name, nodes = step[0].partition(".")[2], _count(step[6]) or 0
        if name in {"batch", "interactive"}:
            script = 1
        elif name != "extern":
            largest = max(largest, nodes)
            if not nodes:
                return 0
    return largest + script if largest and script else largest or script


def _most_memory_at_once(steps: list[tuple[str, str, Bytes]]) -> Bytes:
    """Return the most memory of steps, by start and end, that ran at once.

    sacct knows the times to the second; a step that ends as another begins was before.
    """
    held = most = 0
    running: list[tuple[str, Bytes]] = []
    # by start; a heap of the ends knows which are over
    for start, end, memory in sorted(steps):
        # times are texts: epoch seconds and ISO 8601 both sort as times do
        while running and running[0][0] <= start:
            held -= heapq.heappop(running)[1]
        heapq.heappush(running, (end, memory))
        held += memory
        most = max(most, held)
    return most


def _on_a_node(tasks: str, max_rss: str, ave_rss: str, total: str) -> Bytes | None:
    """Return the memory of all of a step's tasks; at least that of the largest one.

    MaxRSS is the largest task, TRESUsageInTot the sum of all; where nothing was
    sampled, it has no mem.
    """
    largest, held = _sacct_size(max_rss), _sacct_size(comma_pairs(total).get("mem", ""))
    if held is None:
        each = _sacct_size(ave_rss) or largest
        # without a total: the mean times the tasks
        held = None if each is None else each * (_count(tasks) or 1)
    return held if held is None else max(held, largest or 0)


def _was_over_memory(state: str, memory: Bytes | None, asked: Bytes | None) -> bool:
    """Return whether a step was killed for memory by Slurm's own samples.

    OverMemoryKill has no state of its own: root cancels the step (slurm.conf(5),
    JobAcctGatherParams).
    """
    return state == "CANCELLED by 0" and bool(memory and asked and memory > asked)


def _state_of_sacct_word(word: str) -> State:
    found = STATES.get(word)
    return found or STATES.get(word.partition(" ")[0].rstrip("+"), "UNKNOWN")


@lru_cache(maxsize=1 << 14)  # alike for all elements of an array
def _requested_resources(
    columns: tuple[str, ...],
) -> tuple[int | None, int | None, int | None, Bytes | None, int | None]:
    """Return CPUs, nodes, GPUs, memory on one node and the time limit.

    ReqMem is the whole job's; before 21.08 ``4Gn`` is per node and ``4Gc`` is per CPU.
    ``gres/gpu=2`` is the number of GPUs; where a site tracks only types, their sum is.
    """
    cpus, nodes, tres, memory, minutes, limit = columns
    count, on, size = _count(cpus), _count(nodes) or None, _sacct_size(memory)
    # (by how much to multiply, among how many nodes to divide) for memory on one node
    times, parts = {"n": (1, 1), "c": (count, on or 1)}.get(memory[-1:], (1, on or 1))
    each = -(-size * times // parts) if size and times else None
    held = {
        name: _count(n)
        for name, n in comma_pairs(tres).items()
        if name[:8] == "gres/gpu"
    }
    typed = [n or 0 for name, n in held.items() if name[8:9] == ":"]
    gpus = held.get("gres/gpu", sum(typed) if typed else None)
    time = _count(minutes)
    seconds = _parse_slurm_duration(limit) if time is None else time * MINUTE
    return count, on, gpus, each, None if seconds is None else round(seconds)


def _sacct_size(text: str) -> Bytes | None:
    """Read ``3768K``, ``105683.50K`` and ``108007680``; units vary in one column."""
    if text[-1:] == "K" and text[:-1].isdecimal():
        return int(text[:-1]) * KIB  # nearly all: this is twice as fast
    found = _SIZE.fullmatch(text.strip()) if text else None
    power = " KMGTP".index(found[2] or " ") if found else 0
    return round(float(found[1]) * (1 << 10 * power)) if found else None


def _parse_slurm_duration(text: str) -> Seconds | None:
    """Read ``1-02:03:04``, ``02:03:04`` and ``03:04.567``."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups("0")
    whole = int(days) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
    return whole + float(seconds)


def _span_of(raw: str, text: str) -> Seconds | None:
    seconds = _count(raw)
    return _parse_slurm_duration(text) if seconds is None else float(seconds)


@lru_cache(maxsize=1 << 14)  # times repeat, and those of an array's elements
def _slurm_epoch(text: str) -> Seconds | None:
    """Read a local time in ISO 8601, or seconds since the epoch (SLURM_TIME_FORMAT)."""
    if text in _NO_TIME or text.isdecimal():
        return whole_number(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _slurm_energy(text: str) -> int:
    """Read joules; without an energy plugin the field is 0 or has all bits set."""
    number = _count(text) or 0
    return number if number < 1 << 60 else 0


_count = lru_cache(maxsize=1 << 14)(whole_number)  # few values, many times
_CHECKS: dict[str, Callable[[str], object]] = {
    **dict.fromkeys(_NUMBERS.split(), _NUMBER.fullmatch),
    "jobid": _TASK.fullmatch,
    "state": lambda word: _state_of_sacct_word(word) != "UNKNOWN",
    "workdir": lambda path: path[:1] in {"", "/"},
}


class SlurmAccounting(PastAccounting):
    """Slurm: what its accounting reports."""

    SAMPLED_EVERY: Seconds = 30.0  # slurm.conf(5), JobAcctGatherFrequency
    WORDS = AccountingWords(
        memory="sacct MaxRSS",
        unmeasured="{often}: peaks in between are missed",
        below="{often}, peaks are missed: trust weigh's",
        unsure="{often}, peaks may be missed",
        above=(
            "counts shared pages in each process, at some sites page cache too: an "
            "upper bound; weigh counts shared pages once"
        ),
        below_killed="its last sample before the kill: trust weigh's",
        above_killed="sampled after weigh's last sample of a killed task: use this",
        # sacct leaves MaxRSS empty where no sample was taken
        zero="not zero: no sample was taken ({often})",
        cpu_time="sacct TotalCPU",
        wall_time="sacct Elapsed",
        gpu_memory="sacct gpumem",
        gpu_utilization="sacct gpuutil",
        sampled="{often}",
    )

    def argv(self, job_id: str) -> Argv:
        """Return the command that lists a job's steps, of an array all elements'."""
        return ("sacct", "-n", "-P", "-j", job_id, "-o", ",".join(_FIELDS))

    def parse(self, command_output: str) -> tuple[AccountedElement, ...]:
        """Read sacct's lines; lines that do not parse are skipped.

        A job's own line holds what was requested, its steps what was used. The parts of
        a heterogeneous job are its elements.
        """
        # a job name with a bar in it has columns beyond its own, which nobody reads
        rows = (line.split("|")[: len(_FIELDS)] for line in command_output.splitlines())
        least = _FIELDS.index("NNodes")  # the first columns, which are enough
        whole = (
            row + [""] * (len(_FIELDS) - len(row)) for row in rows if len(row) >= least
        )
        jobs = _slurm_past_jobs(whole, _SacctColumns(_FIELDS))
        found = {job.accounted.element: job.accounted for job in jobs if job}
        return tuple(one for _, one in sorted(found.items()))

    def past_argv(self, user_name: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of the last *span* seconds."""
        days, rest = divmod(round(span), DAY)
        # whole days are shorter to read and to copy
        since = ("-S", f"now-{round(span)}seconds" if rest else f"now-{days}days")
        return (
            "sacct",
            "-P",
            "-D",
            "-u",
            user_name,
            *since,
            "-o",
            ",".join(_PAST_FIELDS),
        )

    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob | None]:
        """Yield each job of ``sacct -P``, with any columns; None for a dropped row.

        The first line is the header. A requeued job is a job for each of its attempts,
        which sacct lists apart (-D). Times without a zone are local.
        """
        lines = iter(lines)
        names, separator = _header(next(lines, "").rstrip("\r\n"))
        if not names:
            return
        at = _SacctColumns(names)
        yield from _slurm_past_jobs(_sacct_rows(lines, separator, at), at)


ACCOUNTING = SlurmAccounting()
