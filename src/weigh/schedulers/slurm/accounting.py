"""Read sacct: the resources that jobs requested and used.

``sacct -P`` quotes nothing: a job's name may contain the delimiter and line ends. It is
therefore the last column, and a line that does not begin as a row is no row.
"""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter

import msgspec

from weigh.model.record import State
from weigh.model.report import (
    AccountedElement,
    PastJob,
    without_impossible,
    without_unseen_nodes,
)
from weigh.schedulers.kind import AccountingWords, Argv, PastAccounting
from weigh.schedulers.slurm.scheduler import STATES
from weigh.schedulers.words import (
    comma_pairs,
    epoch_seconds_in,
    printed_size,
    text_pairs,
    whole_number,
)
from weigh.units import DAY, HOUR, MINUTE, Bytes, Seconds

# the name is last: it may contain the delimiter
_FIELD_NAMES = """
    JobID State ElapsedRaw TimelimitRaw ReqMem AllocCPUS TotalCPU MaxRSS AllocTRES
    NodeList TRESUsageInMax NNodes NTasks AveRSS TRESUsageInTot Start
    End JobName
"""
_FIELDS = _FIELD_NAMES.split()
_TASK = re.compile(r"\d+(?:[_+](?:\d+|\[.+\]))?(?:\..+)?")
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,8}):(\d\d(?:\.\d+)?)")
_NO_NODE = frozenset(("", "None assigned"))
# state of the part of a job before it was reduced
_RESIZED = "RESIZING"
INTERVAL_ARGV: Argv = ("scontrol", "show", "config")


def parse_interval(config: str) -> Seconds | None:
    """Read the seconds between samples of tasks' memory; 0 if there are none.

    ``JobAcctGatherFrequency`` is ``30``, or ``task=30,energy=60``, where what is left
    out has its default of 30 (slurm.conf(5)). A job may have set another with
    ``--acctg-freq``. None if the site gathers nothing, or cannot be read.
    """
    found = text_pairs(config, "=")
    word = found.get("JobAcctGatherFrequency", "").lower()
    if found.get("JobAcctGatherType", "").endswith(("none", "(null)")):
        return None
    if "=" in word:
        word = comma_pairs(word).get("task", "30")
    # 0 switches periodic samples off: one is taken at the end
    number = whole_number(word)
    return None if number is None else float(number)


class _SacctColumns:
    """The places of sacct's columns; ``job`` and ``step`` pick values from a row.

    A column that is not there is read as an empty text.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.width = len(names)
        self._places = {name: place for place, name in enumerate(names)}
        self.id, self.state = self.of("JobID"), self.of("State")
        self.job = itemgetter(*map(self.of, _JOB_VALUES.split()))
        self.step = itemgetter(*map(self.of, _STEP_VALUES.split()))

    def of(self, name: str) -> int:
        """Return the place of a column; beyond the end of a row if it is not there."""
        return self._places.get(name, self.width)

    def rows(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the rows; what is none is the rest of a name with line ends."""
        for line in lines:
            row = [*line.rstrip("\n").split("|", self.width - 1), ""]
            if len(row) > self.width and _TASK.fullmatch(row[self.id]):
                yield row


def _slurm_past_jobs(
    rows: Iterable[list[str]], columns: _SacctColumns
) -> Iterator[PastJob]:
    """Join steps to their jobs, which sacct lists before them.

    They are joined by order, not by id: a requeued job has its id twice.
    """
    job: list[str] | None = None
    prefix, steps = "", list[list[str]]()
    for row in rows:
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
        is_job = "[" not in name  # not 12_[3-9], which waits
        job, prefix, steps = row if is_job else None, f"{name}.", []
    if job is not None:
        yield _slurm_past_job(job, steps, columns)


_JOB_VALUES = """
    JobID JobName State NodeList ElapsedRaw TotalCPU
    AllocCPUS NNodes AllocTRES ReqMem TimelimitRaw
"""


def _slurm_past_job(
    row: list[str], rows: list[list[str]], columns: _SacctColumns
) -> PastJob:
    job, name, word, node, elapsed, cpu_time, *asked = columns.job(row)
    cpus, nodes, gpus, memory_asked, limit = _requested_resources(tuple(asked))
    used = _usage_of_steps(rows, columns, memory_asked)
    state = _state_of_sacct_word(word)
    # a job may be FAILED or CANCELLED because a step was killed for memory
    is_short = used.is_short or _was_over_memory(word, used.memory, memory_asked)
    if is_short and state in {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED"}:
        state = "OUT_OF_MEMORY"
    # a job without a node never started
    is_waiting = node in _NO_NODE and columns.of("NodeList") < columns.width
    accounted = without_impossible(
        AccountedElement(
            # 12_3 is an element, 12+1 a part of a heterogeneous job
            element=0 if job.isdecimal() else _count(re.split("[_+]", job)[1]) or 0,
            state=state,
            node=None if node in _NO_NODE else node,
            wall_time=None if is_waiting else epoch_seconds_in(elapsed),
            cpu_time=_parse_slurm_duration(cpu_time),
            max_rss=used.memory,
            cpus=cpus,
            nodes=nodes,
            gpus=gpus,
            memory_asked=memory_asked,
            time_limit=limit,
            gpu_memory=used.gpu_memory,
            gpu_utilization=used.gpu_share,
        )
    )
    seen = _nodes_of_steps(rows, columns) if nodes and nodes > 1 else 0
    if seen:
        accounted = without_unseen_nodes(accounted, seen)
    return PastJob(id=job, name=name, accounted=accounted)


class _StepsUsage(msgspec.Struct, gc=False):
    """What the steps of a job used; ``is_short``: one was killed for memory."""

    memory: Bytes | None = None
    is_short: bool = False
    gpu_memory: Bytes | None = None
    gpu_share: float | None = None


_STEP_VALUES = """
    JobID State Start End NTasks NNodes MaxRSS AveRSS TRESUsageInTot TRESUsageInMax
"""


def _usage_of_steps(
    rows: list[list[str]], columns: _SacctColumns, asked: Bytes | None
) -> _StepsUsage:
    used = _StepsUsage()
    numbered: list[tuple[str, str, Bytes]] = []
    for row in rows:
        job, word, start, end, tasks, nodes, *sizes, most = columns.step(row)
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
        if "gres/gpu" in most:
            of_gpus = comma_pairs(most)
            held = _sacct_size(of_gpus.get("gres/gpumem", ""))
            used.gpu_memory = max(used.gpu_memory or 0, held or 0) or None
            # of all steps, the one that trains is the busiest
            busy = _count(of_gpus.get("gres/gpuutil"))
            if busy is not None:
                used.gpu_share = max(used.gpu_share or 0.0, busy / 100)
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
        name, nodes = step[0].partition(".")[2], _count(step[5]) or 0
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
    cpus, nodes, tres, memory, minutes = columns
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
    limit = _count(minutes)
    return count, on, gpus, each, None if limit is None else limit * MINUTE


def _sacct_size(text: str) -> Bytes | None:
    """Read ``3768K`` and ``108007680``; before 21.08 a requested one ends in n or c."""
    return printed_size(text.rstrip("nc"))


def _parse_slurm_duration(text: str) -> Seconds | None:
    """Read ``1-02:03:04``, ``02:03:04`` and ``03:04.567``."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups("0")
    whole = int(days) * DAY + int(hours) * HOUR + int(minutes) * MINUTE
    return whole + float(seconds)


_count = lru_cache(maxsize=1 << 14)(whole_number)  # few values, many times


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
        return ("sacct", "-P", "-j", job_id, "-o", ",".join(_FIELDS))

    def past_argv(self, user_name: str, span: Seconds) -> Argv:
        """Return the command that lists a user's jobs of the last *span* seconds."""
        days, rest = divmod(round(span), DAY)
        # whole days are shorter to read and to copy
        since = ("-S", f"now-{round(span)}seconds" if rest else f"now-{days}days")
        return ("sacct", "-P", "-D", "-u", user_name, *since, "-o", ",".join(_FIELDS))

    def read_past(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """Yield each job of the list, whose first line names its columns.

        A job's own line holds what was requested, its steps what was used. A requeued
        job is a job for each of its attempts, which sacct lists apart (-D).
        """
        lines = iter(lines)
        columns = _SacctColumns(next(lines, "").rstrip("\n").split("|"))
        yield from _slurm_past_jobs(columns.rows(lines), columns)


ACCOUNTING = SlurmAccounting()
