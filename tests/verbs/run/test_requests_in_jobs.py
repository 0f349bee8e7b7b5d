"""What `weigh run` advises after a failed run, inside a limit and after repeats."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest
from called_weigh import called_apart
from processes import Weigh
from run_captured import CapturedRun

from weigh.units import MIB

DIES_OF_WORDS = """
import sys, time
time.sleep(1.1)
print("java.lang.OutOfMemoryError: Java heap space", file=sys.stderr)
sys.exit(1)
"""


@pytest.fixture
def in_group(memory_group: Callable[[int], tuple[str, ...]]) -> tuple[str, ...]:
    return memory_group(400 * MIB)


def _request(weigh: Weigh) -> CapturedRun:
    return called_apart(weigh.folder, "request", "--for", "slurm")


def _report(weigh: Weigh) -> str:
    return called_apart(weigh.folder, "report", "last").stdout


HOLDS = "held = b'x' * (220 << 20)\n"


@pytest.mark.parametrize(
    ("program", "has_output", "advised"),
    [
        # the words in its output double what was granted
        (DIES_OF_WORDS, True, ("OUT_OF_MEMORY", "--mem=800M")),
        # it came near to what was granted
        (HOLDS + DIES_OF_WORDS, False, ("FAILED", "--mem=400M")),
        # it took little
        (DIES_OF_WORDS, False, ("FAILED", "--mem=50M")),
    ],
)
def test_a_failed_run_is_advised_by_its_words_and_how_near_it_came(
    weigh: Weigh,
    in_group: tuple[str, ...],
    program: str,
    advised: tuple[str, ...],
    *,
    has_output: bool,
) -> None:
    path = weigh.folder / "log"
    with path.open("w") as log:
        stderr = log if has_output else subprocess.PIPE
        job = (sys.executable, "-c", program)
        done = weigh.run("--", *job, prefix=in_group, stderr=stderr)
    said = path.read_text() if has_output else done.stderr.decode()
    assert all(words in said for words in advised), said


def test_words_from_before_the_run_are_not_the_runs_own(weigh: Weigh) -> None:
    path = weigh.folder / "log"
    path.write_text("MemoryError\n")
    with path.open("a") as log:
        weigh.run("-q", "--", "sh", "-c", "exit 1", stderr=log)
    assert weigh.record()["state"] == "FAILED"


def test_a_report_after_a_kill_for_memory_prints_one_request(
    weigh: Weigh, in_group: tuple[str, ...]
) -> None:
    job = (sys.executable, "-c", "bytearray(1 << 30)")
    weigh.run("--", *job, prefix=in_group)
    said = _report(weigh)
    assert "--mem=800M" in said
    assert said.count("--mem=") == 1


def test_a_run_that_fails_in_its_first_second_prints_no_request(weigh: Weigh) -> None:
    done = weigh.run("--", "sh", "-c", "exit 1")
    assert b"it failed within its first second" in done.stderr
    assert b"--mem" not in done.stderr
    assert "--mem" not in _report(weigh)
    assert _request(weigh).stdout == ""


def test_a_failing_second_warm_up_is_no_error_of_weighs(weigh: Weigh) -> None:
    script = "if [ -e ran ]; then sleep 1.1; exit 3; fi; touch ran"
    done = weigh.run("--repeat", "1,2", "--", "sh", "-c", script)
    assert done.returncode == 3
    assert b"internal error" not in done.stderr
    assert "--mem" in _request(weigh).stdout


def test_report_and_request_count_the_same_runs(weigh: Weigh) -> None:
    weigh.run("--repeat", "3,1", "--", "true")
    assert "3 runs, 3 completed" in _report(weigh)
    assert "from 3 runs" in _request(weigh).stderr


def test_a_mapped_file_is_no_reason_to_request_less_than_the_peak(weigh: Weigh) -> None:
    size = 64 * MIB
    (weigh.folder / "data").write_bytes(os.urandom(1 << 20) * 64)
    job = (
        "import mmap, time; file = open('data'); "
        "m = mmap.mmap(file.fileno(), 0, prot=1); sum(m[::4096]); time.sleep(2)"
    )
    weigh.run("-q", "--", sys.executable, "-c", job)
    peak = weigh.record()["usage"]["peak_memory"]
    assert peak["file"] > size * 0.9
    asked = _request(weigh).stdout.split("--mem=")[1].split()[0]
    assert int(asked.removesuffix("M")) * MIB >= peak["value"]


@pytest.mark.skipif(shutil.which("java") is None, reason="needs java")
def test_a_real_java_heap_that_is_full_is_out_of_memory(weigh: Weigh) -> None:
    (weigh.folder / "A.java").write_text(
        "public class A { public static void main(String[] a) "
        "{ long[] x = new long[2000000000]; } }"
    )
    with (weigh.folder / "log").open("w") as log:
        weigh.run("-q", "--", "java", "-Xmx64m", "A.java", stderr=log)
    assert weigh.record()["state"] == "OUT_OF_MEMORY"
