"""Say which machine this is, and what of it this process may use."""

import os

from weigh.model import Host
from weigh.units import Bytes


def read_host(proc: str = "/proc", etc: str = "/etc") -> Host:
    """Read the machine's name, kernel, identity, usable CPUs and memory."""
    uname = os.uname()
    return Host(
        name=uname.nodename,
        system=uname.sysname,
        kernel=uname.release,
        machine_id=_first_line(f"{etc}/machine-id"),
        boot_id=_first_line(f"{proc}/sys/kernel/random/boot_id"),
        cpus=_usable_cpus(),
        memory=_total_memory(_first_line(f"{proc}/meminfo")),
    )


def _usable_cpus() -> int | None:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _total_memory(meminfo: str | None) -> Bytes | None:
    """Read ``MemTotal:  16384 kB``, meminfo's first line."""
    words = (meminfo or "").split()
    if words[:1] != ["MemTotal:"] or words[2:] != ["kB"] or not words[1].isdecimal():
        return None
    return int(words[1]) * 1024


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None
