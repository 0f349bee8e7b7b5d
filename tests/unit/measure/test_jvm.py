import os
import pwd
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import reading

from weigh.measure.programs import JvmWatch, jvm_of, parse_perfdata
from weigh.model.record import JvmHeap, PeakMemory, Record, Usage
from weigh.need import heap_need, heap_words
from weigh.outcome import fixed_heap
from weigh.request import from_usages
from weigh.units import GIB, MIB

G1: dict[str, int | str] = {
    "java.rt.vmArgs": "-XX:+UseG1GC",
    "sun.gc.policy.name": "GarbageFirst",
    "sun.gc.generation.0.maxCapacity": 6 * GIB,
    "sun.gc.generation.1.maxCapacity": 6 * GIB,
    "sun.gc.generation.1.space.0.used": 100 * MIB,
    "sun.gc.collector.0.invocations": 3,
    "sun.rt.safepointTime": 30,
    "sun.rt.applicationTime": 70,
    "sun.gc.metaspace.used": 2 * MIB,
}


FOUR_TENTHS = """
class A {
    public static void main(String[] words) throws Exception { Thread.sleep(400); }
}
"""


def perfdata(counters: dict[str, int | str], order: str = "<") -> bytes:
    """Write counters as HotSpot does, each with its value behind its name."""
    entries = b""
    for name, value in counters.items():
        text = name.encode() + b"\0"
        text += bytes(-len(text) % 8 + 4)  # 20 bytes of entry: aligned to 8
        raw = (
            struct.pack(f"{order}q", value)
            if isinstance(value, int)
            else value.encode() + b"\0"
        )
        kind = b"J" if isinstance(value, int) else b"B"
        size = 0 if isinstance(value, int) else len(raw)
        head = struct.pack(
            f"{order}iii", 20 + len(text) + len(raw), 20, size
        ) + struct.pack(f"{order}cbbbi", kind, 0, 1, 1, 20 + len(text))
        entries += head + text + raw
    head = b"\xca\xfe\xc0\xc0" + bytes([order == "<", 2, 0, 1])
    return head + struct.pack(f"{order}iiqii", 0, 0, 0, 32, len(counters)) + entries


@pytest.mark.parametrize("order", "<>")
def test_counters_are_read_in_both_byte_orders(order: str) -> None:
    assert parse_perfdata(perfdata(G1, order)) == G1


@given(st.integers(0, 400), st.binary(max_size=40))
def test_damaged_counters_are_left_out(cut: int, junk: bytes) -> None:
    whole = perfdata(G1)
    damaged = whole[:cut] + junk + whole[cut + len(junk) :]
    assert isinstance(parse_perfdata(damaged), dict)
    jvm_of(parse_perfdata(whole[:cut]))


def test_the_heap_of_g1_counts_once_and_that_of_others_by_generation() -> None:
    g1 = jvm_of(G1)
    assert g1 == JvmHeap(6 * GIB, 100 * MIB, 3, 0.3, (), 2 * MIB)
    serial = jvm_of({**G1, "sun.gc.policy.name": "Copy:MSC"})
    assert serial is not None
    assert serial.heap_limit == 12 * GIB


def test_options_from_the_environment_set_the_heap_too() -> None:
    found = jvm_of(G1, ["-Xmx64m"])
    assert found is not None
    assert found.flags == ("-Xmx64m",)


def test_without_a_collection_nothing_is_known_to_be_alive() -> None:
    found = jvm_of({**G1, "sun.gc.collector.0.invocations": 0})
    assert found is not None
    assert found.live is None


def test_counters_are_still_read_when_the_machine_has_unlinked_them(
    tmp_path: Path,
) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    file = tmp_path / f"hsperfdata_{name}" / str(os.getpid())
    file.parent.mkdir()
    file.write_bytes(perfdata(G1))
    watch = JvmWatch(folder=str(tmp_path))
    watch.look([reading(os.getpid(), MIB)])
    file.unlink()
    found = watch.largest()
    assert found is not None
    assert found.live == 100 * MIB


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
    made = from_usages([request_of(JvmHeap(6 * GIB, 99 * MIB, 9, 0.3))])
    assert (made.memory_kind, made.knob) == ("elastic", "-Xmx149m")
    assert made.memory == 230 * MIB  # instead of 2.1 GB
    assert made.virtual_memory is not None
    assert made.virtual_memory < 5 * GIB


def test_a_heap_that_was_too_small_never_gets_less() -> None:
    crawled = JvmHeap(126 * MIB, 120 * MIB, 2944, 0.94)
    made = from_usages([request_of(crawled, 137 * MIB)])
    assert made.knob == "-Xmx252m"
    assert made.memory is not None
    assert made.memory > 252 * MIB
    assert any("94 %" in words for words in heap_words(usage(crawled)))


def test_a_set_heap_keeps_its_measured_memory() -> None:
    fixed = JvmHeap(64 * MIB, 30 * MIB, 9, 0.3, ("-Xmx64m",))
    assert heap_need(usage(fixed)) is None
    made = from_usages([request_of(fixed, 105 * MIB)])
    assert (made.knob, made.memory) == (None, 130 * MIB)


def test_a_set_heap_that_was_too_small_is_named() -> None:
    fixed = JvmHeap(64 * MIB, 60 * MIB, 900, 0.8, ("-Xmx64m",))
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


@pytest.mark.skipif(
    shutil.which("javac") is None, reason="no JDK: apt install default-jdk-headless"
)
def test_a_live_virtual_machine_is_read_after_its_end(tmp_path: Path) -> None:
    (tmp_path / "A.java").write_text(FOUR_TENTHS)
    subprocess.run(
        [
            *(sys.executable, "-m", "weigh", "run", "-q", "-o", "r.json", "--"),
            *("java", "-Xmx77m", "A.java"),
        ],
        cwd=tmp_path,
        check=True,
        env={**os.environ, "WEIGH_DIR": str(tmp_path)},
    )
    record = msgspec.json.decode((tmp_path / "r.json").read_bytes(), type=Record)
    assert record.usage is not None
    assert record.usage.jvm is not None
    assert record.usage.jvm.flags == ("-Xmx77m",)
    assert record.usage.jvm.heap_limit == pytest.approx(77 * MIB, rel=0.05)


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
    jvm = JvmHeap(64 * MIB, live * MIB, 9, 0.1, flags)
    said = " ".join(heap_words(usage(jvm)))
    assert ("its heap was full" in said) == (raised is not None)
    assert raised is None or said.endswith(raised)
