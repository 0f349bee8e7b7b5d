"""What reading along costs, and how late output is: 10 MB/s through a file and a pty.

    python benchmarks/progress_live.py [SECONDS]

Prints CPU seconds a second of weigh itself (its user and system time, without the
job's), with and without reading along, of the copier, and the delay that a line has
from the job to the screen.
"""

import json
import os
import pty
import resource
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RATE = 10_000_000
JOB = """
import os, sys, time
rate, seconds = float(sys.argv[1]), float(sys.argv[2])
line = b"epoch 1 loss 0.123 step %9d of 999999999 " + b"x" * 50 + b"\\n"
began, sent, n = time.monotonic(), 0, 0
while (now := time.monotonic() - began) < seconds:
    block = b"".join(line % (n + k) for k in range(100))
    n += 100
    while block:
        block = block[os.write(1, block):]
    sent += 100 * len(line)
    time.sleep(max(0.0, sent / rate - (time.monotonic() - began)))
"""
TICK = """
import os, sys, time
for _ in range(int(sys.argv[1])):
    os.write(1, b"%.6f\\n" % time.monotonic())
    time.sleep(0.02)
"""
WEIGH = (sys.executable, "-m", "weigh", "run", "-q", "-o", "record.json")


def through_file(folder: Path, seconds: float, *, in_job: bool) -> float:
    """Give weigh's own CPU seconds for a run whose output is a file."""
    env = {**os.environ, "WEIGH_DIR": str(folder / "store")}
    if in_job:
        env["SLURM_JOB_ID"] = "1"
    with (folder / "log").open("wb") as log:
        argv = [*WEIGH, "--", sys.executable, "-c", JOB, str(RATE), str(seconds)]
        subprocess.run(argv, check=True, stdout=log, cwd=folder, env=env)
    return own_cpu(folder)


def own_cpu(folder: Path) -> float:
    """Read what weigh says that it took itself."""
    record = json.loads((folder / "record.json").read_bytes())
    return float(record["monitor"]["cpu_time"])


def on_terminal(folder: Path, *words: str, job: tuple[str, ...]) -> tuple[bytes, float]:
    """Give what reached the screen, line times first, and the CPU of all children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ["WEIGH_DIR"] = str(folder / "store")
        argv = [*WEIGH, *words, "--", sys.executable, "-c", *job]
        os.execvp(argv[0], argv)
    shown, delays = [], []
    while True:
        select.select([master], [], [])
        try:
            chunk = os.read(master, 65536)
        except OSError:
            break
        now = time.monotonic()
        if job[0] is TICK:
            for line in chunk.split():
                try:
                    delays.append(now - float(line))
                except ValueError:
                    continue
        shown.append(b"%d" % len(chunk))
    os.waitpid(pid, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    if delays:
        delays.sort()
        print(
            f"  delay      median {delays[len(delays) // 2] * 1e3:.2f} ms, "
            f"most {delays[-1] * 1e3:.2f} ms of {len(delays)} lines"
        )
    return b"".join(shown), spent


def main(seconds: float) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        idle = through_file(folder, seconds, in_job=False)
        reads = through_file(folder, seconds, in_job=True)
        print(f"file at 10 MB/s, {seconds:g} s: weigh's own CPU")
        print(f"  alone      {idle / seconds:.2%} of a core")
        print(
            f"  reads too  {reads / seconds:.2%}: {(reads - idle) / seconds:.2%} more"
        )
        job = (JOB, str(RATE), str(seconds))
        _, plain = on_terminal(folder, job=job)
        own_plain = own_cpu(folder)
        _, read = on_terminal(folder, "--progress", job=job)
        own = own_cpu(folder)
        print("terminal at 10 MB/s")
        print(f"  weigh      {own_plain / seconds:.2%} -> {own / seconds:.2%}")
        print(
            f"  all        {plain / seconds:.2%} -> {read / seconds:.2%} (job, copier)"
        )
        print("terminal, a line every 20 ms, as is and read along")
        on_terminal(folder, job=(TICK, "200"))
        on_terminal(folder, "--progress", job=(TICK, "200"))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
