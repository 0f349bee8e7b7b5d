"""What ``weigh exec`` costs beside the quickest ways to run a list of commands.

    python benchmarks/exec.py [--quick]

Pairs take turns, so that whatever else the machine does meets both; the median of the
ratios is given, with the least and the most. Every Python here runs from compiled
modules, as installed ones do, and each program has run once before it counts.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

WEIGH = (sys.executable, "-m", "weigh", "exec", "-j2", "-q")
LOG_HEADER = (
    "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n"
)
_MANY = 5000  # tasks, to tell what each costs from what a run does
BARE = """
import os, sys
program, running = sys.argv[1], 0
nothing = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)]
for _ in range(int(sys.argv[2])):
    if running == 2:
        os.wait()
        running -= 1
    os.posix_spawn(program, ["true"], os.environ, file_actions=nothing, setpgroup=0)
    running += 1
while running:
    os.wait()
    running -= 1
"""


class Cost(NamedTuple):
    """What a command took: seconds by the clock, CPU seconds, bytes at most."""

    wall: float
    cpu: float
    memory: int


def run(argv: Sequence[str], folder: str, stdin: str | None = None) -> Cost:
    """Run a command to its end, its words thrown away."""
    source = os.devnull if stdin is None else stdin
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    env = {**os.environ, "WEIGH_DIR": f"{folder}/.weigh"}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.monotonic()
    pid = os.posix_spawnp(argv[0], list(argv), env, file_actions=actions)
    _, status, used = os.wait4(pid, 0)
    wall = time.monotonic() - began
    if status:
        sys.exit(f"{argv}: status {status}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


class Bench:
    """A folder to work in, and how often to repeat."""

    def __init__(self, folder: str, rounds: int) -> None:
        self.folder = folder
        self.rounds = rounds
        self.true = shutil.which("true") or "/bin/true"

    def tasks(self, count: int) -> str:
        """Write a task file of so many ``true``."""
        path = f"{self.folder}/{count}.txt"
        with open(path, "w", encoding="utf-8") as file:
            file.write("true\n" * count)
        return path

    def weigh(self, tasks: str) -> Cost:
        """Run all tasks anew, measured, with joblog and records."""
        for name in os.listdir(self.folder):
            if name.startswith(os.path.basename(tasks) + "."):
                os.unlink(f"{self.folder}/{name}")
        return run([*WEIGH, tasks], self.folder)

    def bare(self, count: int) -> Cost:
        """Start and wait for so many ``true``, and nothing else."""
        argv = [sys.executable, "-c", BARE, self.true, str(count)]
        return run(argv, self.folder)

    def xargs(self, tasks: str) -> Cost:
        """Have xargs do it."""
        return run(["xargs", "-P2", "-n1", self.true], self.folder, stdin=tasks)

    def parallel(self, tasks: str) -> Cost:
        """Have GNU parallel do it, with its joblog."""
        log = f"{self.folder}/parallel.log"
        argv = ["parallel", "-j2", "--joblog", log, "--will-cite"]
        cost = run(argv, self.folder, stdin=tasks)
        os.unlink(log)
        return cost

    def paired(self, one: Callable[[], Cost], other: Callable[[], Cost]) -> list[float]:
        """Give the ratios of wall times, taking turns."""
        return [one().wall / other().wall for _ in range(self.rounds)]


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Write the median, and between what the values lie."""
    middle = form.format(statistics.median(values))
    return f"{middle}   ({form.format(min(values))} to {form.format(max(values))})"


def dispatch(bench: Bench) -> None:
    """Compare 1,000 tasks of no length with what else can run them."""
    tasks = bench.tasks(1000)
    ratios = bench.paired(lambda: bench.weigh(tasks), lambda: bench.xargs(tasks))
    print(f"wall, to xargs -P2               {spread(ratios)}   asked: 1.15")
    if shutil.which("parallel"):
        ratios = bench.paired(lambda: bench.parallel(tasks), lambda: bench.weigh(tasks))
        print(f"wall of GNU parallel, to weigh   {spread(ratios)}   asked: 4")
    else:
        print("wall of GNU parallel, to weigh   no parallel here")


def processor(bench: Bench) -> None:
    """Give the CPU that each further task costs, beyond starting it."""
    few, many = bench.tasks(1000), bench.tasks(_MANY)
    beyond, memory = [], []
    for _ in range(bench.rounds):
        bare = bench.bare(_MANY).cpu - bench.bare(1000).cpu
        last = bench.weigh(many)
        weigh = last.cpu - bench.weigh(few).cpu
        beyond.append((weigh - bare) / (_MANY - 1000) * 1000)
        memory.append(last.memory / (1 << 20))
    print(f"CPU ms a task above bare spawn   {spread(beyond, '{:.3f}')}   asked: 0.2")
    print(f"memory, MiB                      {spread(memory, '{:.1f}')}   asked: 40")


def start(bench: Bench) -> None:
    """Give the milliseconds until the first task runs."""
    path, sign = f"{bench.folder}/first.txt", f"{bench.folder}/sign"
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"touch {sign}\n")
    waits = []
    for _ in range(bench.rounds * 2):
        began = time.time()
        bench.weigh(path)
        waits.append((os.stat(sign).st_mtime - began) * 1000)
        os.unlink(sign)
    print(f"ms to the first task             {spread(waits, '{:.0f}')}   asked: 150")


def resume(bench: Bench) -> None:
    """Give the seconds to find out that 100,000 tasks are done."""
    path = f"{bench.folder}/done.txt"
    lines = [f"python train.py --lr 0.{n} --name 'run {n}'" for n in range(100_000)]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    with open(f"{path}.joblog", "w", encoding="utf-8") as file:
        file.write(LOG_HEADER)
        file.writelines(
            f"{seq}\t:\t1763700000.123\t{1.25:10.3f}\t0\t0\t0\t0\t{line}\n"
            for seq, line in enumerate(lines, 1)
        )
    costs = [run([*WEIGH, path], bench.folder) for _ in range(bench.rounds)]
    walls = [cost.wall for cost in costs]
    print(f"s to resume 100,000 done tasks   {spread(walls)}   asked: 0.7")


def scale(bench: Bench, count: int) -> None:
    """Compare many tasks with few: time a task, and memory."""
    few, many = bench.weigh(bench.tasks(1000)), bench.weigh(bench.tasks(count))
    slower = (many.cpu / count) / (few.cpu / 1000)
    more = (many.memory - few.memory) / (1 << 20)
    print(f"CPU a task, {count:,} to 1,000     {slower:.2f}")
    print(f"memory beyond 1,000, MiB         {more:.1f}")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, rounds=3 if quick else 9)
        bench.weigh(bench.tasks(10))
        dispatch(bench)
        processor(bench)
        start(bench)
        resume(bench)
        scale(bench, 5_000 if quick else 100_000)


if __name__ == "__main__":
    main()
