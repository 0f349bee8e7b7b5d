"""How long it takes to read the accounting of years, and how much memory.

    python benchmarks/accounting.py [ROWS]

Writes ROWS rows (a million) of `sacct -P` as sites print it into a temporary folder:
arrays, requeued jobs, steps of many tasks, mixed units, names with delimiters and
newlines; and as many lines of Grid Engine's accounting file. Reads each in a process of
its own that keeps no job, once only to read it and once for the report of a group, and
prints seconds of CPU time and of the clock, and its peak memory.
"""

import os
import random
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

COLUMNS = (
    *("JobID", "JobName", "User", "Account", "Partition", "State", "ExitCode"),
    *("Submit", "Eligible", "Start", "End", "ElapsedRaw", "TimelimitRaw", "ReqMem"),
    *("AllocCPUS", "NNodes", "NTasks", "MaxRSS", "AveRSS", "TRESUsageInTot"),
    *("TRESUsageInMax", "TotalCPU", "AllocTRES", "NodeList", "ConsumedEnergyRaw"),
    *("SubmitLine", "WorkDir"),
)
STATES = ("COMPLETED",) * 17 + ("FAILED", "OUT_OF_MEMORY", "TIMEOUT", "CANCELLED by 9")
BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 - as sacct prints it
READ = """
import os, sys, time
from weigh.schedulers import KINDS
from weigh.flow.report.group import Chosen, group
source = KINDS[sys.argv[1]].accounting
wall, cpu = time.monotonic(), time.process_time()
jobs = lost = 0
if sys.argv[3] == "report":
    found = group(Chosen(source=sys.argv[2], all_users=True), cwd="/", env={})
    jobs, lost = found.total.jobs, found.dropped
else:
    with open(sys.argv[2], encoding="utf-8", newline="\\n") as lines:
        for job in source.read_past(lines):
            jobs += job is not None
            lost += job is None
wall, cpu = time.monotonic() - wall, time.process_time() - cpu
with open("/proc/self/status") as status:
    peak = next(int(line.split()[1]) for line in status if "VmHWM" in line) / 1024
print(f"{jobs:,} jobs, {lost} rows dropped | {cpu:.1f} | {wall:.1f} | {peak:.0f} MiB |")
"""


def sacct(rows: int, draw: random.Random) -> str:
    """Make up the rows of one job at a time, until there are enough."""
    written = [("|".join(COLUMNS))]
    number = 0
    while len(written) < rows:
        number += 1
        for element in range(draw.choice((1, 1, 1, 20))):
            written.extend(job_rows(number, element, draw))
    return "\n".join(written) + "\n"


def job_rows(number: int, element: int, draw: random.Random) -> list[str]:
    """Make up a job and its steps."""
    job = f"{number}_{element}" if number % 4 == 0 else str(number)
    name = draw.choice(("train", "align_12", "wrap", "sim-3"))
    if draw.random() < 0.01:
        name = draw.choice(("x|y", "two\nlines"))
    began = BEGIN + timedelta(seconds=number)
    took = draw.randint(0, 90000)
    ended = (began + timedelta(seconds=took)).isoformat()
    start, state = began.isoformat(), draw.choice(STATES)
    cpus, asked = draw.choice((1, 4, 16)), f"{draw.choice((4, 16, 64))}G"
    tres = f"billing={cpus},cpu={cpus},mem={asked},node=1"
    times = (start, start, start, ended, str(took))
    whole = (job, name, "u07", "lab", "short", state, "0:0", *times, "600", asked)
    spent = f"{draw.randint(0, 23):02}:{number % 60:02}:{draw.randint(0, 59):02}"
    use = (str(cpus), "1", "", "", "", "", "", spent, tres, "cn7", "0")
    rows = ["|".join((*whole, *use, f"sbatch -J {name} job.sh {number}", "/home/u07"))]
    for step in ("batch", "extern", "0", "1")[: draw.choice((2, 3, 3, 4))]:
        tasks = cpus if step.isdecimal() else 1
        size = draw.randint(1000, 60_000_000)
        most, mean = f"{size}K", draw.choice((f"{size * 0.9:.2f}K", str(size * 900)))
        used = (
            f"cpu=00:10:03,energy=0,fs/disk=177556,mem={size * tasks}K,pages=0,vmem=1"
        )
        head = (f"{job}.{step}", step, "", "lab", "", state.partition(" ")[0], "0:0")
        tail = (str(cpus), "1", str(tasks), most, mean, used, used, "01:02:03", tres)
        rows.append("|".join((*head, *times, "", "", *tail, "cn7", "0", "", "")))
    return rows


def grid_engine(rows: int, draw: random.Random) -> str:
    """Make up lines of the accounting file."""
    return "".join(
        f"short.q:cn7:lab:u07:align_{n % 9}:{n}:sge:0:1795382695:1795382695:"
        f"{1795382703 + n}:0:{draw.choice((0, 0, 0, 1))}:8:0.128743:0.109790:"
        f"{draw.randint(9000, 9_000_000)}.000000:0:0:0:0:41592:5:0:544.0:56:0:0:0:309:"
        f"152:NONE:dep:NONE:{draw.choice((1, 4))}:{n % 7}:0.238533:0.002823:0.000652:"
        f"-l h_rt=3600,h_vmem=4G:0.000000:NONE:{draw.randint(1, 1 << 33)}.000000:0:0\n"
        for n in range(rows)
    )


def main() -> None:
    """Write the files, and read each in a process of its own."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    print("| | | CPU s | s | peak |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for scheduler, write in (("slurm", sacct), ("gridengine", grid_engine)):
            path = Path(folder, scheduler)
            path.write_text(write(rows, random.Random(7)), newline="\n")
            size = os.path.getsize(path) >> 20
            for what in ("read", "report"):
                words = [sys.executable, "-c", READ, scheduler, str(path), what]
                done = subprocess.run(words, check=True, capture_output=True, text=True)
                row = f"| {what} {scheduler}, {size} MiB | {done.stdout.strip()}"
                print(row, flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
