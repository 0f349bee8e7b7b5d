"""What to request for a Java program, whose peak shows what its heap was allowed."""

import pytest

from weigh.model.record import JvmHeap, PeakMemory, Record, Usage
from weigh.request import from_usages
from weigh.units import GIB, MIB
from weigh.usage_needs import heap_need, heap_words
from weigh.why_run_ended import fixed_heap


def usage(jvm: JvmHeap, size: int = 1742 * MIB) -> Usage:
    peak = PeakMemory(size, size, size, None, None, None, "by hand")
    return Usage(
        wall_time=9.0,
        cpu_time=9.0,
        peak_memory=peak,
        max_process_memory=size,
        virtual_memory=9 * GIB,
        jvm=jvm,
    )


def request_of(jvm: JvmHeap, size: int = 1742 * MIB) -> Record:
    return Record(
        id="a",
        command=("java", "Tool"),
        started="2026-01-01T00:00:00Z",
        state="COMPLETED",
        exit_code=0,
        usage=usage(jvm, size),
    )


def test_a_heap_without_a_limit_gets_memory_and_xmx_together() -> None:
    made = from_usages([request_of(JvmHeap(6 * GIB, 99 * MIB, 0.3))])
    assert made.knob == "-Xmx149m"
    assert made.memory == 230 * MIB  # instead of 2.1 GB
    assert made.virtual_memory is not None
    assert made.virtual_memory < 5 * GIB


def test_a_heap_that_was_too_small_never_gets_less() -> None:
    crawled = JvmHeap(126 * MIB, 120 * MIB, 0.94)
    made = from_usages([request_of(crawled, 137 * MIB)])
    assert made.knob == "-Xmx252m"
    assert made.memory is not None
    assert made.memory > 252 * MIB
    assert any("94 %" in words for words in heap_words(usage(crawled)))


def test_a_set_heap_keeps_its_measured_memory() -> None:
    fixed = JvmHeap(64 * MIB, 30 * MIB, 0.3, ("-Xmx64m",))
    assert heap_need(usage(fixed)) is None
    made = from_usages([request_of(fixed, 105 * MIB)])
    assert (made.knob, made.memory) == (None, 130 * MIB)


def test_a_set_heap_that_was_too_small_is_named() -> None:
    fixed = JvmHeap(64 * MIB, 60 * MIB, 0.8, ("-Xmx64m",))
    made = from_usages([request_of(fixed, 105 * MIB)])
    assert any("raise -Xmx64m" in note for note in made.notes)


@pytest.mark.parametrize(
    ("words", "command", "option"),
    [
        ("java.lang.OutOfMemoryError", "java -Xmx100m A", "-Xmx100m"),
        ("java.lang.OutOfMemoryError", "java A", None),
        ("java.lang.OutOfMemoryError", 'java -Xmx"$((W))"m A', None),
        (
            "JavaScript heap out of memory",
            "node --max-old-space-size=90 a.js",
            "--max-old-space-size=90",
        ),
        ("MemoryError", "java -Xmx100m A", None),
    ],
)
def test_the_option_that_limits_a_heap_is_found(
    words: str, command: str, option: str | None
) -> None:
    assert fixed_heap(words, command) == option


@pytest.mark.parametrize(
    ("live", "flags", "raised"),
    [
        (61, ("-Xmx64m",), "raise -Xmx64m"),
        (61, (), "raise the memory, or set -Xmx"),
        (40, ("-Xmx64m",), None),
    ],
)
def test_a_heap_that_was_full_is_what_to_raise(
    live: int, flags: tuple[str, ...], raised: str | None
) -> None:
    jvm = JvmHeap(64 * MIB, live * MIB, 0.1, flags)
    said = " ".join(heap_words(usage(jvm)))
    assert ("its heap was full" in said) == (raised is not None)
    assert raised is None or said.endswith(raised)
