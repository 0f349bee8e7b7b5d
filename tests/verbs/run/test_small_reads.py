"""Many small reads on a shared file system: counted, and one line on the screens."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from run_captured import CapturedRun, run_captured

# no mount here is NFS: each file system counts as one that is
WEIGH = """
from weigh.__main__ import main
from weigh.probe import filesystem
filesystem.is_over_network = lambda kind: True
main()
"""
CALLS = 11_000
# each keeps a file open while it waits as long as a file server may take
PAUSE = "import os, time\npause = lambda: time.sleep(0.0002)\n"
MANY_FILES = f"""{PAUSE}
os.mkdir("data")
for number in range(400):
    with open(f"data/{{number}}.txt", "w") as file:
        file.write("x" * 300)
began = time.clock_gettime(time.CLOCK_BOOTTIME)
for turn in range({CALLS} // 2):
    file = os.open(f"data/{{turn % 400}}.txt", os.O_RDONLY)
    os.read(file, 4096)
    pause()
    os.read(file, 4096)
    os.close(file)
# weigh looks after 1, 2, 4 s and so on, late on a busy machine: twice while this reads
with open("data/0.txt") as file, open(f"/proc/{{os.getppid()}}/stat") as weigh:
    ticks = int(weigh.read().rpartition(")")[2].split()[19])
    started = ticks / os.sysconf("SC_CLK_TCK")
    while time.clock_gettime(time.CLOCK_BOOTTIME) < started + 5 * (began - started) + 2:
        file.seek(0)
        file.read()
        time.sleep(0.05)
"""
ONE_FILE = f"""{PAUSE}
with open("big.bin", "wb") as file:
    file.truncate(100 * {CALLS})
file = os.open("big.bin", os.O_RDONLY)
for turn in range({CALLS}):
    assert len(os.read(file, 100)) == 100
    pause()
"""


@pytest.fixture
def run(tmp_path: Path) -> "Run":
    return Run(tmp_path)


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def weigh(self, *words: str) -> CapturedRun:
        env = {**os.environ, "WEIGH_DIR": str(self.folder / "store")}
        return run_captured(
            [sys.executable, "-c", WEIGH, *words],
            cwd=self.folder,
            env=env,
            check=True,
        )

    def screen(self, program: str) -> str:
        done = self.weigh("run", "--", sys.executable, "-c", program)
        return " ".join(done.stderr.split())

    def file_calls(self) -> dict[str, object]:
        shown = self.weigh("records", "show", "last", "--json")
        found: dict[str, object] = json.loads(shown.stdout)["usage"]["file_calls"]
        return found


WORDS = r"disk [\d,]+00 small reads a minute on /\S* \(\w+\): use --stage-in "


def test_small_reads_of_a_shared_file_system_are_one_line(run: Run) -> None:
    shown = re.search(f"{WORDS}data/", run.screen(MANY_FILES))

    assert shown is not None
    report = run.weigh("report", "last").stdout
    assert shown[0] in " ".join(report.split())
    # the program's own count, and what an interpreter reads as it starts
    reads = run.file_calls()["reads"]
    assert isinstance(reads, int)
    assert CALLS <= reads < CALLS + 2000


def test_calls_of_children_count_when_they_have_ended(run: Run) -> None:
    child = "import os; [os.read(0, 1) for _ in range(3000)]"
    run.weigh("run", "--", "sh", "-c", f"{sys.executable} -c '{child}' </dev/zero")

    reads = run.file_calls()["reads"]

    assert isinstance(reads, int)
    assert 3000 <= reads < 5000


def test_the_report_of_tasks_has_the_line(run: Run) -> None:
    (run.folder / "one.py").write_text(ONE_FILE)
    (run.folder / "tasks.txt").write_text(f"{sys.executable} one.py\n")
    run.weigh("exec", "tasks.txt")

    report = run.weigh("report", "tasks.txt.joblog").stdout

    assert re.search(f"{WORDS}big.bin", " ".join(report.split()))
