"""The checks of this machine: each reads what it needs and returns its lines."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from weigh.errors import GpuError, NoGpuError
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner
from weigh.flow.site.schedulers import current_user
from weigh.model.doctor import DoctorCheck, PythonEnvironment
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.filesystem import is_in_memory, read_disk
from weigh.probe.python_environment import environment_of, find_python
from weigh.render.printable import last_line_of
from weigh.schedulers import KINDS, job_from_environment
from weigh.schedulers.job_script import TORCH_CHECK
from weigh.store.location import locate_store
from weigh.units import GIB, MIB, Seconds, format_size

PATIENCE: Seconds = 10.0
_FULL_DISK = 0.98  # of its size
_LEAST = 200 * MIB  # bytes, in which a record or a log still fits
_LEAST_FILES = 1000  # files that can still be made
# variables for a user's scratch, then the usual directories
_SCRATCH_VARIABLES = (
    "SCRATCH",
    *(name for kind in KINDS.values() for name in kind.variables.scratch),
)
_SCRATCH_FOLDERS = (
    "/disk/scratch",
    "/scratch",
    "/local/scratch",
    "/lscratch",
    "/localscratch",
)
_ASK_SITE = "send this line and the node's name to the site's support"


def has_scheduler(env: Mapping[str, str]) -> bool:
    """Return whether jobs can be submitted from here."""
    return any(_is_on_path(kind.submits, env) for kind in KINDS.values())


def scheduler_checks(
    env: Mapping[str, str], run_command: CommandRunner
) -> list[DoctorCheck]:
    """Check that the scheduler answers and that all its commands are on PATH."""
    checks = []
    for kind in KINDS.values():
        if not _is_on_path(kind.submits, env):
            continue
        missing = [name for name in kind.commands if not _is_on_path(name, env)]
        reply = run_command(kind.probe, env=env, patience=PATIENCE)
        state, text, cure = "ok", f"{kind.title} answers", None
        # the commands are installed on many machines that belong to no cluster
        if not reply.is_answer and kind.backend.NO_CLUSTER.search(reply.complaint()):
            state, text = "warning", f"{kind.title}: no cluster is set up here"
            cure = "none, where jobs run on this machine; else load its module"
        elif not reply.is_answer:
            state, text = "broken", f"{kind.title}: {reply.complaint()}"
            cure = "wait and try again; if it persists, contact the site's support"
        elif missing:
            state, text = "warning", f"{text}; not on PATH: {', '.join(missing)}"
            cure = "load the scheduler's module, or ask the site for these commands"
        checks.append(DoctorCheck("scheduler", state, text, cure))  # type: ignore[arg-type]
    none = "none found: jobs run on this machine (weigh exec)"
    return checks or [DoctorCheck("scheduler", "ok", none)]


def nodes_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Check whether compute nodes can see weigh's Python."""
    # within a job this machine is a node
    if not has_scheduler(env) or job_from_environment(env) is not None:
        return []
    disk = read_disk("python", sys.prefix)
    if disk.is_shared:
        text = f"weigh's Python is on a shared disk ({disk.kind}): nodes see it"
        return [DoctorCheck("nodes", "ok", text)]
    start = next(k.starts for k in KINDS.values() if _is_on_path(k.submits, env))
    text = f"weigh's Python is on this machine's own disk: {disk.path}"
    attempt = f"try {start} {sys.executable} --version"
    cure = f"{attempt}; if it fails, make a venv on a shared disk"
    return [DoctorCheck("nodes", "warning", text, cure)]


def environment_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Report which Python a command would start."""
    found = environment_of(find_python(env))
    if found.kind == "none":
        cure = "activate an environment, or load a module"
        return [DoctorCheck("environment", "warning", "no python on PATH", cure)]
    if env.get("CONDA_PREFIX") and env.get("VIRTUAL_ENV"):
        text = f"conda and a venv are both active; python is of {found.prefix}"
        return [DoctorCheck("environment", "warning", text, "deactivate one of them")]
    return [
        DoctorCheck("environment", "ok", f"python is of {environment_words(found)}")
    ]


def torch_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Check whether the installed torch can use a GPU, here by trying it."""
    python = find_python(env)
    found = environment_of(python)
    has_gpu = gpu_may_be_present(env)
    if found.torch is None or python is None:
        return []
    # without a GPU, a build for CPUs matters only if jobs go elsewhere
    checks = [torch_check(found, is_likely=has_gpu or has_scheduler(env))]
    trouble = None
    # only where a GPU is: importing torch takes seconds
    if has_gpu and (found.torch.cuda or found.torch.hip):
        trouble = _torch_trouble(python, env)
    if trouble is not None:
        checks.append(DoctorCheck("torch", "broken", trouble, _torch_fix(found)))
    return checks


def torch_check(
    found: PythonEnvironment, *, is_likely: bool, is_requested: bool = False
) -> DoctorCheck:
    """Check what torch was built for; broken only if the job requests GPUs."""
    build = found.torch
    if build is None:
        return DoctorCheck("torch", "ok", f"no torch in {environment_words(found)}")
    if build.cuda or build.hip:
        kind = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.hip}"
        return DoctorCheck("torch", "ok", f"torch {build.version}, built for {kind}")
    text = f"torch {build.version} is built for CPUs only: it cannot use a GPU"
    if not (is_likely or is_requested):
        return DoctorCheck("torch", "ok", text)
    state = "broken" if is_requested else "warning"
    return DoctorCheck("torch", state, text, _torch_fix(found))  # type: ignore[arg-type]


def _torch_fix(found: PythonEnvironment) -> str:
    where = environment_words(found)
    return f"install torch's CUDA build (pytorch.org/get-started) in {where}"


def _torch_trouble(python: str, env: Mapping[str, str]) -> str | None:
    """Return why torch cannot use the GPU here, by a process that imports it.

    The same program ends a job on a GPU that torch was not built for.
    """
    try:
        done = subprocess.run(
            [python, "-c", TORCH_CHECK],
            env=dict(env),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    last = last_line_of(done.stderr)
    # the program begins its own messages so; others are not about the GPU
    return last.removeprefix("weigh: ") if last.startswith("weigh: ") else None


def gpu_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Check that the GPUs of this machine answer."""
    absence = "no NVIDIA driver here, or no GPU is allocated to you"
    names: list[str] = []
    try:
        if gpu_may_be_present(env):
            probe = open_probe(env)
            names = [device.name for device in probe.devices()]
            absence = probe.absence or "no GPU here"
            probe.close()
    except NoGpuError as error:
        absence = str(error)
    except GpuError as error:
        return [DoctorCheck("GPU", "broken", str(error), _ASK_SITE)]
    if not names:
        is_login = has_scheduler(env) and job_from_environment(env) is None
        more = "; for a node, run weigh doctor in a job there" if is_login else ""
        return [DoctorCheck("GPU", "ok", absence + more)]
    words = ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    from weigh.probe.nvml_library import (  # noqa: PLC0415 - ctypes, with a GPU
        read_driver_version,
    )

    # the driver's version decides which CUDA builds run
    driver, cuda = read_driver_version()
    words += f", driver {driver}" if driver else ""
    return [DoctorCheck("GPU", "ok", words + (f" (CUDA {cuda})" if cuda else ""))]


def folders_to_check(here: Here) -> list[tuple[str, str]]:
    """Return the directories whose disks matter, each with its role."""
    folders = [("home", here.env.get("HOME", "")), ("folder", here.cwd)]
    scratch = find_scratch(here.env)
    if scratch is not None:
        # a scratch folder is found as "$NAME" or as a path
        path = here.env[scratch[1:]] if scratch.startswith("$") else scratch
        folders.append(("scratch", path.replace("$USER", current_user())))
    folders.append(("temporary", here.env.get("TMPDIR") or tempfile.gettempdir()))
    return [(role, path) for role, path in folders if path]


def disk_check(role: str, path: str) -> DoctorCheck:
    """Check whether a disk is full, over quota, or cannot be written."""
    disk = read_disk(role, path)
    where = f"{path} ({disk.kind or 'unknown kind'})"
    if disk.trouble is not None:
        cure = "is its file server up? ask the site's support"
        return DoctorCheck(role, "broken", f"{path}: {disk.trouble}", cure)
    if disk.writable is False:
        cure = "choose another folder; is it mounted read-only, or not yours?"
        return DoctorCheck(role, "warning", f"{where} cannot be written", cure)
    free, size = disk.free or 0, disk.size or 0
    state, text = "ok", f"{format_size(free)} of {format_size(size)} left on {where}"
    trouble = _write_trouble(path) if os.path.isdir(path) else None
    if trouble is not None:  # an exceeded quota is one
        state, text = "broken", f"{where} cannot be written: {trouble}"
    # some file systems count files apart from bytes
    elif disk.files_free is not None and disk.files_free < _LEAST_FILES:
        state = "warning" if disk.files_free else "broken"
        text = f"{disk.files_free} more files can be made on {where}"
    # a full home folder stops logins and jobs, another disk only what uses it
    elif free < _LEAST:
        state = "broken" if role == "home" else "warning"
    # a large disk at 98 % still has room enough
    elif free < (1 - _FULL_DISK) * size and free < 10 * GIB:
        state = "warning"
    largest = f"du -xsh {path}/* {path}/.[!.]* | sort -h | tail"
    cure = f"delete or move what is not needed: {largest}"
    return DoctorCheck(role, state, text, None if state == "ok" else cure)  # type: ignore[arg-type]


def records_checks(here: Here) -> list[DoctorCheck]:
    """Check where records are written, whether that works, and whether they persist."""
    folder = locate_store(here.cwd, here.env)
    disk = read_disk("records", folder)
    trouble = disk.trouble or (None if disk.writable else "not writable")
    if trouble is None and os.path.isdir(folder):
        trouble = _write_trouble(folder)
    text = f"records go to {disk.path} ({disk.kind or 'unknown kind'})"
    cure = "set WEIGH_DIR to a folder under your home or project"
    if trouble is not None:
        return [DoctorCheck("records", "broken", f"{text}: {trouble}", cure)]
    if is_in_memory(disk.kind):
        text += ": gone when this machine restarts"
        return [DoctorCheck("records", "warning", text, cure)]
    if has_scheduler(here.env) and disk.is_shared is False:
        text += ": nodes write theirs elsewhere"
        cure = "set WEIGH_DIR to a folder on a disk that the nodes share"
        return [DoctorCheck("records", "warning", text, cure)]
    return [DoctorCheck("records", "ok", text)]


def environment_words(found: PythonEnvironment) -> str:
    """Return a readable name of an environment."""
    if found.kind == "system":
        return f"the system ({found.prefix})"
    if found.kind == "conda":
        return f"conda's {found.name} ({found.prefix})"
    return f"the venv {found.prefix}" if found.kind == "venv" else "no environment"


def _is_on_path(name: str, env: Mapping[str, str]) -> bool:
    folders = env.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(one, name), os.X_OK) for one in folders if one)


def _write_trouble(folder: str) -> str | None:
    """Write a file and remove it: permissions alone do not suffice on network disks."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file:
            file.write(b"weigh doctor\n")
            file.flush()
    except OSError as error:
        return error.strerror or "not writable"
    return None


def find_scratch(env: Mapping[str, str], root: str = "") -> str | None:
    """Return this machine's scratch directory, by its variable or folder."""
    for name in _SCRATCH_VARIABLES:
        if os.path.isdir(root + env.get(name, "")) and env.get(name):
            return f"${name}"
    for folder in _SCRATCH_FOLDERS:
        if os.path.isdir(root + folder):
            return f"{folder}/$USER"
    return None
