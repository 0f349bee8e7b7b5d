"""What a run needs where its use shows something else.

CPUs: where threads waited for one, the run wanted more than it got. Knobs: runs with
different limits of memory in the program (``-Xmx``, ``GOMEMLIMIT``) are different
programs as far as memory goes, so what is learnt from some does not hold for others.

Java: its live heap counts, not the heap that it was allowed to fill.
Without ``-Xmx`` a heap may grow to a quarter of the machine, or of the control group,
and collections are rare until it has. The same program in a job of the size measured
gets a quarter of that, and may collect all the time or run out. So memory and ``-Xmx``
are advised together. Half more than the old generation held after its last collection
was enough in each measured program, with three collectors.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from weigh.model.record import CpuWait, JvmHeap, Record, Usage
from weigh.units import (
    GIB,
    KIB,
    MIB,
    Bytes,
    Seconds,
    count_with_noun,
    format_duration,
    format_size,
)

Cause = Literal["others", "own", "limit", "unknown"]

_CPU_TOLERANCE = 0.1  # a reader of the command's output, or the odd helper thread
_WORTH_SHARE = 0.1  # of the CPU time
_WORTH_TIME: Seconds = 0.3  # seconds; a shorter wait changes no request
_OTHERS = 0.1  # CPUs; less is weigh itself, and the noise of /proc/stat
_FULL = 0.85  # of the CPUs
_BOUND = 0.9  # of a CPU wanted: there is little else that the run waits for
_NOT_ITS_OWN = ("others", "limit")  # causes that go away with CPUs of the job's own


def has_waited(usage: Usage) -> bool:
    """Return whether a run waited for CPUs for a time that matters."""
    wait = usage.cpu_wait
    if wait is None:
        return False
    return wait.time > max(_WORTH_TIME, _WORTH_SHARE * (usage.cpu_time or 0.0))


def cause_of_cpu_wait(cpu_wait: CpuWait) -> Cause:
    """Return why threads waited: a CPU limit, other programs, or each other."""
    # the kernel's throttling explains most of the wait
    if (cpu_wait.throttled or 0.0) > cpu_wait.time / 2:
        return "limit"
    if (cpu_wait.others or 0.0) >= _OTHERS:
        return "others"
    # nobody else ran: its own threads took turns
    if cpu_wait.cpus is not None and cpu_wait.threads > cpu_wait.cpus:
        return "own"
    return "unknown"


def cpus_for(usage: Usage) -> int:
    """Return the CPUs to request after a run, at least 1.

    What it used, or, where others or a limit kept it waiting, what it wanted.
    """
    used = cpus_to_request(usage.cpus_used)
    wait = usage.cpu_wait
    if (
        wait is None
        or not has_waited(usage)
        or cause_of_cpu_wait(wait) not in _NOT_ITS_OWN
    ):
        return used
    # a thread is on one CPU at a time
    most = max(wait.threads, 1)
    if usage.jvm is not None and wait.cpus is not None:
        most = min(most, wait.cpus)  # Java starts as many threads as it sees CPUs
    return max(used, min(cpus_to_request(wait.wanted), most))


def cpus_to_request(cpus_used: float | None) -> int:
    """Return the whole CPUs for a mean number that was busy."""
    return 1 if cpus_used is None else max(1, math.ceil(cpus_used - _CPU_TOLERANCE))


def wait_words(usage: Usage) -> str:
    """Describe what a run waited for; empty if it did not wait, or that is unknown."""
    wait = usage.cpu_wait
    if wait is None or not has_waited(usage):
        return ""
    waited = f"waited {format_duration(wait.time)} for a CPU"
    if cause_of_cpu_wait(wait) == "limit":
        return f"{waited}: a control group limits its CPU time"
    if cause_of_cpu_wait(wait) == "others":
        return f"{waited}: {_others_words(usage, wait)}"
    if cause_of_cpu_wait(wait) == "own":
        return (
            f"{waited}: up to {wait.threads} threads on "
            f"{count_with_noun(wait.cpus or 1, 'CPU')}"
        )
    return f"{waited}, although others used none: do its threads share one CPU?"


def _others_words(usage: Usage, cpu_wait: CpuWait) -> str:
    others, cpus = cpu_wait.others or 0.0, cpu_wait.cpus or 1
    used = f"others used {others:.1f} of {count_with_noun(cpus, 'CPU')}"
    if others + (usage.cpus_used or 0.0) >= _FULL * cpus:
        used = f"all CPUs were busy ({used})"
    if cpu_wait.threads > cpus and cpu_wait.wanted > cpus + _OTHERS:
        used += f", and it could use {cpu_wait.wanted:.1f}"
    return used


def need_notes(usage: Usage) -> Iterator[str]:
    """Yield what more CPUs would change, in words."""
    wait = usage.cpu_wait
    if wait is None or not has_waited(usage):
        return
    cause = cause_of_cpu_wait(wait)
    if cause in _NOT_ITS_OWN:
        count = cpus_for(usage)
        if count == cpus_to_request(usage.cpus_used) and wait.wanted < _BOUND:
            return  # it sleeps or waits for storage: another CPU changes neither line
        # what its threads can use at times is more than these
        time = max(wait.alone, (usage.cpu_time or 0.0) / count)
        alone, wall = format_duration(time), format_duration(usage.wall_time)
        yield (
            f"on {count_with_noun(count, 'CPU')} of its own it would take {alone} "
            f"instead of {wall} (it could use {wait.wanted:.2f})"
        )
    elif cause == "own" and wait.cpus is not None:
        yield (
            f"it has {wait.threads} threads for {count_with_noun(wait.cpus, 'CPU')}: "
            "set their number, or request more CPUs"
        )


CRAWLS = 2 / 3  # of the time in collections; well set programs: a quarter to a half
_OVER_LIVE = 1.5  # times what was alive after the last collection: see the module
_LEAST_HEAP: Bytes = 32 * MIB  # what a run did not reach may need more than it did
_OUTSIDE: Bytes = 35 * MIB  # code, compiled code, stacks, what a collector notes
_FULL_HEAP = 0.9  # alive of its limit
_CARDS = 0.03  # of the heap, for the collector's own tables


class HeapNeed(msgspec.Struct, frozen=True):
    """The memory that a Java program needs with the heap option ``knob``, in bytes.

    ``virtual`` is the address space that it reserves then, if known.
    """

    memory: Bytes
    knob: str
    virtual: Bytes | None
    notes: tuple[str, ...]


def heap_need(usage: Usage) -> HeapNeed | None:
    """Return what a run with a heap of no set size needs; None for other runs."""
    jvm, peak = usage.jvm, usage.peak_memory
    if jvm is None or jvm.flags or peak is None:
        return None
    # the largest process is taken to be the Java machine
    largest = usage.max_process_memory or peak.value
    if has_crawled(jvm):
        # how much was missing is unknown, so double it, as after a kill
        heap = 2 * jvm.heap_limit
    elif jvm.live is None:  # nothing was collected, so all it made may be live
        heap = min(largest, jvm.heap_limit)
    else:
        heap = min(round(_OVER_LIVE * jvm.live), jvm.heap_limit)
    # whole MiB, because -Xmx gets them
    heap = max(_LEAST_HEAP, math.ceil(heap / MIB) * MIB)
    # what the job's other processes held at the peak
    others = max(0, peak.value - largest)
    memory = round(heap * (1 + _CARDS)) + (jvm.metaspace or 0) + _OUTSIDE + others
    virtual = usage.virtual_memory
    if virtual is not None:
        # Java reserves the address space of its heap limit at once: exchange the two
        virtual = max(virtual - jvm.heap_limit, 0) + heap
    knob = f"-Xmx{heap // MIB}m"
    return HeapNeed(memory, knob, virtual, tuple(_java_request_notes(usage, knob)))


def has_crawled(jvm_heap: JvmHeap) -> bool:
    """Return whether collections took most of the time: the heap was too small."""
    return jvm_heap.paused is not None and jvm_heap.paused > CRAWLS


def _java_request_notes(usage: Usage, knob: str) -> Iterator[str]:
    yield f"with java {knob} (or JAVA_TOOL_OPTIONS={knob}): set both or neither"
    if usage.virtual_memory is not None:
        yield (
            f"address space is what Java reserves, {format_size(usage.virtual_memory)} "
            "here, not what it uses"
        )


def heap_words(usage: Usage) -> Iterator[str]:
    """Yield what a run's Java heap was: its limit, and what was alive in it."""
    jvm = usage.jvm
    if jvm is None:
        return
    limit = format_size(jvm.heap_limit)
    if jvm.flags:
        yield f"java {' '.join(jvm.flags)}: its heap is at most {limit}"
    else:
        yield (
            f"java without -Xmx: its heap may grow to {limit}, a share of the machine "
            "or job"
        )
    if jvm.live is not None:
        yield f"{format_size(jvm.live)} at most were alive after its last collection"
        if jvm.live > _FULL_HEAP * jvm.heap_limit:
            limit = jvm.flags[-1] if jvm.flags else "the memory, or set -Xmx"
            yield f"its heap was full: after an OutOfMemoryError raise {limit}"
    if has_crawled(jvm):
        share = f"{100 * (jvm.paused or 0.0):.0f} %"
        yield f"{share} of its time went into collections: its heap is too small"


def crawl_note(usage: Usage) -> Iterator[str]:
    """Yield what to raise, if a fixed heap is too small."""
    jvm = usage.jvm
    if jvm is not None and jvm.flags and has_crawled(jvm):
        share = f"{100 * (jvm.paused or 0.0):.0f} %"
        yield (
            f"{share} of its time went into collections: raise {jvm.flags[-1]}, and "
            "memory with it"
        )


_IN_COMMAND = re.compile(
    r"(?:^|[\s'\"=])(-Xmx|-XX:MaxRAMPercentage=|-XX:MaxHeapSize="
    r"|--max-old-space-size[= ]"
    r"|--heap-size-hint[= ]|--buffer-size=|GOMEMLIMIT=|MALLOC_ARENA_MAX="
    r"|XLA_PYTHON_CLIENT_MEM_FRACTION=|XLA_PYTHON_CLIENT_PREALLOCATE="
    r"|TF_FORCE_GPU_ALLOW_GROWTH=|--gpu-memory-utilization[= ])([^\s'\";|&]+)"
)

_OF_JAVA = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")  # its flags count


def knobs_of(record: Record) -> tuple[str, ...]:
    """Return the knobs that were set, in order: ``-Xmx=64m``, ``GOMEMLIMIT=1GiB``.

    Those whose value is a parameter's are left out: the parameter separates them.
    """
    found = {} if record.usage is None else dict(_knobs_of_usage(record.usage))
    return _knobs_not_in_parameters(record.command, record.parameters, found)


def knobs_in(
    command: Sequence[str], parameters: Mapping[str, int | float | str]
) -> tuple[str, ...]:
    """Return the knobs that a command sets, as :func:`knobs_of` does."""
    return _knobs_not_in_parameters(command, parameters, {})


def _knobs_not_in_parameters(
    command: Sequence[str],
    parameters: Mapping[str, int | float | str],
    of_usage: Mapping[str, str],
) -> tuple[str, ...]:
    # what the run showed comes last: it was in force, whatever the command has
    found = {**dict(_IN_COMMAND.findall(" ".join(command))), **of_usage}
    values = {str(value) for value in parameters.values()}
    return tuple(
        sorted(
            f"{name.rstrip('= ')}={value}"
            for name, value in found.items()
            # a parameter of 64 may stand as 64m in the command
            if value not in values and value.rstrip("kKmMgGtTiB") not in values
        )
    )


def _knobs_of_usage(usage: Usage) -> Iterator[tuple[str, str]]:
    for flag in usage.jvm.flags if usage.jvm is not None else ():
        for match in _IN_COMMAND.finditer(flag):
            yield match[1], match[2]
    sign = usage.sign
    # options are words of the command; a variable is seen in longer runs only
    if sign is None or sign.knob is None or sign.value is None:
        return
    # an upper-case name is a variable; options were found in the command
    if sign.knob.isupper() and sign.knob not in _OF_JAVA:
        yield sign.knob, sign.value


def sign_words(usage: Usage) -> Iterator[str]:
    """Yield what a run's largest program is known to do with memory."""
    sign = usage.sign
    if sign is not None and sign.knob in _GPU_SETTINGS:
        held = [gpu for gpu in usage.gpus if gpu.may_be_needed]
        # what was taken at once has words of its own
        if not held or any(gpu.preallocated for gpu in held):
            return
    if sign is not None and usage.jvm is None:  # Java's heap has words of its own
        knob = ""
        if sign.knob is not None:
            knob = f" ({sign.knob}={sign.value})" if sign.value else f" ({sign.knob})"
        yield f"{sign.name}: {sign.advice}{knob}"


# of programs that take a GPU's memory whatever they need: what shows the need
_GPU_SETTINGS = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "XLA_PYTHON_CLIENT_PREALLOCATE=false",
    "TF_FORCE_GPU_ALLOW_GROWTH": "TF_FORCE_GPU_ALLOW_GROWTH=true",
    "--gpu-memory-utilization": "a lower --gpu-memory-utilization",
}
_FULL_GPU = 0.9  # of the memory that the driver leaves to programs
_RUNS_OUT = frozenset(("FAILED", "OUT_OF_MEMORY"))


def preallocation_words(usage: Usage, state: str) -> Iterator[str]:
    """Yield that a run took most of a GPU at once, which shows nothing of its need.

    One that failed may have filled the GPU in steps, between two looks.
    """
    taken = max((gpu.preallocated or 0 for gpu in usage.gpus), default=0)
    if taken and state not in _RUNS_OUT:
        setting = _GPU_SETTINGS.get((usage.sign and usage.sign.knob) or "")
        why = f"measure the need with {setting}" if setting else "it may need less"
        yield f"{format_size(taken)} of a GPU taken at once: {why}"


def full_gpu_words(usage: Usage, *, ran_out: bool) -> str | None:
    """Return that a failed run filled a GPU; None if it did not.

    What takes a GPU whatever it needs shows no lack of memory, unless it *ran_out*.
    """
    way_out = "a smaller batch, or a larger GPU"
    is_filler = usage.sign is not None and usage.sign.knob in _GPU_SETTINGS
    for gpu in usage.gpus if ran_out or not is_filler else ():
        usable = (gpu.memory_total or 0) - (gpu.memory_reserved or 0)
        held = max(gpu.peak_memory or 0, gpu.device_peak_memory or 0)
        if gpu.may_be_needed and held >= _FULL_GPU * usable > 0:
            words = f"{held / GIB:.1f} of {usable / GIB:.1f} GiB"
            return f"GPU memory was full ({words}): {way_out}"
    return f"the run ran out of GPU memory: {way_out}" if ran_out else None


_SMALL_READ = 4 * KIB  # bytes, on average; Python's buffer is twice that
_SMALL_FILE = 64 * KIB  # bytes of a read, where files follow each other
_SEVERAL_FILES = 3  # one or two may be read in a loop that needs no other advice
_MANY_READS, _MANY_A_MINUTE = 10_000, 3000


def small_read_words(usage: Usage) -> Iterator[str]:
    """Yield what a run does to a shared file system, where many reads are small."""
    calls = usage.file_calls
    if calls is None or calls.folder is None or not calls.is_shared:
        return
    rate = 60 * calls.reads / max(usage.wall_time, 1.0)
    is_several = (calls.files or 0) >= _SEVERAL_FILES
    small = _SMALL_FILE if is_several else _SMALL_READ
    is_many = calls.reads >= _MANY_READS and rate >= _MANY_A_MINUTE
    if is_many and calls.read < small * calls.reads:
        yield (
            f"{round(rate, -2):,.0f} small reads a minute on {calls.mount} "
            f"({calls.file_system}): use --stage-in {shlex.quote(calls.folder)}"
        )


def cache_words(usage: Usage) -> Iterator[str]:
    """Yield that a run needs page cache, if it read its files again and again."""
    cache = usage.cache
    if cache is not None:
        yield (
            f"read {format_size(cache.read)} of files of {format_size(cache.files)}: "
            "it rereads them from the page cache, which the job's memory holds too"
        )
