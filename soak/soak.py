"""Long and heavy runs: each function gives what was done and what was found.

python soak/soak.py [NAME...]
"""

import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from weigh.measure.watcher import TreeWatcher
from weigh.model.record import Record
from weigh.probe.proc import ProcTree
from weigh.store.index import read_index, read_record

MIB = 1 << 20
DAY = 24 * 3600.0
WEIGH = (sys.executable, "-m", "weigh")


class Finding(NamedTuple):
    """What was found, and whether it is what weigh promises."""

    done: str
    found: str
    holds: bool


def sampler() -> Iterator[Finding]:
    """A day of looks at 20 Hz, at a tree that lives and changes."""
    busy = "import time\nx=[]\nwhile 1:\n x=[0]*100000; time.sleep(.001)"
    with _started(
        f"for i in 1 2 3; do {sys.executable} -c '{busy}' & done; wait"
    ) as job:
        time.sleep(0.5)
        ticks = iter(range(int(DAY * 20) + 100))
        tree = ProcTree(job.pid)
        taken = TreeWatcher(tree, 0.05, clock=lambda: next(ticks) / 20.0)
        sizes = []
        looks = int(DAY * 20 / 4)  # the clock is read some times a look
        for number in range(looks):
            if next_or_stop(taken):
                break
            if number in {looks // 10, looks // 3}:
                sizes.append((_own_memory(), _descriptors()))
        sizes.append((_own_memory(), _descriptors()))
        tree.close()
    grew, more = sizes[-1][0] - sizes[0][0], sizes[-1][1] - sizes[0][1]
    yield Finding(
        f"{taken.looks:,} looks at 4 processes, a day by the clock",
        f"{grew / MIB:+.1f} MiB, {more:+} descriptors since a tenth of it",
        grew < MIB and more <= 0,
    )


def next_or_stop(taken: TreeWatcher) -> bool:
    """Look once more; say whether the day is over."""
    try:
        taken.look()
    except StopIteration:
        return True
    return False


def crowd() -> Iterator[Finding]:
    """A tree of 5,000 processes."""
    count = 5000
    forks = (
        "import os, time\n"
        f"for _ in range({count}):\n"
        " if os.fork() == 0:\n  time.sleep(60); os._exit(0)\n"
        "time.sleep(3)\nos.killpg(0, 9)"
    )
    with tempfile.TemporaryDirectory() as folder:
        record = _record(folder, ["setsid", "--wait", sys.executable, "-c", forks])
    usage = record.usage
    assert usage is not None
    assert record.monitor is not None
    cost = (record.monitor.cpu_time or 0) / usage.wall_time
    yield Finding(
        f"a tree of {count:,} processes",
        f"{usage.processes:,} seen in {usage.wall_time:.0f} s, "
        f"{100 * cost:.1f} % of a core, {(record.monitor.memory or 0) / MIB:.0f} MiB",
        (usage.processes or 0) >= count,
    )


def progress() -> Iterator[Finding]:
    """A GiB of progress bars into a file that is read along."""
    bars = (
        "import sys\n"
        "line = '\\r 42%|####      | {}/1000 [00:10<00:13, 99.1it/s]' * 50\n"
        "n = 0\nwhile n < 1 << 30:\n n += sys.stdout.write(line.format(*[n >> 20]*50))"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        with out.open("wb") as file:
            record = _record(folder, [sys.executable, "-c", bars], stdout=file)
        size = out.stat().st_size
    assert record.monitor is not None
    assert record.usage is not None
    share = (record.monitor.cpu_time or 0) / record.usage.wall_time
    yield Finding(
        f"{size / (1 << 30):.2f} GiB of progress bars in a file, read along",
        f"exit {record.exit_code}, weigh took {100 * share:.1f} % of a core, "
        f"{(record.monitor.memory or 0) / MIB:.0f} MiB",
        record.exit_code == 0 and size >= 1 << 30,
    )


def writers() -> Iterator[Finding]:
    """Hundreds of records written at once into one store."""
    runs, at_once = 400, 16
    with tempfile.TemporaryDirectory() as folder:
        line = " ".join([*WEIGH, "run", "-q", "--", "true"])
        subprocess.run(
            ["bash", "-c", f"seq {runs} | xargs -P{at_once} -I% {line}"],
            cwd=folder,
            env={**os.environ, "WEIGH_DIR": f"{folder}/store"},
            check=True,
        )
        index = read_index(f"{folder}/store")
        whole = sum(1 for entry in index.entries if read_record(entry).exit_code == 0)
    yield Finding(
        f"{runs} runs, {at_once} at a time, into one store",
        f"{whole} whole records, {index.torn} torn",
        whole == runs and index.torn == 0,
    )


def clock() -> Iterator[Finding]:
    """The clock set back an hour in the middle of a run."""
    with tempfile.TemporaryDirectory() as folder:
        env = {"LD_PRELOAD": _library("clock")}
        record = _record(folder, ["sleep", "1"], env=env)
    wall = record.usage.wall_time if record.usage else -1.0
    yield Finding(
        "the clock set back by an hour while a job runs",
        f"{record.state}, {wall:.2f} s of wall time",
        record.state == "COMPLETED" and 1 <= wall < 10,
    )


def disk() -> Iterator[Finding]:
    """A file system that fails at the n-th write, for each n."""
    library = _library("disk")
    lost, bad, tried = 0, [], 0
    for name, number in (("EIO", 5), ("ESTALE", 116), ("ENOSPC", 28)):
        for at in range(1, 9):
            with tempfile.TemporaryDirectory() as folder:
                env = {"FAIL_AT": str(at), "FAIL_WITH": str(number)}
                done = subprocess.run(
                    [*WEIGH, "run", "--", "sh", "-c", "echo out; sleep .3; exit 3"],
                    cwd=folder,
                    env={**os.environ, **env, "LD_PRELOAD": library},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            tried += 1
            if (done.returncode, done.stdout) != (3, "out\n"):
                bad.append(f"{name} at {at}: exit {done.returncode}")
            if "Traceback" in done.stderr:
                bad.append(f"{name} at {at}: a traceback")
            lost += "not kept" in done.stderr
    yield Finding(
        f"EIO, ESTALE, ENOSPC at the 1st to 8th write below .weigh ({tried} runs)",
        "; ".join(bad[:3])
        or f"every job's output and exit code kept; {lost} records "
        "could not be, and it was said",
        not bad,
    )


def strangers() -> Iterator[Finding]:
    """Somebody else's store and planted links are not followed."""
    if os.geteuid() != 0:
        yield Finding("somebody else's store", "not tried: needs root", holds=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        store = Path(folder, ".weigh")
        store.mkdir()
        os.chown(store, 12345, 12345)
        work = Path(folder, "work")
        work.mkdir()
        subprocess.run([*WEIGH, "run", "-q", "--", "true"], cwd=work, check=True)
        own = work / ".weigh"
        files = [path for path in own.rglob("*") if path.is_file()]
        modes = {oct(path.stat().st_mode & 0o777) for path in files}
        outside = list(store.iterdir())
    yield Finding(
        "a store that belongs to somebody else, further up",
        f"passed over; own files {', '.join(sorted(modes))}",
        own.name == ".weigh" and not outside and modes <= {"0o600", "0o644"},
    )


def _record(
    folder: str,
    argv: list[str],
    *,
    env: dict[str, str] | None = None,
    **streams: object,
) -> Record:
    path = Path(folder, "record.json")
    subprocess.run(
        [*WEIGH, "run", "-q", "-o", str(path), "--", *argv],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": f"{folder}/store", **(env or {})},
        check=False,
        **streams,  # type: ignore[call-overload]
    )
    return msgspec.json.decode(path.read_bytes(), type=Record)


class _started:  # noqa: N801 - used as a with
    """A shell line in a session of its own, killed at the end."""

    def __init__(self, line: str) -> None:
        self._line = line

    def __enter__(self) -> subprocess.Popen[bytes]:
        self._job = subprocess.Popen(["bash", "-c", self._line], start_new_session=True)
        return self._job

    def __exit__(self, *_: object) -> None:
        os.killpg(self._job.pid, signal.SIGKILL)
        self._job.wait()


def _library(name: str) -> str:
    """Compile one of the C files here; give the path of what to preload."""
    out = os.path.join(tempfile.mkdtemp(), f"{name}.so")
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", out, source, "-ldl"], check=True)
    return out


def _own_memory() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


ALL: dict[str, Callable[[], Iterator[Finding]]] = {
    one.__name__: one
    for one in (sampler, crowd, progress, writers, clock, disk, strangers)
}


def main(names: list[str]) -> int:
    """Do all, or what is named; give 1 where a promise was not kept."""
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(
            f"no such soak: {unknown[0]} (there are {', '.join(ALL)})", file=sys.stderr
        )
        return 2
    system, release = platform.system(), platform.release()
    print(f"{system} {release}, Python {platform.python_version()}\n")
    print("| what was done | what was found | |\n|---|---|---|")
    holds = True
    for name in names or list(ALL):
        for finding in ALL[name]():
            word = "holds" if finding.holds else "**does not hold**"
            print(f"| {finding.done} | {finding.found} | {word} |", flush=True)
            holds &= finding.holds
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
