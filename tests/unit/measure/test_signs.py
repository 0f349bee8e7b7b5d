from pathlib import Path
from typing import Any

import pytest
from looks import reading
from some_runs import a_run

from weigh.estimate.readings import groups_of
from weigh.measure.programs import (
    ProcessSigns,
    ProgramWatch,
    count_arenas,
    read_rules,
    sign_of,
)
from weigh.model.record import JvmHeap, PageCache, ProgramSign, Usage
from weigh.units import MIB
from weigh.usage_needs import cache_words, knobs_in, knobs_of, sign_words

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
