"""What of this machine is ours: CPUs and GPUs of the allocation, never the node's."""

import os
from collections.abc import Mapping

import msgspec

from weigh.model.record import Allocation

_ROOT = "/sys/fs/cgroup"
_HIDDEN = ("", "-1", "NoDevFiles")
_GPU_LISTS = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL")
_GRID_ENGINE = "SGE_HGR_gpu"
CUDA = "CUDA_VISIBLE_DEVICES"


class Resources(msgspec.Struct, frozen=True):
    """``cpus`` to share out. ``cores`` by number, where they are surely ours alone.

    ``gpus`` are names for CUDA_VISIBLE_DEVICES, None where the environment does not
    say; ``said`` is what the count of CPUs is from.
    """

    cpus: int
    cores: tuple[int, ...]
    gpus: tuple[str, ...] | None
    said: str


def read_resources(
    env: Mapping[str, str],
    allocation: Allocation | None,
    *,
    affinity: frozenset[int],
    quota: float | None,
) -> Resources:
    """Take the least that affinity, the control group and the scheduler leave.

    Cores are ours to pin to only where nothing but the affinity bounds the CPUs: a
    share of a larger set is a share of nobody's cores in particular.
    """
    cpus, said = len(affinity), "CPUs this process may run on"
    if quota is not None and quota < cpus:
        cpus, said = max(1, int(quota)), "CPUs by the control group's quota"
    granted = None if allocation is None else allocation.cpus
    if allocation is not None and granted is not None and granted < cpus:
        cpus, said = granted, f"CPUs granted by {allocation.scheduler}"
    is_ours = cpus == len(affinity)
    return Resources(
        cpus, tuple(sorted(affinity)) if is_ours else (), gpus_named(env), said
    )


def gpus_named(env: Mapping[str, str]) -> tuple[str, ...] | None:
    """Read the GPUs that the environment gives us; None where it does not say."""
    if CUDA in env:
        return _listed(env[CUDA])
    for name in _GPU_LISTS:
        if env.get(name):
            return _listed(env[name])
    if env.get(_GRID_ENGINE):
        return tuple(_number(word) for word in env[_GRID_ENGINE].split())
    return None


def _listed(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in text.split(","))
    return tuple(name for name in names if name not in _HIDDEN)


def _number(word: str) -> str:
    """Read ``gpu0``, ``cuda1`` or ``2`` as the number in it."""
    digits = word.lstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:-/")
    return digits or word


def read_cpu_quota(proc: str = "/proc", root: str = _ROOT) -> float | None:
    """Read the CPUs that the control group and those above it allow; None for any."""
    quotas = []
    for path in _cpu_folders(_read(f"{proc}/self/cgroup"), root):
        quota = _quota(path)
        if quota is not None:
            quotas.append(quota)
    return min(quotas, default=None)


def _cpu_folders(text: str, root: str) -> list[str]:
    """Give the group's folders of the CPU controller, the lowest first."""
    path, top = None, root
    for line in text.splitlines():
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if "cpu" in controllers.split(","):
            path, top = place, f"{root}/cpu"
            break
        if not controllers:
            path = place
    if path is None:
        return []
    folders = [top + path.rstrip("/")]
    while len(folders[-1]) > len(top):
        folders.append(folders[-1].rpartition("/")[0])
    return folders


def _quota(folder: str) -> float | None:
    words = _read(f"{folder}/cpu.max").split()
    if not words:
        words = [
            _read(f"{folder}/cpu.cfs_quota_us").strip(),
            _read(f"{folder}/cpu.cfs_period_us").strip(),
        ]
    if len(words) < 2 or not (words[0].isdecimal() and words[1].isdecimal()):  # noqa: PLR2004
        return None  # "max", -1, or not there
    return int(words[0]) / int(words[1]) if int(words[1]) else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def affinity() -> frozenset[int]:
    """Give the CPUs that this process may run on."""
    return frozenset(os.sched_getaffinity(0))
