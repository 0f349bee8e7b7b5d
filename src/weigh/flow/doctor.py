"""``weigh doctor``: check this machine, and a job before submission."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh import config
from weigh.answers_in_time import in_time
from weigh.errors import FormatError, GpuError, NoGpuError, WeighError, close_names
from weigh.flow.here import Here
from weigh.flow.plan.directory import FILE as PLAN
from weigh.flow.plan.directory import read_plan
from weigh.flow.site.ask import CommandRunner, run_query_command
from weigh.flow.site.cluster import site_warnings
from weigh.flow.site.schedulers import current_user
from weigh.measure.programs import SITE_FILE, VARIABLE, read_sign_table
from weigh.model.doctor import (
    CheckState,
    DoctorCheck,
    DoctorDiagnosis,
    PythonEnvironment,
    TorchBuild,
)
from weigh.probe.driver import gpu_may_be_present, open_probe
from weigh.probe.filesystem import is_in_memory, read_disk
from weigh.probe.host import read_host
from weigh.probe.python_environment import (
    environment_of,
    find_python,
)
from weigh.render.printable import last_line_of
from weigh.schedulers import KINDS, job_from_environment, schedulers_on_path
from weigh.schedulers.job_script import TORCH_CHECK
from weigh.store.index import RecordHead, read_index
from weigh.store.location import locate_store
from weigh.sweep.quoting import bash_quoted
from weigh.units import GIB, MIB, Seconds, count_with_noun, format_size

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


def scheduler_checks(
    env: Mapping[str, str], run_command: CommandRunner
) -> list[DoctorCheck]:
    """Check that the scheduler answers and that all its commands are on PATH."""
    checks, without_cluster = list[DoctorCheck](), list[DoctorCheck]()
    path = env.get("PATH", "")
    for kind in (KINDS[name] for name in schedulers_on_path(env)):
        missing = [one for one in kind.commands if not shutil.which(one, path=path)]
        reply = run_command(kind.probe, env=env, patience=PATIENCE)
        state: CheckState = "ok"
        text = f"{kind.title} answers"
        cure: str | None = None
        found = checks
        # the commands are installed on many machines that belong to no cluster
        if not reply.is_answer and kind.backend.NO_CLUSTER.search(reply.complaint()):
            found = without_cluster
            state, text = "warning", f"{kind.title}: no cluster is set up here"
            cure = "load its module, unless jobs run on this machine"
        elif not reply.is_answer:
            state, text = "broken", f"{kind.title}: {reply.complaint()}"
            cure = "wait and try again; if it persists, contact the site's support"
        elif missing:
            state, text = "warning", f"{text}; not on PATH: {', '.join(missing)}"
            cure = "load the scheduler's module, or ask the site for these commands"
        found.append(DoctorCheck("scheduler", state, text, cure))
    none = "none found: jobs run on this machine (weigh exec)"
    # where one answers, the commands of others are only installed
    return checks or without_cluster or [DoctorCheck("scheduler", "ok", none)]


def nodes_checks(env: Mapping[str, str]) -> list[DoctorCheck]:
    """Check whether compute nodes can see weigh's Python."""
    # within a job this machine is a node
    if not schedulers_on_path(env) or job_from_environment(env) is not None:
        return []
    disk = read_disk(sys.prefix)
    if disk.is_shared:
        text = f"weigh's Python is on a shared disk ({disk.kind}): nodes see it"
        return [DoctorCheck("nodes", "ok", text)]
    start = KINDS[schedulers_on_path(env)[0]].starts
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
    is_likely = has_gpu or bool(schedulers_on_path(env))
    checks = [torch_check(found, found.torch, "warning" if is_likely else "ok")]
    # only where a GPU is: importing torch takes seconds
    if has_gpu and (found.torch.cuda or found.torch.hip):
        with suppress(OSError, subprocess.TimeoutExpired):
            # the same program ends a job on a GPU that torch was not built for
            done = subprocess.run(
                [python, "-c", TORCH_CHECK],
                env=dict(env),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PATIENCE,
                check=False,
            )
            last = last_line_of(done.stderr)
            # the program begins its own messages so; others are not about the GPU
            if last.startswith("weigh: "):
                trouble = last.removeprefix("weigh: ")
                checks.append(_torch_to_exchange(found, "broken", trouble))
    return checks


def torch_check(
    found: PythonEnvironment, build: TorchBuild, cpus_only: CheckState
) -> DoctorCheck:
    """Check what torch was built for; *cpus_only* is what a build for CPUs is."""
    if build.cuda or build.hip:
        kind = f"CUDA {build.cuda}" if build.cuda else f"ROCm {build.hip}"
        return DoctorCheck("torch", "ok", f"torch {build.version}, built for {kind}")
    text = f"torch {build.version} is built for CPUs only: it cannot use a GPU"
    if cpus_only == "ok":
        return DoctorCheck("torch", "ok", text)
    return _torch_to_exchange(found, cpus_only, text)


def _torch_to_exchange(
    found: PythonEnvironment, state: CheckState, text: str
) -> DoctorCheck:
    where = environment_words(found)
    cure = f"install torch's CUDA build (pytorch.org/get-started) in {where}"
    return DoctorCheck("torch", state, text, cure)


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
        is_login = schedulers_on_path(env) and job_from_environment(env) is None
        more = "; for a node, run weigh doctor in a job there" if is_login else ""
        return [DoctorCheck("GPU", "ok", absence + more)]
    words = ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))
    from weigh.probe.nvml import (  # noqa: PLC0415 - ctypes, with a GPU
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
    disk = read_disk(path)
    where = f"{path} ({disk.kind or 'unknown kind'})"
    if disk.trouble is not None:
        cure = "is its file server up? ask the site's support"
        return DoctorCheck(role, "broken", f"{path}: {disk.trouble}", cure)
    if disk.writable is False:
        cure = "choose another folder; is it mounted read-only, or not yours?"
        return DoctorCheck(role, "warning", f"{where} cannot be written", cure)
    free, size = disk.free or 0, disk.size or 0
    largest = f"du -xsh {path}/* {path}/.[!.]* | sort -h | tail"
    cure = f"delete or move what is not needed: {largest}"
    trouble = _write_trouble(path) if os.path.isdir(path) else None
    if trouble is not None:  # an exceeded quota is one
        text = f"{where} cannot be written: {trouble}"
        return DoctorCheck(role, "broken", text, cure)
    text = f"{format_size(free)} of {format_size(size)} left on {where}"
    # some file systems count files apart from bytes
    has_few_files = disk.files_free is not None and disk.files_free < _LEAST_FILES
    if has_few_files:
        text = f"{disk.files_free} more files can be made on {where}"
    # a full home folder stops logins and jobs, another disk only what uses it
    if free < _LEAST or has_few_files:
        state: CheckState = "broken" if role == "home" else "warning"
        return DoctorCheck(role, state, text, cure)
    # a large disk at 98 % still has room enough
    is_full = free < (1 - _FULL_DISK) * size and free < 10 * GIB
    return _ok_or_warning(role, text, cure if is_full else None)


def records_checks(here: Here) -> list[DoctorCheck]:
    """Check where records are written, whether that works, and whether they persist."""
    folder = locate_store(here.cwd, here.env)
    disk = read_disk(folder)
    trouble = disk.trouble or (None if disk.writable else "not writable")
    if trouble is None and os.path.isdir(folder):
        trouble = _write_trouble(folder)
    text = f"records go to {disk.path} ({disk.kind or 'unknown kind'})"
    cure: str | None = "set WEIGH_DIR to a folder under your home or project"
    if trouble is not None:
        return [DoctorCheck("records", "broken", f"{text}: {trouble}", cure)]
    if is_in_memory(disk.kind):
        text += ": gone when this machine restarts"
    elif schedulers_on_path(here.env) and disk.is_shared is False:
        text += ": nodes write theirs elsewhere"
        cure = "set WEIGH_DIR to a folder on a disk that the nodes share"
    else:
        cure = None
    return [_ok_or_warning("records", text, cure)]


_ALIKE = 0.8  # HEADROM for HEADROOM; DIR and POLL, which others read, are like none


def settings_checks(here: Here) -> Iterator[DoctorCheck]:
    """Report settings that no part of weigh reads, in files and in variables."""
    try:
        lines = [*site_warnings(here)]
    except FormatError as error:
        yield DoctorCheck("settings", "broken", str(error), "correct the file")
        return
    known = {key.upper() for key in config.KEYS}
    for name in sorted(here.env):
        key = name.removeprefix(config.PREFIX)
        if key != name and key not in known:
            near = close_names(key, known, cutoff=_ALIKE)
            lines += [
                f"{name} is no setting (did you mean {config.PREFIX}{n}?)" for n in near
            ]
    for line in lines:
        yield DoctorCheck("settings", "warning", line, None)


def signs_checks(env: Mapping[str, str]) -> Iterator[DoctorCheck]:
    """Report a table of signs, the user's or the site's, that runs leave out."""
    sites = [SITE_FILE] if os.path.exists(SITE_FILE) else []
    for path in filter(None, (env.get(VARIABLE), *sites)):
        try:
            read_sign_table(path)
        except OSError as error:
            why = f"{path}: {error.strerror}"
        except FormatError as error:
            why = str(error)
        else:
            continue
        cure = "correct the file: runs are measured without its signs"
        yield DoctorCheck("signs", "warning", why, cure)


def environment_words(found: PythonEnvironment) -> str:
    """Return a readable name of an environment."""
    if found.kind == "system":
        return f"the system ({found.prefix})"
    if found.kind == "conda":
        return f"conda's {found.name} ({found.prefix})"
    return f"the venv {found.prefix}"


def _write_trouble(folder: str) -> str | None:
    """Write a file and remove it: permissions alone do not suffice on network disks."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file:
            file.write(b"weigh doctor\n")
            file.flush()
    except OSError as error:
        return str(error.strerror)
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


_LONGEST_SCRIPT = 1 << 20  # bytes
# words of shell lines, and paths that exist, which are looked at
_MOST_WORDS, _MOST_PATHS = 400, 40
_SHOWN = 3  # names
_PREFIXES = "|".join(
    re.escape(kind.text.PREFIX) for kind in KINDS.values() if kind.text.PREFIX
)
# directives of all schedulers: a script may have several kinds
_DIRECTIVE = re.compile(rf"(?m)^(?:{_PREFIXES})\s+(.*)")
_ACTIVATE = re.compile(
    r"(?m)^\s*(?:(?:source|\.)\s+\S+/bin/activate\b"
    r"|(?:conda|mamba|micromamba|source)\s+activate\s+\S+)"
)
_BRANCH = re.compile(r"(?m)^# branch\.(\S+) (.*)$")
# folders that every machine has its own of
_SYSTEM = ("/usr", "/bin", "/lib", "/etc", "/dev", "/proc", "/sys", "/opt", "/run")


class DoctorJob(msgspec.Struct, frozen=True, kw_only=True):
    """A plan or script as read, with its shell lines: of a plan, one of each kind.

    ``runs`` counts the records that its request is based on, ``gpu_runs`` those that
    used a GPU. ``description`` is what it is, ``trouble`` why it cannot be submitted.
    """

    name: str
    folder: str
    lines: tuple[str, ...] = ()
    asks_gpus: bool = False
    runs: int = 0
    gpu_runs: int = 0
    description: str = ""
    trouble: str | None = None


def job_checks(
    here: Here, named: str, run_command: CommandRunner
) -> Iterator[DoctorCheck]:
    """Yield the checks of the plan or script *named*."""
    job = read_job(here, named)
    yield _code_check(job.folder, here.env, run_command)
    yield _data_check(here, job)
    yield from _job_environment_checks(here, job)
    known = f"known from {count_with_noun(job.runs, 'run')}"
    text, cure = known, "weigh run -- COMMAND (or weigh scan), then weigh request"
    if not job.runs:
        text = "unknown: its command has no record"
    yield _ok_or_warning("RAM", text, None if job.runs else cure)
    cure = "weigh run -- COMMAND on a GPU node, to measure memory and load"
    text = f"GPU memory is known from {count_with_noun(job.gpu_runs, 'run')}"
    if not job.asks_gpus:
        text = "it requests none"
    elif not job.gpu_runs:
        text = "it requests GPUs, but no record used one"
    is_known = bool(job.gpu_runs) or not job.asks_gpus
    yield _ok_or_warning("GPUs", text, None if is_known else cure)
    if job.trouble is None:
        yield DoctorCheck("script", "ok", job.description)
    else:
        cure = "weigh doctor PLAN or SCRIPT; weigh plan makes a plan"
        yield DoctorCheck("script", "broken", f"{job.name}: {job.trouble}", cure)


def _job_environment_checks(here: Here, job: DoctorJob) -> Iterator[DoctorCheck]:
    """Check the environment that is active, unless the script activates another."""
    activation = _ACTIVATE.search("\n".join(job.lines))
    if activation is not None:
        text = f"the script has: {activation[0].strip()}"
        yield DoctorCheck("environment", "ok", text)
        return
    yield from environment_checks(here.env)
    found = environment_of(find_python(here.env))
    if found.torch is not None and job.asks_gpus:
        yield torch_check(found, found.torch, "broken")


def _ok_or_warning(name: str, text: str, cure: str | None) -> DoctorCheck:
    """Return a warning where there is a *cure*, else that all is well."""
    return DoctorCheck(name, "warning" if cure else "ok", text, cure)


def read_job(here: Here, named: str) -> DoctorJob:
    """Read a plan or a script, and count the records of what it runs."""
    path = os.path.join(here.cwd, named)
    # the plan's file or its folder
    folder = os.path.dirname(path) if os.path.basename(path) == PLAN else path
    if os.path.isfile(os.path.join(folder, PLAN)):
        return _read_plan_files(named, folder, here.cwd)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(_LONGEST_SCRIPT)
    except OSError as error:
        why = "it is not there" if not os.path.exists(path) else str(error.strerror)
        if os.path.isdir(path):
            why = "it is a folder and no plan"
        return DoctorJob(name=named, folder=here.cwd, trouble=why)
    directives = "\n".join(_DIRECTIVE.findall(text))
    lines = tuple(text.splitlines())
    heads = _records_of(here, lines)
    return DoctorJob(
        name=named,
        folder=os.path.dirname(path) or here.cwd,
        lines=lines,
        asks_gpus=any(
            k.lint.requests_gpus(directives, here.env) for k in KINDS.values()
        ),
        runs=len(heads),
        gpu_runs=sum(bool(head.usage and head.usage.gpus) for head in heads),
        description=f"{named} exists; check it with: weigh check {bash_quoted(named)}",
    )


def _read_plan_files(named: str, folder: str, cwd: str) -> DoctorJob:
    try:
        plan = read_plan(folder)
    except WeighError as error:
        return DoctorJob(name=named, folder=cwd, trouble=f"it cannot be read: {error}")
    missing = [one for one in plan.files if not os.path.isfile(f"{folder}/{one}")]
    names = ", ".join(missing[:_SHOWN])
    # the kind with the fewest records decides how well the plan is known
    runs = min((kind.runs for kind in plan.kinds), default=0)
    return DoctorJob(
        name=named,
        folder=cwd,
        lines=tuple(kind.example for kind in plan.kinds),
        asks_gpus=plan.request.gpus > 0,
        runs=runs,
        gpu_runs=runs if any(kind.used.gpu_memory for kind in plan.kinds) else 0,
        description=f"{named}: a plan of {plan.tasks} tasks",
        trouble=f"{len(missing)} task files are missing: {names}" if missing else None,
    )


def _code_check(
    folder: str, env: Mapping[str, str], run_command: CommandRunner
) -> DoctorCheck:
    """Check that the code is committed and pushed."""
    argv = ("git", "-C", folder, "status", "--porcelain=v2", "--branch")
    # no lock is taken, nothing is written, no password prompt appears
    quiet = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    reply = run_command(argv, env={**env, **quiet}, patience=PATIENCE)
    if not reply.is_answer:
        why = reply.complaint().removeprefix("fatal: ")
        cure = "keep the code in git (git init), and push it to a server"
        return DoctorCheck("code", "warning", f"unknown: {why}", cure)
    return code_check_of(reply.out)


def code_check_of(status: str) -> DoctorCheck:
    """Judge the output of ``git status --porcelain=v2 --branch``."""
    branch = dict(_BRANCH.findall(status))
    # "#" lines describe the branch, "!" lines ignored files
    lines = [line for line in status.splitlines() if line[:1] not in {"#", "!", ""}]
    if lines or branch.get("oid") == "(initial)":
        text = f"not committed: {count_with_noun(len(lines), 'file')}"
        if not lines:
            text = "nothing is committed yet"
        cure = "git add, git commit: then the record names the code that ran"
        return DoctorCheck("code", "warning", text, cure)
    # commits that the upstream branch lacks, as in "+2 -0"
    if "upstream" not in branch or not branch.get("ab", "+0").startswith("+0"):
        cure = "git push, the first time: git push -u origin HEAD"
        return DoctorCheck("code", "warning", "committed, but not pushed", cure)
    return DoctorCheck("code", "ok", f"committed and pushed to {branch['upstream']}")


def _data_check(here: Here, job: DoctorJob) -> DoctorCheck:
    """Check that the files which the commands name are on a disk that nodes see."""
    if not schedulers_on_path(here.env):
        text = "the job runs on this machine: it has these disks"
        return DoctorCheck("data", "ok", text)
    local, kinds = list[str](), set[str]()
    for path in named_paths(job.lines, here.cwd):
        disk = read_disk(path)
        kinds.add(disk.kind or "?")
        if disk.is_shared is False:
            name = os.path.relpath(path, here.cwd)
            local.append("this directory" if name == "." else name)
    if not local:
        text = f"its files are on a shared disk ({', '.join(sorted(kinds))})"
        return DoctorCheck("data", "ok", text)
    more = f" and {len(local) - _SHOWN} more" if len(local) > _SHOWN else ""
    text = f"on this machine's own disk: {', '.join(local[:_SHOWN])}{more}"
    cure = (
        "copy it to the shared disk, or weigh submit --stage-in: nodes may not see it"
    )
    return DoctorCheck("data", "warning", text, cure)


def named_paths(lines: Sequence[str], cwd: str) -> list[str]:
    """Return this folder, and the files and folders that shell lines name."""
    paths = {cwd: None}
    for word in list(_shell_words(lines))[:_MOST_WORDS]:
        path = os.path.normpath(os.path.join(cwd, os.path.expanduser(word)))
        # only words like a path: any word may be the name of a file by chance
        is_path = "/" in word or "." in word
        if is_path and not path.startswith(_SYSTEM) and os.path.exists(path):
            paths[path] = None
    return list(paths)[:_MOST_PATHS]


def _shell_words(lines: Sequence[str]) -> Iterator[str]:
    """Return the words of shell lines, and what stands behind an ``=`` in them."""
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a quote that goes on in the next line
            words = line.split()
        for word in words:
            yield word
            if value := word.partition("=")[2]:
                yield value


def _records_of(here: Here, lines: Sequence[str]) -> list[RecordHead]:
    """Return the records of what a script runs: its program and first argument."""
    words = set(_shell_words(lines))
    programs = {os.path.basename(word) for word in words}
    found = []
    with suppress(WeighError):
        for entry in read_index(locate_store(here.cwd, here.env)).entries:
            program, *arguments = entry.head.command or ("",)
            # an option as the first argument does not distinguish scripts
            first = {one for one in arguments[:1] if not one.startswith("-")}
            is_run = os.path.basename(program) in programs and first <= words
            if is_run and entry.head.state == "COMPLETED":
                found.append(entry.head)
    return found


_HUNG_CURE = "is a file server or a driver down? ask the site's support"


def diagnose_machine(
    here: Here,
    *,
    job: str | None = None,
    run_command: CommandRunner = run_query_command,
) -> DoctorDiagnosis:
    """Check this machine and the plan or script *job*; what hangs is broken."""
    # looked for in a thread as well: HOME may be on a file server that is down
    (folders,) = in_time([lambda: folders_to_check(here)], patience=PATIENCE)
    looks: list[tuple[str, Callable[[], list[DoctorCheck]]]] = [
        ("scheduler", lambda: scheduler_checks(here.env, run_command)),
        ("nodes", lambda: nodes_checks(here.env)),
        ("environment", lambda: environment_checks(here.env)),
        ("torch", lambda: torch_checks(here.env)),
        ("GPU", lambda: gpu_checks(here.env)),
        *(
            (role, _disk_look(role, path))
            for role, path in folders or [("home", here.cwd)]
        ),
        ("records", lambda: records_checks(here)),
        ("settings", lambda: list(settings_checks(here))),
        ("signs", lambda: list(signs_checks(here.env))),
    ]
    if job is not None:
        looks.append(("script", lambda: list(job_checks(here, job, run_command))))
    # in parallel, as each may wait for a server or driver
    patience = 2 * PATIENCE
    results = in_time([look for _, look in looks], patience=patience)
    hung = f"has not answered for {patience:g} s"
    found = [
        [DoctorCheck(name, "broken", hung, _HUNG_CURE)] if checks is None else checks
        for (name, _), checks in zip(looks, results, strict=True)
    ]
    of_job = found.pop() if job is not None else []
    # several folders on one disk that is fine are one line
    kept: dict[str, DoctorCheck] = {}
    for check in (check for checks in found for check in checks):
        kept.setdefault(check.text.partition(" left on ")[0], check)
    return DoctorDiagnosis(
        host=read_host().name, checks=tuple(kept.values()), job=tuple(of_job)
    )


def _disk_look(role: str, path: str) -> Callable[[], list[DoctorCheck]]:
    return lambda: [disk_check(role, path)]
