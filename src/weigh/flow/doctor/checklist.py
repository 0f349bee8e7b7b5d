"""The checks of the machine and of a job: each returns lines from the facts.

Pure: the facts were collected before. A check that does not apply returns no line.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

from weigh.model.doctor import (
    Check,
    Facts,
    GpuFacts,
    JobFacts,
    PythonEnvironment,
    SchedulerFacts,
)
from weigh.schedulers import KINDS
from weigh.sweep.quoting import quoted
from weigh.units import format_duration

CheckOf: TypeAlias = Callable[[Facts], Iterator[Check]]

_SKEW_NOTICED, _SKEW_HARMFUL = 2.0, 60.0
# NVIDIA's release notes: the oldest Linux driver on which each CUDA's programs run,
# later minor versions included ("minor version compatibility")
_OLDEST_DRIVERS = {
    (13,): (580, 65, 6),
    (12,): (525, 60, 13),
    (11,): (450, 36, 6),
    (10, 2): (440, 33),
    (10, 1): (418, 39),
    (10, 0): (410, 48),
    (9, 2): (396, 26),
    (9, 1): (390, 46),
    (9, 0): (384, 81),
}
_CPU_TORCH = "torch {version} is built for CPUs only: it cannot use a GPU"
_CUDA_FIX = "install torch's CUDA build (pytorch.org/get-started) in {where}"


def place(facts: Facts) -> Iterator[Check]:
    """Report what kind of machine this is: login node, job or own machine."""
    if facts.job_id is not None:
        yield Check("place", "ok", f"inside job {facts.job_id}, on {facts.host}")
    elif facts.schedulers:
        yield Check("place", "ok", "a login node: prepare and submit here, run in jobs")
    else:
        text = "no scheduler found: jobs run on this machine (weigh exec)"
        yield Check("place", "ok", text)


def schedulers(facts: Facts) -> Iterator[Check]:
    """Check that the scheduler answers and that all its commands are on PATH."""
    for one in facts.schedulers:
        yield _scheduler(one)


def _scheduler(one: SchedulerFacts) -> Check:
    if one.trouble is not None:
        cure = "wait and try again; if it persists, contact the site's support"
        return Check("scheduler", "broken", f"{one.name}: {one.trouble}", cure)
    if one.missing:
        text = f"{one.name} answers; not on PATH: {', '.join(one.missing)}"
        cure = "load the scheduler's module, or ask the site for these commands"
        return Check("scheduler", "warning", text, cure)
    return Check("scheduler", "ok", f"{one.name} answers; all its commands are on PATH")


def python_on_nodes(facts: Facts) -> Iterator[Check]:
    """Check whether compute nodes can see weigh's Python."""
    disk = facts.interpreter
    if disk is None or not facts.schedulers or facts.job_id is not None:
        return
    if disk.is_shared:
        text = f"weigh's Python is on a shared disk ({disk.kind}): nodes see it"
        yield Check("nodes", "ok", text)
        return
    start = next(
        kind.starts for kind in KINDS.values() if kind.title == facts.schedulers[0].name
    )
    text = f"weigh's Python is on this machine's own disk: {disk.path}"
    attempt = f"try {start} {facts.python} --version"
    cure = f"{attempt}; if it fails, make a venv on a shared disk"
    yield Check("nodes", "warning", text, cure)


def environment(facts: Facts) -> Iterator[Check]:
    """Report which Python a command would start."""
    one = facts.environment
    if one is None:
        return
    if one.kind == "none":
        cure = "activate an environment, or load a module"
        yield Check("environment", "warning", "no python on PATH", cure)
    elif facts.conda_prefix and facts.virtual_env:
        text = f"conda and a venv are both active; python is of {one.prefix}"
        yield Check("environment", "warning", text, "deactivate one of them")
    else:
        yield Check("environment", "ok", f"python is of {environment_words(one)}")


def torch(facts: Facts) -> Iterator[Check]:
    """Check whether the installed torch can use a GPU."""
    one = facts.environment
    if one is not None and one.torch is not None:
        requested = facts.job is not None and facts.job.asks_gpus is True
        needed = bool(facts.gpus.names or facts.schedulers)
        yield torch_check(one, is_requested=requested, is_likely=needed)
        if facts.torch_trouble is not None:
            cure = _CUDA_FIX.format(where=environment_words(one))
            yield Check("torch", "broken", facts.torch_trouble, cure)


def torch_check(
    one: PythonEnvironment, *, is_requested: bool, is_likely: bool
) -> Check:
    """Check what torch was built for; broken only if the job requests GPUs."""
    build = one.torch
    if build is None:
        return Check("torch", "ok", f"no torch in {environment_words(one)}")
    if build.cuda or build.hip:
        kind = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.hip}"
        return Check("torch", "ok", f"torch {build.version}, built for {kind}")
    text = _CPU_TORCH.format(version=build.version)
    if not (is_requested or is_likely):
        return Check("torch", "ok", text)
    cure = _CUDA_FIX.format(where=environment_words(one))
    return Check("torch", "broken" if is_requested else "warning", text, cure)


def driver(facts: Facts) -> Iterator[Check]:
    """Compare the driver with the CUDA that torch was built for."""
    gpus = facts.gpus
    if gpus.trouble is not None:
        is_ours = "pip install " in gpus.trouble
        site = "send this line and the node's name to the site's support"
        cure = f"pip install {gpus.trouble.partition('pip install ')[2]}"
        cure = cure if is_ours else site
        yield Check("GPU", "broken", gpus.trouble, cure)
    elif not gpus.names:
        yield from _no_gpu(gpus, facts)
    else:
        yield Check("GPU", "ok", _gpu_words(gpus))
        cuda = _torch_cuda(facts)
        if cuda is not None:
            yield from driver_check(gpus, cuda)


def _torch_cuda(facts: Facts) -> str | None:
    build = facts.environment.torch if facts.environment else None
    return build.cuda if build else None


def _no_gpu(gpus: GpuFacts, facts: Facts) -> Iterator[Check]:
    text = gpus.absence or "no GPU here"
    if facts.schedulers and facts.job_id is None:
        text += "; for a node, run weigh doctor in a job there"
    yield Check("GPU", "ok", text)


def driver_check(gpus: GpuFacts, cuda: str) -> Iterator[Check]:
    """Check whether the driver is new enough for programs built for *cuda*."""
    oldest = oldest_driver(cuda)
    version = _numbers(gpus.driver or "")
    if oldest is None or not version:
        return
    if version >= oldest:
        text = f"driver {gpus.driver} is new enough for torch's CUDA {cuda}"
        yield Check("driver", "ok", text)
        return
    needed = ".".join(map(str, oldest))
    text = f"driver {gpus.driver} is too old for torch's CUDA {cuda} (needs {needed})"
    newest = f" {gpus.cuda} or older" if gpus.cuda else " the driver's or older"
    yield Check("driver", "broken", text, f"install torch built for CUDA{newest}")


def oldest_driver(cuda: str) -> tuple[int, ...] | None:
    """Return the oldest driver that runs programs built for *cuda*, if known."""
    numbers = _numbers(cuda)
    return _OLDEST_DRIVERS.get(numbers[:1]) or _OLDEST_DRIVERS.get(numbers[:2])


def clock(facts: Facts) -> Iterator[Check]:
    """Compare this machine's clock with the file server's."""
    skew = facts.clock_skew
    if skew is None:
        return
    if abs(skew) < _SKEW_NOTICED:
        text = f"agrees with the server of {facts.clock_disk}"
        yield Check("clock", "ok", text)
        return
    side = "behind" if skew > 0 else "ahead of"
    text = f"{format_duration(abs(skew))} {side} the server of {facts.clock_disk}"
    cure = "contact the site's support: make, rsync and tokens depend on the clock"
    is_harmful = abs(skew) >= _SKEW_HARMFUL
    yield Check("clock", "broken" if is_harmful else "warning", text, cure)


def environment_words(one: PythonEnvironment) -> str:
    """Return a readable name of an environment."""
    if one.kind == "system":
        return f"the system ({one.prefix})"
    if one.kind == "conda":
        return f"conda's {one.name} ({one.prefix})"
    return f"the venv {one.prefix}" if one.kind == "venv" else "no environment"


def _gpu_words(gpus: GpuFacts) -> str:
    names = sorted(set(gpus.names))
    words = ", ".join(f"{gpus.names.count(name)} x {name}" for name in names)
    driver = f", driver {gpus.driver}" if gpus.driver else ""
    return words + driver + (f" (CUDA {gpus.cuda})" if gpus.cuda else "")


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(map(str.isdecimal, parts)) else ()


MACHINE_CHECKS: tuple[CheckOf, ...] = (
    place,
    schedulers,
    python_on_nodes,
    environment,
    torch,
    driver,
    clock,
)


_SHOWN = 3


def checklist(facts: Facts) -> tuple[Check, ...]:
    """Return the checks of the named job; none without a job."""
    job = facts.job
    if job is None:
        return ()
    return (
        _code(job),
        _data(job, needs_shared=bool(facts.schedulers)),
        *_environment(job, facts),
        _memory(job),
        _gpus(job),
        _script(job),
    )


def _code(job: JobFacts) -> Check:
    git = job.git
    if git is None:
        cure = "git init; git add -A; git commit; push it to a server"
        return Check("code", "warning", f"unknown: {job.git_trouble}", cure)
    if git.commit is None or git.changed or git.untracked:
        words = [f"{git.changed} changed"] if git.changed else []
        words += [f"{git.untracked} new"] if git.untracked else []
        text = f"not committed: {', '.join(words) or 'nothing at all yet'}"
        return Check(
            "code",
            "warning",
            text,
            "git add, git commit: then the record names the code that ran",
        )
    if git.upstream is None:
        cure = "git push -u origin HEAD"
        return Check("code", "warning", "committed, but not pushed", cure)
    if git.ahead:
        text = f"{git.ahead} commit{'' if git.ahead == 1 else 's'} not pushed"
        return Check("code", "warning", text, "git push")
    return Check("code", "ok", f"committed and pushed to {git.upstream}")


def _data(job: JobFacts, *, needs_shared: bool) -> Check:
    local = [one for one in job.data if one.is_shared is False]
    if not needs_shared:
        return Check("data", "ok", "the job runs on this machine: it has these disks")
    if not local:
        kinds = ", ".join(sorted({one.kind for one in job.data if one.kind}))
        return Check("data", "ok", f"its files are on a shared disk ({kinds})")
    shown = ["this directory" if one.path == "." else one.path for one in local]
    names = ", ".join(shown[:_SHOWN])
    more = f" and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
    text = f"on this machine's own disk: {names}{more} ({local[0].kind})"
    cure = (
        "nodes may not see it: copy it to the shared disk, or weigh submit --stage-in"
    )
    return Check("data", "warning", text, cure)


def _environment(job: JobFacts, facts: Facts) -> Iterator[Check]:
    one = job.environment
    if one is None or one.kind == "none":
        text = f"{job.activates}: environment not found on this machine"
        if job.activates is None:
            text = "no python on PATH"
        cure = "create it (conda create, python -m venv), or load its module"
        yield Check("environment", "warning", text, cure)
        return
    yield Check("environment", "ok", environment_words(one))
    is_other = facts.environment is None or one.prefix != facts.environment.prefix
    if one.torch is not None and is_other:
        requests = job.asks_gpus is True
        yield torch_check(one, is_requested=requests, is_likely=bool(facts.schedulers))


def _memory(job: JobFacts) -> Check:
    if job.runs:
        return Check("RAM", "ok", f"known from {_runs(job.runs)}")
    cure = "weigh run -- COMMAND (or weigh scan), then weigh request"
    return Check("RAM", "warning", "unknown: its command has no record", cure)


def _gpus(job: JobFacts) -> Check:
    if job.asks_gpus is None:
        cure = "name it: weigh doctor --job PLAN or SCRIPT"
        return Check("GPUs", "warning", "unknown: no plan or script", cure)
    if not job.asks_gpus:
        return Check("GPUs", "ok", "it requests none")
    if job.gpu_runs:
        return Check("GPUs", "ok", f"GPU memory is known from {_runs(job.gpu_runs)}")
    cure = "weigh run -- COMMAND on a GPU node, to measure memory and load"
    return Check("GPUs", "warning", "it requests GPUs, but no record used one", cure)


def _script(job: JobFacts) -> Check:
    if job.trouble is not None:
        what = f"{job.file}: {job.trouble}" if job.file else job.trouble
        cure = "weigh doctor --job PLAN or SCRIPT; weigh plan makes a plan"
        return Check("script", "broken" if job.file else "warning", what, cure)
    if job.missing_files:
        names = ", ".join(job.missing_files[:_SHOWN])
        text = f"{job.file}: {len(job.missing_files)} task files are missing: {names}"
        return Check("script", "broken", text, "weigh plan --replace")
    if job.kind == "plan":
        return Check("script", "ok", f"{job.file}: a plan of {job.tasks} tasks")
    return Check(
        "script",
        "ok",
        f"{job.file} exists; check it with: weigh check {quoted(job.file or '')}",
    )


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
