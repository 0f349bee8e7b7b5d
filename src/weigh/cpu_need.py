"""How many CPUs a run wanted, where it waited for them, and why it did."""

import math
from collections.abc import Iterator
from typing import Literal

from weigh.model.record import CpuWait, Usage
from weigh.units import Seconds, format_duration

Cause = Literal["others", "own", "limit", "unknown"]

CPU_TOLERANCE = 0.1  # a reader of the command's output, or the odd helper thread
_WORTH_SHARE = 0.1  # of the CPU time
_WORTH_TIME: Seconds = 0.3
_OTHERS = 0.1  # CPUs; less is weigh itself, and the noise of /proc/stat
_FULL = 0.85  # of the CPUs
_BOUND = 0.9  # of a CPU wanted: there is little else that the run waits for
_BLOCKED = 0.25  # of the looks
_FEW_CPUS = 0.5
_NOT_ITS_OWN = ("others", "limit")


def has_waited(usage: Usage) -> bool:
    """Return whether a run waited for CPUs for a time that matters."""
    wait = usage.cpu_wait
    if wait is None:
        return False
    return wait.time > max(_WORTH_TIME, _WORTH_SHARE * (usage.cpu_time or 0.0))


def cause_of(wait: CpuWait) -> Cause:
    """Return why threads waited: a CPU limit, other programs, or each other."""
    if (wait.throttled or 0.0) > wait.time / 2:
        return "limit"
    if (wait.others or 0.0) >= _OTHERS:
        return "others"
    if wait.cpus is not None and wait.threads > wait.cpus:
        return "own"
    return "unknown"


def cpus_for(usage: Usage) -> int:
    """Return the CPUs to request after a run, at least 1.

    What it used, or, where others or a limit kept it waiting, what it wanted.
    """
    used = _whole(usage.cpus_used)
    wait = usage.cpu_wait
    if wait is None or not has_waited(usage) or cause_of(wait) not in _NOT_ITS_OWN:
        return used
    # a thread is on one CPU at a time
    most = max(wait.threads, 1)
    if usage.jvm is not None and wait.cpus is not None:
        most = min(most, wait.cpus)  # Java starts as many threads as it sees CPUs
    return max(used, min(_whole(wait.wanted), most))


def _whole(cpus: float | None) -> int:
    return 1 if cpus is None else max(1, math.ceil(cpus - CPU_TOLERANCE))


def wait_words(usage: Usage) -> str:
    """Describe what a run waited for; empty if it did not wait, or that is unknown."""
    wait = usage.cpu_wait
    if wait is None:
        return ""
    if not has_waited(usage):
        return _blocked_words(usage, wait)
    waited = f"waited {format_duration(wait.time)} for a CPU"
    if cause_of(wait) == "limit":
        return f"{waited}: a control group limits its CPU time"
    if cause_of(wait) == "others":
        return f"{waited}: {_others_words(usage, wait)}"
    if cause_of(wait) == "own":
        return f"{waited}: up to {wait.threads} threads on {_cpus(wait.cpus or 1)}"
    return f"{waited}, although others used none: do its threads share one CPU?"


def _others_words(usage: Usage, wait: CpuWait) -> str:
    others, cpus = wait.others or 0.0, wait.cpus or 1
    used = f"others used {others:.1f} of {cpus}"
    if others + (usage.cpus_used or 0.0) >= _FULL * cpus:
        used = f"machine full ({used})"
    if wait.threads > cpus and wait.wanted > cpus + _OTHERS:
        used += f", and it wants {wait.wanted:.1f}"
    return used


def _blocked_words(usage: Usage, wait: CpuWait) -> str:
    is_idle = (usage.cpus_used or 0.0) < _FEW_CPUS
    if is_idle and (wait.blocked or 0.0) >= _BLOCKED:
        share = f"{100 * (wait.blocked or 0.0):.0f} %"
        return f"blocked on storage for {share} of the time: more CPUs do not help"
    return ""


def need_notes(usage: Usage) -> Iterator[str]:
    """Yield what more CPUs would change, in words."""
    wait = usage.cpu_wait
    if wait is None or not has_waited(usage):
        return
    cause = cause_of(wait)
    if cause in _NOT_ITS_OWN:
        count = cpus_for(usage)
        yield (
            f"wants {_cpus(count)} ({wait.wanted:.2f}): if free, {alone_words(usage)}"
        )
    elif cause == "own" and wait.cpus is not None:
        yield (
            f"it has {wait.threads} threads for {_cpus(wait.cpus)}: set their number, "
            "or request more CPUs"
        )


def alone_words(usage: Usage) -> str:
    """Write the wall time that the run would take without the wait."""
    wait, wall = usage.cpu_wait, usage.wall_time
    if wait is None:
        return format_duration(wall)
    alone = format_duration(wait.alone)
    if wait.wanted < _BOUND:  # asleep or blocked at times: that remains
        return f"{alone} to {format_duration(wall)}"
    return f"{alone} instead of {format_duration(wall)}"


def _cpus(count: int) -> str:
    return "1 CPU" if count == 1 else f"{count} CPUs"
