"""Rules that compare what commands use with what the job gets: CPUs, GPUs, memory."""

import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import LintCase, Rule, note, problem
from weigh.schedulers.shell import ShellCommand
from weigh.schedulers.words import parsed_or_none, whole_number
from weigh.units import format_size, parse_size

_THREADS = frozenset(
    {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    | {"NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "JULIA_NUM_THREADS"}
    | {"NUMBA_NUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS", "GOMP_NUM_THREADS"}
)
MPI = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "orterun"})
_COUNTS = {
    "srun": ("-n", "--ntasks"),
    **dict.fromkeys(MPI, ("-np", "-n", "--np", "--n")),
}
# with these more tasks than CPUs are meant
_OVER = frozenset({"--oversubscribe", "--overcommit", "-O", "--overlap"})


def _thread_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    cpus = lint_case.granted.cpus
    if cpus is None:
        return
    for command, name, value in lint_case.assignments():
        count = whole_number(value)
        if name not in _THREADS or count is None or count <= cpus:
            continue
        effect = f"{count} threads, but the job gets {_cpus_text(cpus)}"
        # CPUs that nobody requested may be more, by a default of the site
        make = problem if lint_case.granted.cpus_asked else note
        yield make(command, "threads-beyond-cpus", effect, _more_cpus(lint_case, count))
        return


def _cpus_text(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"


def _more_cpus(lint_case: LintCase, count: int) -> str:
    if lint_case.tool == "sbatch":
        return f"--cpus-per-task={count}, or ${{SLURM_CPUS_PER_TASK}} threads"
    return f"-pe smp {count}, or $NSLOTS threads" if lint_case.tool == "qsub" else ""


_CANNOT = ": the step cannot start"


def _oversized_step_findings(lint_case: LintCase) -> Iterator[LintFinding]:
    """Find steps that are larger than the job."""
    granted = lint_case.granted
    for command in lint_case.body.commands:
        words = _words_from_launcher(command)
        if not words or words[0] not in _COUNTS or _OVER & set(words):
            continue
        tasks = _launcher_option_number(words, _COUNTS[words[0]])
        each = (
            _launcher_option_number(words, ("-c", "--cpus-per-task"))
            if words[0] == "srun"
            else None
        )
        nodes = (
            _launcher_option_number(words, ("-N", "--nodes"))
            if words[0] == "srun"
            else None
        )
        if nodes and granted.nodes and nodes > granted.nodes:
            effect = f"{nodes} nodes, but the job has {granted.nodes}"
            yield problem(command, "step-beyond-job", effect + _CANNOT)
        if words[0] == "srun":
            yield from _step_resources(lint_case, command, words)
        needed = (tasks or 1) * (each or 1)
        # the CPUs are those of one node: on several a step may have more
        if granted.cpus is None or granted.nodes != 1:
            continue
        if needed <= granted.cpus:
            if words[0] == "srun" and each is None:
                yield from _inherited_cpus(lint_case, command, tasks or 1)
            continue
        what = f"{tasks} tasks" if tasks else "a task"
        what += f" of {each} CPUs" if each else ""
        effect = f"{what}, but the job gets {_cpus_text(granted.cpus)}"
        if words[0] == "srun":
            effect += _CANNOT
        make = problem if granted.cpus_asked else note
        yield make(command, "step-beyond-job", effect, "")


def _inherited_cpus(
    lint_case: LintCase, command: ShellCommand, tasks: int
) -> Iterator[LintFinding]:
    """Find a step whose tasks fit only as long as srun does not take the job's CPUs.

    srun reads SLURM_CPUS_PER_TASK, except from 22.05 to 23.02.
    """
    granted, each = lint_case.granted, lint_case.granted.cpus_per_task or 1
    if tasks * each > (granted.cpus or 0):
        effect = (
            f"from Slurm 23.11 on each of the {tasks} tasks takes the job's "
            f"{_cpus_text(each)}, {tasks * each} in all, but the job gets "
            f"{_cpus_text(granted.cpus or 0)}: the step never starts"
        )
        yield note(command, "step-beyond-job", effect, "srun -c 1, or fewer tasks")


_STEP_GPUS = re.compile(r"--(?:gres=gpu|gpus)(?:[:=][A-Za-z]\w*)?[:=](\d{1,4})\b")
_STEP_MEMORY = re.compile(r"--mem[= ](\d+)([KMGT])?\b")


def _step_resources(
    lint_case: LintCase, command: ShellCommand, words: tuple[str, ...]
) -> Iterator[LintFinding]:
    """Find a step that requests more GPUs or memory than the job has."""
    text, granted = " ".join(words), lint_case.granted
    gpus, memory = _STEP_GPUS.search(text), _STEP_MEMORY.search(text)
    if gpus and granted.gpus is not None and int(gpus[1]) > granted.gpus:
        effect = (
            f"{_gpu_count_text(int(gpus[1]))}, but the job has "
            f"{_gpu_count_text(granted.gpus)}"
        )
        yield problem(command, "step-beyond-job", effect + _CANNOT)
    # a bare number is MiB
    size = parsed_or_none(parse_size, memory[1] + (memory[2] or "M")) if memory else 0
    if size and granted.memory and granted.nodes == 1 and size > granted.memory:
        effect = f"{format_size(size)}, but the job has {format_size(granted.memory)}"
        yield problem(command, "step-beyond-job", effect + _CANNOT)


_BEFORE = frozenset({"time", "exec", "nohup", "command", "stdbuf", "env"})
# these have values of their own before the command
_WITH_VALUES = _BEFORE | {"timeout", "nice", "ionice", "chrt"}


def _words_from_launcher(command: ShellCommand) -> tuple[str, ...]:
    """Return the words of a command from its launcher on, behind other programs."""
    words = command.words
    if words and words[0] in _WITH_VALUES:
        starts = (place for place, word in enumerate(words) if word in _COUNTS)
        words = words[next(starts, 0) :]
    while words and words[0] in _BEFORE:
        words = words[1:]
    return words


def _launcher_option_number(
    words: tuple[str, ...], names: tuple[str, ...]
) -> int | None:
    """Return the number of an option of the launcher itself."""
    for place, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            if not words[place - 1].startswith("-") or place == 1:
                return None  # the program begins: what follows are its options
            continue
        name, equals, value = word.partition("=")
        if name in names:
            following = words[place + 1] if place + 1 < len(words) else ""
            return whole_number(value if equals else following)
        for short in names:
            if len(short) == 2 and word.startswith(short) and word[2:].isdecimal():  # noqa: PLR2004
                return whole_number(word[2:])
    return None


_DEVICES = re.compile(r"\d+(?:,\d+)*")
_WANTS_GPU = re.compile(
    r"--device[= ][\"']?(?:cuda|gpu)|--accelerator[= ][\"']?(?:gpu|cuda)"
    r"|--gpus?[= ][1-9]\d*\b|--use[-_](?:cuda|gpu)(?:[= ][Tt]rue|\s|$)|-nb gpu\b"
)
_PER_NODE = re.compile(r"--nproc[-_]per[-_]node[= ](\d{1,4})\b")


def _devices(lint_case: LintCase) -> Iterator[LintFinding]:
    gpus = lint_case.granted.gpus
    for command, name, value in lint_case.assignments() if gpus else ():
        if name != "CUDA_VISIBLE_DEVICES" or not _DEVICES.fullmatch(value) or not gpus:
            continue
        highest = max(map(int, value.split(",")))
        if highest >= gpus:
            effect = f"device {highest} of {_gpu_count_text(gpus)}: numbers begin at 0"
            yield problem(command, "devices-overridden", effect, "remove it")
        # in the background: one program on each of the job's GPUs, which is meant so
        elif not command.background and not _has_all_of_node(lint_case, gpus):
            effect = "overrides the scheduler's choice: maybe the GPU of another job"
            yield note(command, "devices-overridden", effect, "remove it")


def _has_all_of_node(lint_case: LintCase, gpus: int) -> bool:
    """Return whether the job gets all GPUs of its node: no other job is there."""
    limits = lint_case.facts.limits
    nodes = () if limits is None else limits.nodes
    most = max((sum(node.gpus.values()) for node in nodes), default=0)
    return lint_case.option("exclusive") is not None or gpus == most


def _gpu_count_text(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _processes(lint_case: LintCase) -> Iterator[LintFinding]:
    gpus = lint_case.granted.gpus
    for command in lint_case.body.commands if gpus else ():
        found = _PER_NODE.search(command.text)
        if found and gpus and int(found[1]) > gpus:
            effect = (
                f"{found[1]} processes on {_gpu_count_text(gpus)}: those without one "
                "fail"
            )
            yield problem(command, "processes-beyond-gpus", effect, "")
            return


def _no_gpu(lint_case: LintCase) -> Iterator[LintFinding]:
    # None: a queue or a default may bring GPUs
    if lint_case.granted.gpus != 0:
        return
    for command in lint_case.body.commands:
        if command.name not in ("echo", "printf") and _WANTS_GPU.search(command.text):
            fix = "add #SBATCH --gres=gpu:1" if lint_case.tool == "sbatch" else ""
            yield problem(command, "no-gpu", "no GPU was requested: finds none", fix)
            return


RULES: tuple[Rule, ...] = (
    _thread_findings,
    _oversized_step_findings,
    _devices,
    _processes,
    _no_gpu,
)
