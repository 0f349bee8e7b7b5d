"""The checks of what is left here: disks, quotas, ulimit, memory; and weigh's reach."""

from collections.abc import Iterator

from weigh.model.doctor import Check, Disk, Facts, Limits, Quota
from weigh.probe.filesystem import is_in_memory
from weigh.units import GIB, KIB, MIB, format_duration, format_size

_NEARLY = 0.90  # of a quota
_FULL_DISK = 0.98
_LEAST = 200 * MIB
_LEAST_FILES = 1000
_FEW_FILES, _FEW_PROCESSES, _LITTLE_LOCKED = 1024, 512, 64 * KIB
_LARGE_CORE = 100 * MIB
_LITTLE_MEMORY = 0.05


def disks(facts: Facts) -> Iterator[Check]:
    """Say where a disk is full, in bytes or in files."""
    for disk in facts.disks:
        yield _disk(disk)


def _disk(disk: Disk) -> Check:
    if disk.trouble is not None or disk.free is None or not disk.size:
        text = f"{disk.path}: {disk.trouble or 'its size is not told'}"
        cure = (
            "is its file server up? tell the site's support" if disk.trouble else None
        )
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
    """Say how much of each quota is used, in bytes and in files."""
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
    """Say where ulimit is too tight for a training job, or too generous with cores."""
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
    """Say what memory there is before somebody is killed."""
    room = facts.memory
    if room is None:
        return
    whose = "this control group" if room.is_grouped else "this machine"
    left = max(0, room.limit - room.used)
    text = f"{format_size(left)} of {format_size(room.limit)} left in {whose}"
    if left < _LITTLE_MEMORY * room.limit:
        cure = "end what is not needed (weigh top), or run it as a job"
        yield Check("memory", "warning", text, cure)
    else:
        yield Check("memory", "ok", text)


def reach(facts: Facts) -> Iterator[Check]:
    """Say which of weigh's readings cannot be taken here, and what stands in."""
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
        yield Check("reach", "ok", f"all {len(lacks)} of weigh's readings can be taken")
        return
    text = f"not to be had here: {'; '.join(missing)}"
    cure = "records leave these out, or bound them; nodes may differ from here"
    yield Check("reach", "warning", text, cure)


def store(facts: Facts) -> Iterator[Check]:
    """Say where records go, whether they can, and whether they will stay."""
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
        yield Check("records", "warning", text, cure)
    else:
        yield Check("records", "ok", where)


LIMIT_CHECKS = (disks, quotas, process_limits, memory, reach, store)
