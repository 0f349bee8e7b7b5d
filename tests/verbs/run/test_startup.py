"""What `weigh run` loads before the job, and what it adds to the job's own figures.

Counted are the files that Python opens, and the extension modules it loads, from the
moment the interpreter is up: what `weigh run` causes, not what `python` does.
"""

import os
import shutil
import signal
import subprocess
import sys
from importlib.util import source_from_cache
from pathlib import Path

import pytest
from run_captured import run_captured

from weigh.units import KIB, MIB

WRAPPER = """
import atexit, sys, time
clock, opened = time.monotonic, set()
# on a busy machine `true` lasts as long as a run whose output is read
time.monotonic = lambda: clock() / 100
def hear(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)): opened.add(str(args[0]))
    if event == "import" and args[1]: opened.add(str(args[1]))
def tell():
    names = sorted(set(sys.modules) - before)
    with open(said, "w") as file: file.write("\\n".join([*names, "", *opened]))
before = set(sys.modules)
said, sys.argv = sys.argv[1], ["weigh", *sys.argv[2:]]
atexit.register(tell)
sys.addaudithook(hear)
from weigh.__main__ import main
main()
"""
_NEVER = """
    asyncio argparse click csv dataclasses decimal difflib hashlib importlib.metadata
    inspect json logging multiprocessing numpy pathlib platform psutil random rich
    secrets shlex shutil socket subprocess tempfile tomllib typing_extensions unittest
    urllib uuid zipfile
"""
NEVER = frozenset(_NEVER.split())
MOST_FILES = 125
OF_THE_KERNEL = ("/proc/", "/sys/")  # these are on no disk
HIGHEST_FLOOR = 12 * MIB

PRINT_MAX_RSS = """
#include <stdio.h>
#include <sys/resource.h>
int main(void) {
    struct rusage own;
    getrusage(RUSAGE_SELF, &own);
    printf("%ld\\n", own.ru_maxrss);
    return 0;
}
"""
FROM_A_LARGE_PYTHON = """
import subprocess, sys
large = bytearray(200 << 20)
subprocess.run([sys.argv[1]])
from weigh import run
assert run([sys.argv[1]]).state == "COMPLETED"
"""


def weigh_true(folder: Path, *options: str) -> tuple[set[str], set[str]]:
    """Run ``true`` under weigh; give the modules it loaded and the files it opened."""
    said = folder / "said"
    subprocess.run(
        [sys.executable, "-c", WRAPPER, said, "run", *options, "--", "true"],
        check=True,
        cwd=folder,
        capture_output=True,
        env=_environment(folder),
    )
    modules, _, files = said.read_text().partition("\n\n")
    # a module is one file, compiled or not
    names = (
        source_from_cache(name) if name.endswith(".pyc") else name
        for name in files.splitlines()
    )
    opened = {name for name in names if not name.startswith(OF_THE_KERNEL)}
    return set(modules.splitlines()), opened


def _environment(folder: Path) -> dict[str, str]:
    names = ("WEIGH_", "SLURM_", "SGE_")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(names)}
    # a development environment's coverage or startup hooks are not weigh's
    ours = {"WEIGH_DIR": str(folder / "store"), "HOME": str(folder)}
    return {**kept, **ours, "CUDA_VISIBLE_DEVICES": ""}


def test_a_run_loads_nothing_slow_and_opens_few_files(tmp_path: Path) -> None:
    modules, files = weigh_true(tmp_path)
    assert not modules & NEVER
    assert 50 < len(files) <= MOST_FILES, sorted(files)


def test_a_quiet_run_does_not_load_what_is_printed(tmp_path: Path) -> None:
    modules, _ = weigh_true(tmp_path, "--quiet")
    assert not {name for name in modules if name.startswith("weigh.render")}


# The floor that the launcher puts under the job's own getrusage


@pytest.fixture(scope="module")
def print_max_rss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs gcc: any other program is larger than the floor")
    folder = tmp_path_factory.mktemp("c")
    source, program = folder / "says.c", folder / "says"
    source.write_text(PRINT_MAX_RSS)
    subprocess.run([compiler, "-o", program, source], check=True)
    return program


def sizes(text: str) -> list[int]:
    return [int(line) * KIB for line in text.splitlines()]


def test_a_jobs_own_max_rss_has_a_low_floor(
    print_max_rss: Path, tmp_path: Path
) -> None:
    words = (sys.executable, "-m", "weigh", "run", "-q", "--repeat=3", "--")
    done = run_captured([*words, print_max_rss], check=True, env=_environment(tmp_path))
    said = sizes(done.stdout)
    assert len(said) == 3
    assert max(said) <= HIGHEST_FLOOR


def test_a_large_python_passes_nothing_on_to_what_it_runs(
    print_max_rss: Path, tmp_path: Path
) -> None:
    done = run_captured(
        [sys.executable, "-c", FROM_A_LARGE_PYTHON, print_max_rss],
        check=True,
        env=_environment(tmp_path),
    )
    by_subprocess, by_weigh = sizes(done.stdout)
    assert by_weigh <= HIGHEST_FLOOR
    assert by_subprocess > 100 * MIB  # else this test could not fail


def test_an_interrupt_during_the_first_import_ends_weigh_silently() -> None:
    interrupt = """
import os, signal, sys
def interrupt(event, args):
    if event == "import" and args[0] == "weigh.import_path":
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(interrupt)
from weigh.__main__ import main
main()
"""

    ended = run_captured([sys.executable, "-c", interrupt])

    assert (ended.returncode, ended.stderr) == (-signal.SIGINT, "")
