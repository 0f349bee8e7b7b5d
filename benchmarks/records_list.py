"""How long ``weigh records`` takes over a store of 100,000 records.

    python benchmarks/records_list.py [RECORDS]

Makes the store in a temporary folder (about 6 KB a record, a series of 200 points)
and prints seconds of the whole process, the best of three, for each way to list.
"""

import os
import random
import subprocess
import sys
import tempfile
import time

import msgspec

from weigh.model.record import (
    CodeProvenance,
    MeasuringCost,
    PeakMemory,
    Record,
    RecordedHost,
    SampleSeries,
    Usage,
)

POINTS = 200
VARIANTS = 500
LISTINGS = ((), ("-n", "0"), ("--json",), ("--label", "label7"), ("show", "last"))
CODE = "from weigh.cli.records import records; records(prog_name='weigh records')"


def make_record(number: int, draw: random.Random) -> Record:
    """Make up one record of a plausible run."""
    memory = [draw.randrange(1 << 28, 1 << 33) for _ in range(POINTS)]
    wall_time = draw.uniform(60, 6000)
    times = tuple(round(wall_time * n / POINTS, 3) for n in range(POINTS))
    peak = PeakMemory(
        value=max(memory),
        low=max(memory),
        high=max(memory) + 4096,
        anonymous=max(memory),
        shared=0,
        file=0,
        source="anonymous memory of the tree, shared pages once",
        time=times[memory.index(max(memory))],
    )
    return Record(
        id=f"{number:012x}",
        label=f"label{number % 50}",
        command=("python", "train.py", "--lr", "0.001", "--seed", str(number)),
        cwd="/home/someone/project",
        parameters={"lr": 0.001, "seed": number},
        host=RecordedHost(name="node07", system="Linux", cpus=16, memory=1 << 36),
        started="",
        ended="2026-11-21T12:00:00.000Z",
        state="COMPLETED",
        exit_code=0,
        usage=Usage(wall_time=wall_time, cpu_time=wall_time, peak_memory=peak),
        series=SampleSeries(
            t=times,
            memory=tuple(memory),
            cpu=tuple(round(draw.random(), 3) for _ in range(POINTS)),
        ),
        provenance=CodeProvenance(git_commit="0" * 40, python="3.11.2", weigh="0.1.0"),
        monitor=MeasuringCost(
            cpu_time=1.5, memory=12 << 20, samples=POINTS, interval=0.05
        ),
    )


def make_store(root: str, records: int) -> int:
    """Write *records* over ten months; return the bytes written."""
    draw = random.Random(1)
    variants = [make_record(number, draw) for number in range(VARIANTS)]
    size = 0
    for month in range(1, 11):
        folder = os.path.join(root, "records", f"2026-{month:02}")
        os.makedirs(folder)
        with open(os.path.join(folder, "node07-0123abcd.jsonl"), "wb") as shard:
            for n in range(records // 10):
                started = f"2026-{month:02}-{1 + n % 28:02}T{n % 24:02}:00:00.000Z"
                record_id = f"{draw.getrandbits(48):012x}"
                variant = msgspec.structs.replace(
                    variants[n % VARIANTS], id=record_id, started=started
                )
                size += shard.write(msgspec.json.encode(variant) + b"\n")
    return size


def main() -> None:
    """Print a line for each way to list."""
    records = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as root:
        size = make_store(root, records)
        print(f"{records:,} records, {size / 2**20:.0f} MiB")
        environment = {**os.environ, "WEIGH_DIR": root}
        for arguments in LISTINGS:
            best = min(_seconds(arguments, environment) for _ in range(3))
            print(f"{best:6.2f} s  weigh records {' '.join(arguments)}")


def _seconds(arguments: tuple[str, ...], environment: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", CODE, *arguments],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
