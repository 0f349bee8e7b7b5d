"""The wait for CPUs, compared with what threads read of themselves, last of all.

The schedstat of a thread is the kernel's account, which any user may read.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import called_apart
from processes import WAIT_FOR_LOOKS

from weigh.model.record import Usage
from weigh.usage_needs import cpus_for

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"),
    reason="this kernel does not count how long threads wait",
)
PRELUDE = f"""{WAIT_FOR_LOOKS}
import sys, threading
def spin(seconds):
    began = time.thread_time()
    while time.thread_time() - began < seconds: sum(range(500))
    path = f"/proc/self/task/{{threading.get_native_id()}}/schedstat"
    with open(path) as own:
        os.write(1, own.read().encode())
    if seconds: wait_for_looks()
"""
THREADS = """
workers = [threading.Thread(target=spin, args=(float(sys.argv[1]),)) for _ in range(3)]
for one in workers: one.start()
for one in workers: one.join()
spin(0); os._exit(0)
"""
FORKS = """
for _ in range(2):
    if os.fork() == 0: spin(float(sys.argv[1])); os._exit(0)
for _ in range(2): os.wait()
spin(0); os._exit(0)
"""
LOOP = "import os\nwhile os.getppid() == {}: sum(range(9999))"
ENOUGH = 0.05  # of the wait
TRIES = 3  # where weigh gets no CPU, it does not see what threads wait at the end
UNSEEN = 0.08  # seconds: what a thread does between the last look and its end


@contextmanager
def foreign_load(loops: int) -> Iterator[None]:
    code = LOOP.format(os.getpid())
    started = [
        subprocess.Popen([sys.executable, "-S", "-c", code]) for _ in range(loops)
    ]
    try:
        yield
    finally:
        for one in started:
            one.kill()
            one.wait()


def weigh(folder: Path, *command: str) -> tuple[dict[str, Any], str]:
    """Run a command under weigh; give its usage and its output."""
    done = called_apart(folder, "run", "-q", "-o", "r.json", "--", *command)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "r.json").read_bytes())["usage"], done.stdout


@pytest.mark.parametrize(
    "code", [THREADS, pytest.param(FORKS, marks=pytest.mark.integrations)]
)
def test_waits_are_those_that_threads_read_of_themselves(
    code: str, tmp_path: Path
) -> None:
    for last in reversed(range(TRIES)):
        with foreign_load(2):
            usage, text = weigh(
                tmp_path, sys.executable, "-S", "-c", PRELUDE + code, "0.25"
            )
        waits = [int(line.split()[1]) / 1e9 for line in text.splitlines()]
        found = usage["cpu_wait"]
        truth = pytest.approx(sum(waits), rel=ENOUGH, abs=UNSEEN)
        assert found["alone"] <= usage["wall_time"]
        if found["time"] == truth or not last:
            assert found["time"] == truth
            return


UNDER_PYTHONS_LOCK = """
def work(end):
    while time.monotonic() < end: sum(range(500))
"""
WITHOUT_THE_LOCK = """
import hashlib
block = bytes(8 << 20)
def work(end):
    while time.monotonic() < end: hashlib.sha256(block).digest()
"""
EIGHT = """
end = time.monotonic() + 2
workers = [threading.Thread(target=work, args=(end,)) for _ in range(7)]
for one in workers: one.start()
work(end)
for one in workers: one.join()
"""


@pytest.mark.parametrize(
    ("code", "least", "most"),
    [(UNDER_PYTHONS_LOCK, 1, 2), (WITHOUT_THE_LOCK, 2, 8)],
    ids=["under Python's lock", "without it"],
)
def test_eight_threads_on_a_busy_machine_are_advised_the_cpus_that_they_can_use(
    tmp_path: Path, code: str, least: int, most: int
) -> None:
    found, got = [], []
    for _ in range(TRIES):
        with foreign_load(2 * (os.cpu_count() or 1)):
            usage, _ = weigh(tmp_path, sys.executable, "-c", PRELUDE + code + EIGHT)
        found.append(cpus_for(msgspec.convert(usage, Usage)))
        got.append(usage["cpus_used"])
        assert found[-1] <= most
        if found[-1] >= least:
            return
    if max(got) < 0.5:  # threads that get hardly any CPU show little
        pytest.skip(f"the machine is too busy: eight threads got {max(got)} CPUs")
    pytest.fail(f"{found} CPUs are advised")
