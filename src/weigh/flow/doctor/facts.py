"""Collect the facts for ``weigh doctor``, in threads with a time limit."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import GpuError, NoGpuError
from weigh.flow.site.ask import Ask, in_time
from weigh.flow.site.site_file import find_scratch
from weigh.model.doctor import (
    Check,
    Disk,
    Facts,
    GpuFacts,
    Limits,
    Memory,
    Quota,
    Reach,
    SchedulerFacts,
)
from weigh.probe import python_environment
from weigh.probe.cgroup import read_cgroup
from weigh.probe.driver import (
    gpu_may_be_present,
    kernel_module_version,
    open_probe,
    read_driver_version,
)
from weigh.probe.filesystem import is_in_memory, parse_quota, read_disk
from weigh.probe.host import read_host
from weigh.probe.own_memory import ProcMemory
from weigh.probe.proc import is_own_proc, read_reaped_io
from weigh.probe.process_limits import read_limits
from weigh.render.printable import last_line_of
from weigh.runner.memory_limits import MemoryGauge
from weigh.schedulers import KINDS, job_from_environment
from weigh.schedulers.job_script import TORCH_CHECK
from weigh.store.location import locate
from weigh.units import GIB, KIB, MIB, Seconds, format_duration, format_size

_NEARLY = 0.90  # of a quota
_FULL_DISK = 0.98
_LEAST = 200 * MIB
_LEAST_FILES = 1000
_FEW_FILES, _FEW_PROCESSES, _LITTLE_LOCKED = 1024, 512, 64 * KIB
_LARGE_CORE = 100 * MIB
_LITTLE_MEMORY = 0.05


def disks(facts: Facts) -> Iterator[Check]:
    """Check whether disks are full, in bytes or in files."""
    for disk in facts.disks:
        yield _disk(disk)


def _disk(disk: Disk) -> Check:
    if disk.trouble is not None or disk.free is None or not disk.size:
        text = f"{disk.path}: {disk.trouble or 'its size is unknown'}"
        cure = "is its file server up? ask the site's support" if disk.trouble else None
        return Check(disk.role, "broken" if disk.trouble else "ok", text, cure)
    where = f"{disk.path} ({disk.kind or 'unknown kind'})"
    left = f"{format_size(disk.free)} of {format_size(disk.size)} left on {where}"
    vital = disk.role == "home"
    if disk.free < _LEAST:
        return _full(disk, left, is_broken=vital or not disk.free)
    if disk.files_free is not None and disk.files_free < _LEAST_FILES:
        text = f"{disk.files_free} more files can be made on {where}"
        return _full(disk, text, is_broken=not disk.files_free)
    if disk.free < (1 - _FULL_DISK) * disk.size and disk.free < 10 * GIB:
        return _full(disk, left, is_broken=False)
    if disk.writable is False:
        cure = "choose another folder; is it mounted read-only, or not yours?"
        return Check(disk.role, "warning", f"{where} cannot be written to", cure)
    return Check(disk.role, "ok", left)


def _full(disk: Disk, text: str, *, is_broken: bool) -> Check:
    largest = f"du -xsh {disk.path}/* {disk.path}/.[!.]* | sort -h | tail"
    cure = f"delete or move what is not needed: {largest}"
    return Check(disk.role, "broken" if is_broken else "warning", text, cure)


def quotas(facts: Facts) -> Iterator[Check]:
    """Check how much of each quota is used, in bytes and in files."""
    for quota in facts.quotas:
        if quota.limit or quota.files_limit:
            yield _quota(quota)


def _quota(quota: Quota) -> Check:
    share = quota.used / quota.limit if quota.limit else 0.0
    files = quota.files / quota.files_limit if quota.files_limit else 0.0
    words = []
    if quota.limit:
        words.append(f"{format_size(quota.used)} of {format_size(quota.limit)}")
    if quota.files_limit:
        words.append(f"{quota.files:,} of {quota.files_limit:,} files")
    text = f"{' and '.join(words)} used on {quota.file_system}"
    if max(share, files) < _NEARLY:
        return Check("quota", "ok", text)
    cure = "delete or move what is not needed; conda clean -a, pip cache purge"
    if files >= _NEARLY:
        cure = "pack small files (tar, zip, datasets); conda clean -a frees many"
    return Check("quota", "broken" if max(share, files) >= 1 else "warning", text, cure)


def process_limits(facts: Facts) -> Iterator[Check]:
    """Check whether limits are too low for a training job, or core files too large."""
    limits = facts.limits
    if limits is None:
        return
    found = [check for check in _limit_checks(limits, facts) if check.state != "ok"]
    yield from found
    if not found:
        files = "unlimited" if limits.open_files is None else f"{limits.open_files:,}"
        many = "unlimited" if limits.processes is None else f"{limits.processes:,}"
        text = f"{files} open files, {many} processes, no large core files"
        yield Check("ulimit", "ok", text)


def _limit_checks(limits: Limits, facts: Facts) -> Iterator[Check]:
    if limits.open_files is not None and limits.open_files < _FEW_FILES:
        most = limits.most_open_files
        more = f"ulimit -n {most or 65536}" if most != limits.open_files else None
        cure = f"{more} in the job script" if more else "ask the site for more"
        text = f"only {limits.open_files} open files: data loaders need more"
        yield Check("ulimit", "warning", text, cure)
    if limits.processes is not None and limits.processes < _FEW_PROCESSES:
        text = f"only {limits.processes} processes and threads: OpenMP alone may fail"
        yield Check("ulimit", "warning", text, "set OMP_NUM_THREADS; ulimit -u")
    locked = limits.locked_memory
    if limits.has_fast_network and locked is not None and locked <= _LITTLE_LOCKED:
        text = f"only {format_size(locked)} of locked memory: NCCL over InfiniBand"
        cure = "ulimit -l unlimited in the job, or ask the site"
        yield Check("ulimit", "warning", text, cure)
    yield from _size_limits(limits, facts)


def _size_limits(limits: Limits, facts: Facts) -> Iterator[Check]:
    is_large = limits.core is None or limits.core > _LARGE_CORE
    if is_large and not limits.core_is_piped:
        text = "a crash writes a core file as large as the job's memory"
        yield Check("ulimit", "warning", text, "ulimit -c 0 in the job script")
    if limits.address_space is not None:
        text = f"virtual memory is limited to {format_size(limits.address_space)}"
        cure = "CUDA reserves far more than it uses: ulimit -v unlimited, or h_vmem"
        yield Check("ulimit", "warning", text, cure)
    if limits.cpu_time is not None:
        place = "here" if facts.job_id is None else "in this job"
        text = f"{place}, a process is killed after {format_duration(limits.cpu_time)}"
        yield Check("ulimit", "warning", f"{text} of CPU time", "run it as a job")
    if limits.file_size is not None:
        text = f"files can be at most {format_size(limits.file_size)}"
        yield Check("ulimit", "warning", text, "ulimit -f unlimited")


def memory(facts: Facts) -> Iterator[Check]:
    """Check how much memory is left before processes are killed."""
    room = facts.memory
    if room is None:
        return
    whose = "this control group" if room.is_grouped else "this machine"
    left = max(0, room.limit - room.used)
    text = f"{format_size(left)} of {format_size(room.limit)} left in {whose}"
    if left < _LITTLE_MEMORY * room.limit:
        cure = "end processes you do not need (weigh top), or run it as a job"
        yield Check("memory", "warning", text, cure)
    else:
        yield Check("memory", "ok", text)


def reach(facts: Facts) -> Iterator[Check]:
    """Report which quantities weigh cannot measure on this machine."""
    one = facts.reach
    if one is None:
        return
    lacks = {
        "CPU time of detached children (perf_event)": one.perf_event,
        "the control group's peak": one.cgroup_peak,
        "how often the kernel killed for memory": one.oom_kills,
        "pages shared between processes": one.shared_pages,
        "the peak of a region (clear_refs)": one.high_water,
        "storage traffic": one.storage,
        "all processes (/proc shows another pid namespace)": one.processes,
    }
    missing = [name for name, here in lacks.items() if not here]
    if not missing:
        yield Check("reach", "ok", f"weigh can measure all {len(lacks)} quantities")
        return
    text = f"cannot be measured here: {'; '.join(missing)}"
    cure = "records leave these out or have bounds; compute nodes may differ"
    yield Check("reach", "warning", text, cure)


def store(facts: Facts) -> Iterator[Check]:
    """Check where records are written, whether that works, and whether they persist."""
    disk = facts.store
    if disk is None:
        return
    where = f"records go to {disk.path} ({disk.kind or 'unknown kind'})"
    cure = "set WEIGH_DIR to a folder under your home or project"
    if disk.trouble is not None or not disk.writable:
        why = disk.trouble or "not writable"
        yield Check("records", "broken", f"{where}: {why}", cure)
    elif is_in_memory(disk.kind):
        text = f"{where}: gone when this machine restarts"
        yield Check("records", "warning", text, cure)
    elif facts.schedulers and disk.is_shared is False:
        text = f"{where}: nodes write theirs elsewhere"
        cure = "set WEIGH_DIR to a folder on a disk that the nodes share"
        yield Check("records", "warning", text, cure)
    else:
        yield Check("records", "ok", where)


LIMIT_CHECKS = (disks, quotas, process_limits, memory, reach, store)


PATIENCE = 10.0
_HUNG = f"has not answered for {PATIENCE:g} s"


def gather(cwd: str, env: Mapping[str, str], ask: Ask) -> Facts:
    """Collect all facts; what hangs is reported as a problem or left out."""
    (roles,) = in_time([lambda: _folders(cwd, env)], patience=PATIENCE)
    disks = _disks(roles or [("home", env.get("HOME") or cwd)])
    looks: dict[str, Callable[[], object]] = {
        "host": lambda: read_host().name,
        "schedulers": lambda: _schedulers(env, ask),
        "environment": lambda: python_environment.environment_of(
            python_environment.find_python(env)
        ),
        "gpus": lambda: read_gpus(env),
        "torch_trouble": lambda: _torch_trouble(env),
        "limits": read_limits,
        "memory": _memory,
        "reach": _reach,
        "quotas": lambda: _quotas(disks, env, ask),
        "store": lambda: _store(cwd, env),
        "interpreter": lambda: read_disk("python", sys.prefix),
        "clock_skew": lambda: _skew(_shared(disks)),
    }
    results = in_time(list(looks.values()), patience=2 * PATIENCE)
    found = dict(zip(looks, results, strict=True))
    known = {name: value for name, value in found.items() if value is not None}
    return msgspec.structs.replace(
        Facts(disks=_distinct(disks), gpus=GpuFacts(trouble=f"the GPU driver {_HUNG}")),
        job_id=_job_id(env),
        python=sys.executable,
        conda_prefix=env.get("CONDA_PREFIX") or None,
        virtual_env=env.get("VIRTUAL_ENV") or None,
        clock_disk=_shared(disks),
        **known,
    )


def read_gpus(env: Mapping[str, str]) -> GpuFacts:
    """Read the GPUs of this machine and the version of their driver."""
    if not gpu_may_be_present(env):
        return GpuFacts(absence="no NVIDIA driver here, or no GPU is allocated to you")
    try:
        probe = open_probe(env)
    except NoGpuError as error:
        return GpuFacts(absence=str(error))
    except GpuError as error:
        return GpuFacts(trouble=str(error), driver=kernel_module_version())
    names = tuple(device.name for device in probe.devices())
    version, cuda = read_driver_version()
    absence = probe.absence
    probe.close()
    return GpuFacts(names=names, driver=version, cuda=cuda, absence=absence)


def _torch_trouble(env: Mapping[str, str]) -> str | None:
    """Return why torch cannot use the GPU here, by a process that imports it.

    The same program ends a job on a GPU that torch was not built for.
    """
    python = python_environment.find_python(env)
    build = python_environment.environment_of(python).torch
    if python is None or build is None or not gpu_may_be_present(env):
        return None
    if not (build.cuda or build.hip):
        return None
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
    return last.removeprefix("weigh: ") if last.startswith("weigh: ") else None


def _folders(cwd: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the directories whose disks matter, each with its role."""
    folders = [("home", env.get("HOME", "")), ("folder", cwd)]
    scratch = find_scratch(env)
    if scratch is not None:
        user = env.get("USER", "")
        path = env[scratch[1:]] if scratch.startswith("$") else scratch
        folders.append(("scratch", path.replace("$USER", user)))
    folders.append(("temporary", env.get("TMPDIR") or tempfile.gettempdir()))
    return [(role, path) for role, path in folders if path]


def _disks(roles: Sequence[tuple[str, str]]) -> list[Disk]:
    def look(role: str, path: str) -> Callable[[], Disk]:
        return lambda: read_disk(role, path)

    found = in_time([look(*one) for one in roles], patience=PATIENCE)
    return [
        disk or Disk(role=role, path=path, trouble=_HUNG)
        for disk, (role, path) in zip(found, roles, strict=True)
    ]


def _distinct(disks: Sequence[Disk]) -> tuple[Disk, ...]:
    """Keep one of several folders on one file system: the first."""
    kept: dict[object, Disk] = {}
    for disk in disks:
        key = (disk.mount, disk.kind, disk.size) if disk.mount else disk.path
        kept.setdefault(key, disk)
    return tuple(kept.values())


def _schedulers(env: Mapping[str, str], ask: Ask) -> tuple[SchedulerFacts, ...]:
    path = env.get("PATH", "").split(os.pathsep)
    found = []
    for kind in KINDS.values():
        here = tuple(one for one in kind.commands if _is_command(one, path))
        if kind.submits not in here:
            continue
        reply = ask(kind.probe, env=env, patience=PATIENCE)
        found.append(
            SchedulerFacts(
                name=kind.title,
                found=here,
                missing=tuple(one for one in kind.commands if one not in here),
                trouble=None if reply.is_answer else reply.complaint(),
            )
        )
    return tuple(found)


def _is_command(name: str, path: Sequence[str]) -> bool:
    return any(os.access(os.path.join(one, name), os.X_OK) for one in path if one)


def _job_id(env: Mapping[str, str]) -> str | None:
    job = job_from_environment(env)
    return None if job is None else job.id


def _memory() -> Memory | None:
    gauge = MemoryGauge()
    room = gauge.tightest(0)
    if room is None:
        return None
    whole = read_host().memory
    return Memory(room.used, room.limit, whole is not None and room.limit < whole)


def _reach() -> Reach:
    own = read_cgroup()
    return Reach(
        perf_event=_has_perf(),
        cgroup_peak=own.peak is not None,
        oom_kills=own.oom_kills is not None,
        shared_pages=is_own_proc()
        and _can_read("/proc/self/maps", "/proc/self/pagemap"),
        high_water=ProcMemory().reset(),
        storage=read_reaped_io() is not None,
        processes=is_own_proc(),
    )


def _has_perf() -> bool:
    if not hasattr(os, "uname"):
        return False
    from weigh.probe.perf import open_cpu_clock  # noqa: PLC0415 - not on Windows

    clock = open_cpu_clock(os.getpid())
    if clock is None:
        return False
    clock.close()
    return True


def _can_read(*paths: str) -> bool:
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as file:
                file.read(8)
        except OSError:
            return False
    return True


def _quotas(
    disks: Sequence[Disk], env: Mapping[str, str], ask: Ask
) -> tuple[Quota, ...]:
    """Read the quotas; quota(1) exits with 1 if one is exceeded."""
    path = env.get("PATH", "").split(os.pathsep)
    found: list[Quota] = []
    if _is_command("quota", path):
        found += parse_quota(ask(("quota", "-w"), env=env, patience=PATIENCE).stdout)
    if _is_command("lfs", path):
        mounts = {disk.mount for disk in disks if disk.kind == "lustre" and disk.mount}
        for mount in sorted(mounts):
            argv = ("lfs", "quota", "-u", str(os.getuid()), mount)
            found += parse_quota(ask(argv, env=env, patience=PATIENCE).stdout)
    return tuple(found)


def _store(cwd: str, env: Mapping[str, str]) -> Disk:
    folder = locate(cwd, env)
    disk = read_disk("records", folder)
    if disk.trouble is None and os.path.isdir(folder):
        trouble = _write_trouble(folder)
        return msgspec.structs.replace(disk, trouble=trouble, writable=trouble is None)
    return disk


def _write_trouble(folder: str) -> str | None:
    """Write a file and remove it: permissions alone do not suffice on network disks."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file:
            file.write(b"weigh doctor\n")
            file.flush()
    except OSError as error:
        return error.strerror or "not writable"
    return None


def _shared(disks: Sequence[Disk]) -> str | None:
    """Return the first directory on a shared disk."""
    return next((d.path for d in disks if d.is_shared and d.writable), None)


def _skew(folder: str | None) -> Seconds | None:
    """Compare a new file's time, which its server sets, with the clock here.

    Positive: the server is ahead. Within the time that it took, there is none.
    """
    if folder is None:
        return None
    before = time.time()
    try:
        with tempfile.NamedTemporaryFile(prefix=".weigh-clock-", dir=folder) as file:
            file.write(b"\n")
            file.flush()
            changed = os.stat(file.name).st_mtime
    except OSError:
        return None
    after = time.time()
    return min(0.0, changed - before) + max(0.0, changed - after)
