"""Rules that compare what commands use with what the job gets: CPUs, GPUs, memory."""

import re
from collections.abc import Iterator

from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import LintCase, Rule, note, problem
from weigh.schedulers.words import whole_number

_THREADS = frozenset(
    {"OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    | {"NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "JULIA_NUM_THREADS"}
    | {"NUMBA_NUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS", "GOMP_NUM_THREADS"}
)


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
    _devices,
    _processes,
    _no_gpu,
)
