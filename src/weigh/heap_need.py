"""What a Java program needs: its live heap, not the heap that it was allowed to fill.

Without ``-Xmx`` a heap may grow to a quarter of the machine, or of the control group,
and collections are rare until it has. The same program in a job of the size measured
gets a quarter of that, and may collect all the time or run out. So memory and ``-Xmx``
are advised together. Half more than the old generation held after its last collection
was enough in each measured program, with three collectors.
"""

import math
from collections.abc import Iterator

import msgspec

from weigh.model.record import Jvm, Usage
from weigh.units import MIB, Bytes, format_size

CRAWLS = 2 / 3  # of the time in collections; well set programs: a quarter to a half
_OVER_LIVE = 1.5
_LEAST_HEAP: Bytes = 32 * MIB
_OUTSIDE: Bytes = 35 * MIB  # code, compiled code, stacks, what a collector notes
_CARDS = 0.03  # of the heap, for the collector's own tables
_ELASTIC = "elastic"


class HeapNeed(msgspec.Struct, frozen=True):
    """The memory that a Java program needs with the heap option ``knob``, in bytes.

    ``virtual`` is the address space that it reserves then, if known.
    """

    memory: Bytes
    knob: str
    virtual: Bytes | None
    notes: tuple[str, ...]
    kind: str = _ELASTIC


def heap_need(usage: Usage) -> HeapNeed | None:
    """Return what a run with a heap of no set size needs; None for other runs."""
    jvm, peak = usage.jvm, usage.peak_memory
    if jvm is None or jvm.flags or peak is None:
        return None
    largest = usage.max_process_memory or peak.value
    if has_crawled(jvm):
        heap = 2 * jvm.heap_limit
    elif jvm.live is None:  # nothing was collected, so all it made may be live
        heap = min(largest, jvm.heap_limit)
    else:
        heap = min(round(_OVER_LIVE * jvm.live), jvm.heap_limit)
    heap = max(_LEAST_HEAP, math.ceil(heap / MIB) * MIB)
    others = max(0, peak.value - largest)
    memory = round(heap * (1 + _CARDS)) + (jvm.metaspace or 0) + _OUTSIDE + others
    virtual = usage.virtual_memory
    if virtual is not None:
        virtual = max(virtual - jvm.heap_limit, 0) + heap
    knob = f"-Xmx{heap // MIB}m"
    return HeapNeed(memory, knob, virtual, tuple(_notes(usage, knob)))


def has_crawled(jvm: Jvm) -> bool:
    """Return whether collections took most of the time: the heap was too small."""
    return jvm.paused is not None and jvm.paused > CRAWLS


def _notes(usage: Usage, knob: str) -> Iterator[str]:
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
