"""Programs that a run consists of: their signs, the files they read, Java's heap."""

import os
import pwd
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from looks import reading
from msgspec.structs import replace
from some_runs import a_run

from weigh.estimate.readings import groups_of
from weigh.measure import programs
from weigh.measure.programs import (
    FolderLooks,
    JvmWatch,
    ProcessSigns,
    ProgramWatch,
    count_arenas,
    jvm_of,
    parse_perfdata,
    read_rules,
    sign_of,
)
from weigh.model.record import (
    FileCalls,
    JvmHeap,
    PageCache,
    ProgramSign,
    Record,
    Usage,
)
from weigh.units import GIB, MIB
from weigh.usage_needs import (
    cache_words,
    knobs_in,
    knobs_of,
    sign_words,
    small_read_words,
)

RULES = read_rules({}, site="/nowhere")


def maps(*names: str) -> bytes:
    return "".join(
        f"7f00000000-7f00001000 r-xp 00000000 08:01 9 {name}\n" for name in names
    ).encode()


def arenas(count: int) -> bytes:
    """Write heaps at multiples of 64 MiB, and other memory in between."""
    text = ""
    for number in range(count):
        at = 0x7F0000000000 + number * (64 << 20)
        text += f"{at:x}-{at + 0x21000:x} rw-p 00000000 00:00 0 \n"
        text += f"{at + 0x21000:x}-{at + (64 << 20):x} ---p 00000000 00:00 0 \n"
        text += f"{at + 0x5000:x}-{at + 0x6000:x} rw-p 00000000 00:00 0 [stack]\n"
    return text.encode()


HEAP = "--max-old-space-size"
DUCKDB = {"maps": maps("/x/duckdb.so")}
SPADES = "python3 -u /opt/bin/spades.py -m 9"
GO: dict[str, Any] = {"env": {"GOMEMLIMIT": "1GiB"}, "is_go": True}


@pytest.mark.parametrize(
    ("exe", "words", "more", "found"),
    [
        ("node", f"node {HEAP}=90 a.js", {}, f"node: {HEAP} 90"),
        ("sort", "sort -S 1G a", {}, "sort: -S 1G"),
        ("sort", "sort -S1G a", {}, "sort: -S 1G"),
        ("sort", "sort a", {}, "sort: -S None"),
        ("samtools", "samtools sort -m 2G", {}, "samtools sort: -m 2G"),
        ("samtools", "samtools view", {}, None),
        ("tool", "tool", GO, "go: GOMEMLIMIT 1GiB"),
        (
            "python3.11",
            "python3 a.py",
            DUCKDB,
            "duckdb: memory_limit None",
        ),
        ("tool", "tool", {"maps": arenas(5)}, "malloc arenas: MALLOC_ARENA_MAX None"),
        ("tool", "tool", {"maps": arenas(2)}, None),
        ("python3", SPADES, {}, "spades: -m 9"),
        ("", "", {}, None),
        # clients, by the words with which others do their work
        ("docker", "docker run img", GO, "client"),
        ("docker", "docker ps", GO, "go: GOMEMLIMIT 1GiB"),
        ("kubectl", "kubectl wait job", GO, "client"),
        ("tmux", "tmux new -d ./a", {}, "client"),
        ("curl", "curl -O file", {}, None),
        ("ssh", "ssh node", {}, None),
    ],
)
def test_programs_are_recognised_with_the_knob_that_limits_them(
    exe: str, words: str, more: dict[str, Any], found: str | None
) -> None:
    sign = sign_of(ProcessSigns(f"/usr/bin/{exe}", tuple(words.split()), **more), RULES)
    shown = sign and f"{sign.name}: {sign.knob} {sign.value}"
    assert ("client" if sign and sign.is_client else shown) == found


def test_arenas_are_not_counted_in_java() -> None:
    assert count_arenas(arenas(9)) == 9
    assert count_arenas(arenas(9) + maps("/x/libjvm.so")) == 0
    assert count_arenas(b"junk\nx-y rw-p 0 0 0\n") == 0


def test_each_sign_has_words_that_fit_a_line() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert len(rule.advice) <= 60, rule.name


def test_a_site_extends_the_table_and_its_signs_come_first(tmp_path: Path) -> None:
    file = tmp_path / "signs.toml"
    lines = ("[[sign]]", 'name = "here"', 'program = ["sort"]', 'advice = "use ours"')
    file.write_text("\n".join(lines))
    rules = read_rules({}, site=str(file))
    found = sign_of(ProcessSigns("/usr/bin/sort", ("sort",)), rules)
    assert found is not None
    assert found.name == "here"
    assert rules[1:] == RULES
    assert read_rules({"WEIGH_SIGNS": str(file)}, site="/nowhere") == rules


@pytest.mark.parametrize("text", ["[[sign]]\nname = 3\n", "[[", "\0", "a = 1\n"])
def test_a_table_that_is_wrong_is_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    assert read_rules({}, site=str(tmp_path / "s.toml")) == RULES


def process_7(proc: Path, program: str) -> Path:
    """Make up a process of a program, with nothing in its files yet."""
    folder = proc / "7"
    (folder / "fd").mkdir(parents=True)
    (folder / "exe").symlink_to(program)
    for name in ("cmdline", "environ", "maps", "io"):
        (folder / name).touch()
    return folder


def test_files_that_are_read_again_and_again_need_page_cache(tmp_path: Path) -> None:
    folder = process_7(tmp_path, "/usr/bin/sqlite3")
    data = tmp_path / "data"
    with data.open("wb") as file:
        file.truncate(100 * MIB)
    (folder / "fd" / "3").symlink_to(data)
    (folder / "fd" / "4").symlink_to(data)
    names = "wchar syscr syscw read_bytes write_bytes cancelled_write_bytes"
    others = "".join(f"{name}: 1\n" for name in names.split())
    (folder / "io").write_text(f"rchar: {800 * MIB}\n{others}")
    watch = ProgramWatch({}, proc_folder=str(tmp_path))
    watch.look(0.6, [reading(7, MIB)])
    assert watch.cache == PageCache(read=800 * MIB, files=100 * MIB)
    usage = Usage(wall_time=9.0, cache=watch.cache)
    assert "800 MiB of files of 100 MiB" in next(cache_words(usage))


def test_a_file_that_does_not_answer_holds_one_look_for_a_second(
    tmp_path: Path,
) -> None:
    maps = process_7(tmp_path, "/usr/bin/sqlite3") / "maps"
    maps.unlink()
    os.mkfifo(maps)  # opened once somebody writes, as on a file server that is down
    watch = ProgramWatch({}, proc_folder=str(tmp_path))
    began = time.monotonic()
    for now in (1.0, 2.0, 4.0, 8.0):
        watch.look(now, [reading(7, MIB)])
    took = time.monotonic() - began
    os.close(os.open(maps, os.O_WRONLY))
    assert 1 <= took < 4  # if each of them waited


def test_a_program_is_read_again_when_the_run_is_twice_as_old(tmp_path: Path) -> None:
    watch = ProgramWatch({}, proc_folder=str(tmp_path))
    watch.look(0.5, [reading(7, MIB)])  # it is gone
    folder = process_7(tmp_path, "/opt/tool")
    watch.look(1.0, [reading(7, MIB)])
    (folder / "cmdline").write_text("samtools\0sort\0")
    signs = []
    for now in (1.9, 2.4):
        watch.look(now, [reading(7, MIB)])
        signs.append(watch.sign and watch.sign.name)
    assert signs == [None, "samtools sort"]


def test_a_program_in_go_is_known_by_the_beginning_of_its_file(tmp_path: Path) -> None:
    program = tmp_path / "tool"
    head = b"\x7fELF\2\1\1".ljust(0xF78, b"\0")
    # as readelf -n shows it of kubectl: 4 bytes of name, 83 of the build id, type 4
    program.write_bytes(head + b"\4\0\0\0\x53\0\0\0\4\0\0\0Go\0\0")
    process_7(tmp_path, str(program))
    watch = ProgramWatch({}, proc_folder=str(tmp_path))
    watch.look(0.6, [reading(7, MIB)])
    assert (watch.sign and watch.sign.name) == "go"


def go_with(limit: str) -> Usage:
    """Return the usage of a program in Go that has set a limit."""
    return Usage(wall_time=1.0, sign=ProgramSign("go", "words", "GOMEMLIMIT", limit))


def test_knobs_are_read_of_the_command_and_of_the_run() -> None:
    assert knobs_in(("java", "-Xmx64m", "A"), {}) == ("-Xmx=64m",)
    assert knobs_in(("bash", "-c", "GOMEMLIMIT=1GiB ./a"), {}) == ("GOMEMLIMIT=1GiB",)
    jvm = Usage(wall_time=1.0, jvm=JvmHeap(64 * MIB, flags=("-Xmx64m",)))
    assert knobs_of(a_run("run.sh", usage=jvm)) == ("-Xmx=64m",)
    # one that is a parameter is left out
    assert knobs_of(a_run("java -Xmx64m A", parameters={"heap": 64})) == ()
    assert knobs_of(a_run("./a", usage=go_with("1GiB"))) == ("GOMEMLIMIT=1GiB",)
    assert "GOMEMLIMIT=1GiB" in next(sign_words(go_with("1GiB")))


def test_runs_with_different_knobs_are_not_fitted_together() -> None:
    runs = [a_run("./a", usage=go_with(x)) for x in ("1GiB", "2GiB", "1GiB")]
    first, second, third = groups_of(runs)
    assert first == third != second


# Files that descriptors show

CALLS = FileCalls(reads=30_000, writes=9, read=3_000_000, written=9)
MOUNTS = b"1 0 0:9 / / rw - ext4 /dev/a rw\n2 1 0:10 / {} rw - nfs4 server:/ rw\n"


class Looks:
    """Looks at descriptors of one process, below a doctored /proc."""

    def __init__(self, proc: Path) -> None:
        self.proc = proc
        self.folders = FolderLooks(str(proc))

    def note(
        self, *files: tuple[str, str], has_pipe: bool = True, flags: str = "0100000"
    ) -> None:
        noted = {"0": "pipe:[3]"} if has_pipe else {}
        for number, (path, position) in enumerate(files, start=3):
            info = self.proc / "7/fdinfo" / str(number)
            info.parent.mkdir(parents=True, exist_ok=True)
            info.write_text(f"pos:\t{position}\nflags:\t{flags}\nmnt_id:\t30\n")
            noted[str(number)] = path
        self.folders.note(7, noted)

    @property
    def folder(self) -> str | None:
        return self.folders.add_to(CALLS).folder


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Looks:
    monkeypatch.chdir(tmp_path)
    return Looks(tmp_path)


@pytest.mark.parametrize(
    ("positions", "has_pipe", "is_read"),
    [
        (("0", "100", "200"), True, True),
        # opened once, and then only mapped: the calls may be those of the pipe
        (("0", "0", "0"), True, False),
        # read at an offset, which moves nothing, but nothing else can be read
        (("0", "0", "0"), False, True),
    ],
)
def test_a_file_is_read_that_moves_or_is_the_only_one(
    looks: Looks, positions: Sequence[str], *, has_pipe: bool, is_read: bool
) -> None:
    for position in positions:
        looks.note(("/srv/data/big", position), has_pipe=has_pipe)

    assert looks.folder == ("/srv/data/" if is_read else None)


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        ("/srv/out.txt", "0100001"),  # O_WRONLY
        ("/srv/folder", "0300000"),  # O_DIRECTORY
        ("/proc/7/stat", "0100000"),
        ("/srv/lib/module.pyc", "0100000"),
        ("/srv/gone (deleted)", "0100000"),
        ("/srv/\udcff/data", "0100000"),  # no Unicode, so no record can hold it
    ],
)
def test_output_programs_and_odd_names_are_no_data(
    looks: Looks, path: str, flags: str
) -> None:
    for position in ("1", "2", "3"):
        looks.note((path, position), flags=flags)

    assert looks.folder is None


def test_a_folder_is_named_as_it_is_staged(looks: Looks, tmp_path: Path) -> None:
    for number in range(4):
        looks.note((f"{tmp_path}/data/{number}/a.txt", "0"))

    assert looks.folder == "data/"


@pytest.mark.parametrize(("kind", "is_shared"), [(b"nfs4", True), (b"ext4", False)])
def test_the_mount_of_the_folder_is_named(
    looks: Looks, tmp_path: Path, kind: bytes, *, is_shared: bool
) -> None:
    (tmp_path / "self").mkdir()
    text = MOUNTS.replace(b"{}", os.fsencode(tmp_path)).replace(b"nfs4", kind)
    (tmp_path / "self/mountinfo").write_bytes(text)
    for position in ("1", "2"):
        looks.note((f"{tmp_path}/big.bin", position))

    calls = looks.folders.add_to(CALLS)

    assert calls.mount == str(tmp_path)
    assert (calls.file_system, calls.is_shared) == (kind.decode(), is_shared)


@pytest.mark.parametrize(
    ("changed", "is_harm"),
    [
        ({}, True),
        ({"minutes": 600.0}, False),
        ({"is_shared": False}, False),
        ({"is_shared": None}, False),
        ({"folder": None}, False),
        ({"reads": 9000}, False),
        ({"read": 30_000 * 8192}, False),  # as Python's buffered files read
        ({"read": 30_000 * 8192, "files": 9}, True),  # of many small files
        ({"read": 30_000 << 17, "files": 9}, False),
    ],
)
def test_only_many_small_reads_over_a_network_do_harm(
    changed: dict[str, Any], *, is_harm: bool
) -> None:
    figures: dict[str, Any] = {"folder": "my data/", "files": 1, "mount": "/home"}
    changed = figures | {"is_shared": True, "file_system": "nfs"} | changed
    seconds = 60 * changed.pop("minutes", 1.5)
    calls = replace(CALLS, **changed)
    words = list(small_read_words(Usage(wall_time=seconds, file_calls=calls)))

    harm = "20,000 small reads a minute on /home (nfs): use --stage-in 'my data/'"
    assert words == ([harm] if is_harm else [])


# Java's heap

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
