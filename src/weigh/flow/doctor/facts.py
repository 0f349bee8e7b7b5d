"""Find out what ``weigh doctor`` judges: look by look in threads, none waited for."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from weigh.dialect import gridengine, slurm
from weigh.errors import GpuError, NoGpuError
from weigh.flow.site.ask import Ask, in_time
from weigh.flow.site.site_file import find_scratch
from weigh.model.doctor import (
    Cards,
    Disk,
    Facts,
    Memory,
    Quota,
    Reach,
    SchedulerFacts,
)
from weigh.probe import python_environment
from weigh.probe.cgroup import read_cgroup
from weigh.probe.driver import a_card_may_be_here, kernel_module_version
from weigh.probe.filesystem import read_disk
from weigh.probe.host import read_host
from weigh.probe.own_memory import ProcMemory
from weigh.probe.proc import is_own_proc
from weigh.probe.process_limits import read_limits
from weigh.probe.quota import parse_quota
from weigh.probe.storage import read_reaped_io
from weigh.runner.room import MemoryGauge
from weigh.store.location import locate
from weigh.units import Seconds

PATIENCE = 10.0
_HUNG = f"has not answered for {PATIENCE:g} s"
# name, the commands that weigh and its users need, a question that is cheap
_SCHEDULERS = (
    (
        "Slurm",
        ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun", "sacct"),
        ("sinfo", "-h", "-o", "%R"),
    ),
    (
        "Grid Engine",
        ("qsub", "qstat", "qdel", "qconf", "qhost", "qacct"),
        ("qconf", "-sql"),
    ),
)


def gather(cwd: str, env: Mapping[str, str], ask: Ask) -> Facts:
    """Look at everything; what hangs is told as a trouble or left out."""
    (roles,) = in_time([lambda: _folders(cwd, env)], patience=PATIENCE)
    disks = _disks(roles or [("home", env.get("HOME") or cwd)])
    looks: dict[str, Callable[[], object]] = {
        "host": lambda: read_host().name,
        "schedulers": lambda: _schedulers(env, ask),
        "environment": lambda: python_environment.environment_of(
            python_environment.find_python(env)
        ),
        "cards": lambda: read_cards(env),
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
        Facts(disks=_distinct(disks), cards=Cards(trouble=f"the GPU driver {_HUNG}")),
        job_id=_job_id(env),
        python=sys.executable,
        conda_prefix=env.get("CONDA_PREFIX") or None,
        virtual_env=env.get("VIRTUAL_ENV") or None,
        clock_disk=_shared(disks),
        **known,
    )


def read_cards(env: Mapping[str, str]) -> Cards:
    """Ask the driver which cards are here, and how old it is."""
    if not a_card_may_be_here(env):
        return Cards(absence="no NVIDIA driver here, or no GPU of it is yours")
    from weigh.probe.driver_version import read_driver_version  # noqa: PLC0415
    from weigh.probe.nvml import NvmlProbe  # noqa: PLC0415 - only where a card may be

    try:
        probe = NvmlProbe(env)
    except NoGpuError as error:
        return Cards(absence=str(error))
    except GpuError as error:
        return Cards(trouble=str(error), driver=kernel_module_version())
    names = tuple(device.name for device in probe.devices())
    version, cuda = read_driver_version()
    absence = probe.absence
    probe.close()
    return Cards(names=names, driver=version, cuda=cuda, absence=absence)


def _folders(cwd: str, env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Name the folders whose disks matter, and what each is to the user."""
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
    for name, commands, question in _SCHEDULERS:
        here = tuple(one for one in commands if _is_command(one, path))
        if commands[0] not in here:
            continue
        reply = ask(question, env=env, patience=PATIENCE)
        found.append(
            SchedulerFacts(
                name=name,
                found=here,
                missing=tuple(one for one in commands if one not in here),
                trouble=None if reply.is_answer else reply.complaint(),
            )
        )
    return tuple(found)


def _is_command(name: str, path: Sequence[str]) -> bool:
    return any(os.access(os.path.join(one, name), os.X_OK) for one in path if one)


def _job_id(env: Mapping[str, str]) -> str | None:
    job = slurm.job_from_environment(env) or gridengine.job_from_environment(env)
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
        and _can_read("/proc/self/smaps_rollup", "/proc/self/pagemap"),
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
    """Ask for quotas; a quota that is exceeded makes quota(1) end with 1."""
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
    """Write a file and remove it: permissions alone do not tell on network disks."""
    try:
        with tempfile.NamedTemporaryFile(prefix=".doctor-", dir=folder) as file:
            file.write(b"weigh doctor\n")
            file.flush()
    except OSError as error:
        return error.strerror or "not writable"
    return None


def _shared(disks: Sequence[Disk]) -> str | None:
    """Give the first folder on a shared disk."""
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
