"""How long ``weigh report`` takes for a job of 10,000 tasks.

    python benchmarks/report.py [TASKS]

Makes the store of such a job in a temporary folder (2,500 elements of four tasks, a
series of 200 points in each record) and prints seconds of the whole process, the best
of three, for each form; on a busy machine its CPU time says more.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from some_jobs import SomeJob, Task, write_job

from weigh.units import GIB

ASKED = 2.0  # seconds
FORMS = (
    (),
    ("--json",),
    ("--as", "paper"),
)


def main(tasks: int) -> int:
    """Print the table; 1 where the plain report takes longer than asked."""
    with tempfile.TemporaryDirectory(prefix="weigh-bench-") as folder:
        job = SomeJob(
            tasks=tuple(
                Task(
                    wall_time=3600.0 + number % 1800,
                    memory=GIB + (number % 97) * 10_000_000,
                    node=f"node{number % 40:02d}",
                    state="FAILED" if number % 100 == 0 else "COMPLETED",
                )
                for number in range(tasks)
            ),
            together=4,
            points=200,
        )
        write_job(f"{folder}/.weigh", f"{folder}/plan/ppo-sweep", job)
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        print(f"{tasks:,} tasks, {len(files):,} files, {size / 1e6:.0f} MB")
        best = {form: _best(folder, form) for form in FORMS}
    for form, (wall, cpu) in best.items():
        print(f"  weigh report {' '.join(form):<15} {wall:.2f} s, {cpu:.2f} s of CPU")
    print(f"  asked: {ASKED:.0f} s")
    return int(best[()][0] > ASKED)


def _best(folder: str, form: tuple[str, ...]) -> tuple[float, float]:
    """Give the least wall time and CPU time of three runs."""
    walls, cpus = [], []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run(
            (sys.executable, "-m", "weigh", "report", "481516", *form),
            cwd=folder,
            env={**os.environ, "WEIGH_DIR": f"{folder}/.weigh"},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(walls), min(cpus)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 10_000))
