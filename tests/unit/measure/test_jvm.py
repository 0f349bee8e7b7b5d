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
from msgspec.structs import replace

from weigh.measure import programs
from weigh.measure.programs import JvmWatch, jvm_of, parse_perfdata
from weigh.model.record import JvmHeap, Record
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


def perfdata(counters: dict[str, int | str], order: str = "<") -> bytes:
    """Write counters as HotSpot does, each with its value behind its name."""
    entries = b""
    for name, value in counters.items():
        text = name.encode() + b"\0"
        text += bytes(-len(text) % 8 + 4)  # 20 bytes of entry: aligned to 8
        if isinstance(value, int):
            kind, raw, size = b"J", struct.pack(f"{order}q", value), 0
        else:
            kind, raw, size = b"B", value.encode() + b"\0", len(value) + 1
        begin = 20 + len(text)
        fields = (begin + len(raw), 20, size, kind, 0, 1, 1, begin)
        entries += struct.pack(f"{order}iiicbbbi", *fields) + text + raw
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
    assert g1 is not None
    assert g1 == JvmHeap(6 * GIB, 100 * MIB, 0.3, (), 2 * MIB)
    serial = jvm_of({**G1, "sun.gc.policy.name": "Copy:MSC"})
    assert serial == replace(g1, heap_limit=12 * GIB)
    # options come from the environment, too
    assert jvm_of(G1, ["-Xmx64m"]) == replace(g1, flags=("-Xmx64m",))
    # without a collection nothing is known to be alive
    fresh = jvm_of({**G1, "sun.gc.collector.0.invocations": 0})
    assert fresh == replace(g1, live=None)


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


def test_of_many_virtual_machines_the_largest_stays_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "_user_name", lambda _user: "me")
    folder, proc = tmp_path / "hsperfdata_me", tmp_path / "proc"
    folder.mkdir()
    watch = JvmWatch(proc_folder=str(proc), folder=str(tmp_path))
    # one after the other, as of a build; the third is the largest
    for pid in range(1000, 1040):
        (proc / str(pid)).mkdir(parents=True)
        metaspace = {"sun.gc.metaspace.used": pid}
        (folder / str(pid)).write_bytes(perfdata({**G1, **metaspace}))
        watch.look([reading(pid, (300 if pid == 1002 else 90) * MIB)])
    kept = Path("/proc/self/maps").read_text().count("hsperfdata_me/")
    assert kept == 1
    found = watch.largest()
    assert found is not None
    assert found.metaspace == 1002


@pytest.mark.skipif(
    shutil.which("javac") is None, reason="no JDK: apt install default-jdk-headless"
)
def test_a_live_virtual_machine_is_read_after_its_end(tmp_path: Path) -> None:
    (tmp_path / "A.java").write_text(
        "class A { public static void main(String[] words) throws Exception {"
        " Thread.sleep(400); } }"
    )
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
