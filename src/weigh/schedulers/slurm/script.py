"""A job's request: written as a script for ``sbatch``, and as Slurm understood it."""

import re
from collections.abc import Iterator, Mapping, Sequence

from weigh.errors import UsageError
from weigh.model.cluster import UNTYPED
from weigh.model.job import JobRequest, JobScript, RecordedRequest
from weigh.schedulers.job_script import (
    ScriptRules,
    render_job_script,
    request_of,
    warning,
)
from weigh.schedulers.slurm import TEXT
from weigh.schedulers.slurm.cluster import pairs_of, tres_gpus
from weigh.schedulers.words import (
    comma_pairs,
    count_elements,
    parsed_or_none,
    printed_size,
    whole_number,
)
from weigh.units import Bytes

# sbatch splits directives itself; these characters need no quotes
_PLAIN = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./[]*~^"
)
_LOG = (
    '"${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}'
    '${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}.out"'
)

GRES = "gres"  # the GPUs, and what else a node has


def slurm_script(job_script: JobScript, rules: ScriptRules) -> str:
    """Return the script of a job.

    Raises:
        UsageError: a directive cannot hold a value.
    """
    return render_job_script(
        (f"{TEXT.PREFIX} {flag}" for flag in _slurm_flags(job_script)),
        job_script,
        element=_slurm_element_expression(job_script.first),
        log=None if can_hold(job_script.log) else _LOG,
        rules=rules,
    )


def can_hold(text: str) -> bool:
    """Return whether a directive can hold *text*, in double quotes if necessary."""
    return text.isprintable() and not set('"\\') & set(text)


def _slurm_element_expression(first: int) -> str:
    number = "${SLURM_ARRAY_TASK_ID:-0}"
    return f'"$(({number} + {first}))"' if first else f'"{number}"'


def _slurm_flags(job_script: JobScript) -> Iterator[str]:
    wanted = job_script.request
    yield f"--job-name={_slurm_quoted(_slurm_job_name(job_script.name))}"
    # the user's own comment stays; the token is in the script's path, too
    if job_script.token and not any(flag == "comment" for flag, _ in wanted.extra):
        yield f"--comment=weigh:{job_script.token}"
    if can_hold(job_script.log):
        pattern = "%A_%a" if job_script.is_array else "%j"
        # in a pattern a percent sign stands for itself only if it is doubled
        log_folder = job_script.log.replace("%", "%%")
        yield f"--output={_slurm_quoted(f'{log_folder}/{pattern}.out')}"
    else:
        # the script redirects its output itself, to the name in _LOG
        yield "--output=/dev/null"
    if job_script.is_array:
        throttle = f"%{wanted.throttle}" if wanted.throttle else ""
        yield f"--array=0-{job_script.elements - 1}{throttle}"
    if wanted.nodes > 1 and not wanted.ntasks:
        yield f"--nodes={wanted.nodes}"
        yield "--ntasks-per-node=1"
    yield from requested_flags(wanted)
    warn_time = warning(job_script)
    if warn_time is not None:  # to the shell, which passes it on to the tasks
        yield f"--signal=B:USR1@{warn_time}"
    if job_script.requeue:
        yield "--requeue"
        # a further attempt writes to the same log
        yield "--open-mode=append"
    for flag, value in (
        ("partition", wanted.queue),
        ("account", wanted.account),
        ("qos", wanted.qos),
        ("exclude", ",".join(wanted.exclude) or None),
        ("dependency", _dependency(wanted)),
        # weigh resume lets it hang on another job
        ("kill-on-invalid-dep", "no" if wanted.after else None),
        ("mail-user", wanted.mail),
        ("mail-type", "END,FAIL" if wanted.mail else None),
        *wanted.extra,
    ):
        # of GPUs it is joined, see requested_flags
        if value is not None and (flag != GRES or not wanted.gpus):
            yield " ".join(slurm_flag(flag, _slurm_quoted(value) if value else ""))


def slurm_flag(name: str, value: str) -> tuple[str, ...]:
    """Return the words of a flag; an empty value is that of one without."""
    if len(name) == 1:
        return (f"-{name}", value) if value else (f"-{name}",)
    return (f"--{name}={value}" if value else f"--{name}",)


def requested_flags(job_request: JobRequest) -> list[str]:
    """Return the flags of a request; sbatch forgets all but the last ``--gres``."""
    typed = [value for name, value in job_request.extra if name == GRES]
    return [
        ",".join((flag, *typed)) if flag.startswith(f"--{GRES}=") else flag
        for flag in TEXT.directives(request_of(job_request))
    ]


def _dependency(wanted: JobRequest) -> str | None:
    kinds = (("afterok", wanted.after), ("afterany", wanted.after_end))
    return ",".join(":".join((how, *jobs)) for how, jobs in kinds if jobs) or None


def _slurm_job_name(name: str) -> str:
    return name if can_hold(name) else "".join(c if can_hold(c) else "_" for c in name)


def _slurm_quoted(text: str) -> str:
    """Quote *text* for a directive.

    Raises:
        UsageError: sbatch cannot read it, however it is quoted.
    """
    if not can_hold(text):
        raise UsageError(f"an sbatch directive cannot hold {text!r}")
    return text if _PLAIN.issuperset(text) else f'"{text}"'


# ---- the request as Slurm understood it
_NONE = frozenset({"", "(null)", "N/A", "None", "Unknown"})
# a name is free text: it may look like a key, and have line ends
_NAME = re.compile(r" JobName=.*?(?= UserId=\S+\(\d+\) )", re.DOTALL)
_NEXT_JOB = re.compile(r"\n(?=JobId=)")
# gres:gpu:v100:2 (22.05), gres/gpu:v100:2 (23.11), gres/gpu=2; gpu:2 before 19.05
_GPU = re.compile(
    r"(?:^|,)(?:gres[:/])?gpu(?::(?P<kind>[^:=,()\d][^:=,()]*))?(?:[:=](?P<n>\d{1,9}))?"
    r"(?=[,(]|$)"
)


def parse_scontrol_job(text: str) -> RecordedRequest | None:
    """Read the first job of *text*, for an array all its lines; None without a job."""
    rows = [pairs_of(_NAME.sub("", line, count=1)) for line in job_lines(text)]
    if not rows:
        return None
    row = rows[0]
    # each part of a heterogeneous job has a request of its own
    if "HetJobId" in row:
        return RecordedRequest()
    # ReqTRES is what was requested; before 23.02 there is only TRES
    tres = row.get("ReqTRES") or row.get("TRES") or ""
    gpus = _gpus_by_type(row, tres)
    throttles = (whole_number(one.get("ArrayTaskThrottle")) for one in rows)
    return RecordedRequest(
        memory=_memory_of_slurm_element(row, tres),
        cpus=_minimum_of_range(row.get("NumCPUs")),
        gpus=None if gpus is None else sum(gpus.values()),
        gpu_types=tuple(sorted(name for name in gpus or () if name != UNTYPED)),
        time_limit=parsed_or_none(TEXT.parse_time, _word_or_none(row.get("TimeLimit"))),
        queue=_word_or_none(row.get("Partition")),
        account=_word_or_none(row.get("Account")),
        elements=_count_of_elements(rows),
        throttle=next(filter(None, throttles), None),
        reason=_word_or_none(row.get("Reason")),
    )


def job_lines(text: str) -> list[str]:
    """Return the text of each job that ``scontrol -o show job`` printed."""
    return [one for one in _NEXT_JOB.split(text) if one.startswith("JobId=")]


def _count_of_elements(rows: Sequence[Mapping[str, str]]) -> int | None:
    """Count the elements: waiting ones share a line, others have one line each."""
    job = rows[0].get("ArrayJobId")
    listed = [
        row["ArrayTaskId"]
        for row in rows
        if row.get("ArrayJobId") == job and row.get("ArrayTaskId")
    ]
    return sum(map(count_elements, listed)) if listed else None


def _gpus_by_type(row: Mapping[str, str], tres: str) -> dict[str, int] | None:
    """Count the GPUs of an element over all its nodes, by type; None if not known."""
    tracked = tres_gpus(tres)
    if tracked:
        return tracked
    times = {
        "TresPerJob": 1,
        "TresPerNode": _minimum_of_range(row.get("NumNodes")),
        "TresPerTask": whole_number(row.get("NumTasks")),
        "TresPerSocket": None,  # how many sockets a job gets is not known
    }
    for key, times_each in times.items():
        # 20.11 goes on with " NtasksPerTRES:0", which has no "="
        counts = _requested_gpus(row.get(key, "").partition(" ")[0])
        if counts:
            if times_each is None:
                return None
            return {kind: n * times_each for kind, n in counts.items()}
    # a tracked request without GPUs has none; without TRES nothing is known
    return {} if tres else None


def _requested_gpus(text: str) -> dict[str, int]:
    """Read ``gres:gpu:v100:2``; a missing number means one."""
    counts: dict[str, int] = {}
    for found in _GPU.finditer(text):
        kind = found["kind"] or UNTYPED
        counts[kind] = counts.get(kind, 0) + int(found["n"] or 1)
    return counts


def _memory_of_slurm_element(row: Mapping[str, str], tres: str) -> Bytes | None:
    """Return the memory of an element, summed over its nodes; None if not known."""
    # of each GPU: while the job waits, TRES shows the default instead
    if row.get("MemPerTres"):
        return None
    if total := comma_pairs(tres).get("mem"):
        return _squeue_size(total)
    # sites that do not track memory have no mem in TRES
    for key, count in (("MinMemoryNode", "NumNodes"), ("MinMemoryCPU", "NumCPUs")):
        size = _squeue_size(row.get(key, ""))
        if size is not None:
            return size * (_minimum_of_range(row.get(count)) or 1)
    return None


def _minimum_of_range(text: str | None) -> int | None:
    """Read ``3``, or the minimum of ``2-4``."""
    return whole_number((text or "").partition("-")[0])


def _squeue_size(text: str) -> Bytes | None:
    """Read ``100M``, ``62.50G`` or a number of MiB; zero is all that a node has."""
    return printed_size(text, bare="M") or None


def _word_or_none(text: str | None) -> str | None:
    return None if text is None or text in _NONE else text
