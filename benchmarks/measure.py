"""Set weigh beside its peers: how right each is, and what it costs.

    python benchmarks/measure.py [--quick] [--only peak,cost] [-o FILE.md]

Prints Markdown. The jobs are those of tests/laws/ground_truth: they know their truth.
`truths` and `held` need a C compiler, their columns "in a group" and `oracle` root.
As root everything measured runs as nobody, because privilege changes what can be read.
Ratios are the worst of three runs, costs the median of several, of one machine at one
time: close to a limit they differ from run to run.
"""

import argparse
import compileall
import importlib.util
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from compiled import BUSY, MemoryGroup, compiled, load, memory_group, remove
from process import Finished, User, cpu_time, ordinary_user, resident
from tools import MIB, Reading, Tool, find_tools

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = os.path.join(ROOT, "tests", "laws", "ground_truth", "programs.py")
PEAK_KINDS = {
    "a": "ramp to 1 GiB",
    "b": "512 MiB for 50 ms",
    "c": "30 children in a row, 96 MiB each",
    "c2": "one child, 256 MiB for 50 ms",
    "d": "4 forks share 1 GiB copy-on-write",
    "e": "2 processes map 1 GiB of /dev/shm",
    "e2": "2 processes touch a half of it each",
    "f": "daemon of 496 MiB, leader waits",
    "f2": "daemon of 496 MiB, leader gone",
    "k": "4 children of 256 MiB at once",
}
SETTLED = 5  # seconds until a tool has loaded and met what it watches
WORKING = (2, 10, 50, 100)  # processes of a tree at work
LONG = "1.5"  # seconds a peak lasts if it is not short by nature: fair to 1 Hz
NINE = [kind for kind in PEAK_KINDS if kind != "e2"]  # e2 came later: beside the count
NEAR = 0.06  # how far from the truth a value may be
KNOWN = 0.01  # how well the truth is known, and half a MiB
# no truth to hit: what only a cgroup shows, and what only a bound can cover
SHOWN_ONLY = ("pipes", "saw3")
OTHER_KINDS = {
    "cpu": ("CPU time, 100 short children", "cpu_time"),
    "nowait": ("CPU time, children never waited for", "cpu_time"),
    "writes": ("bytes written", "write_bytes"),
}


class Bench:
    """The tools, the user they run as, and a folder that this user can write."""

    def __init__(
        self,
        tools: Sequence[Tool],
        user: User,
        folder: str,
        options: argparse.Namespace,
    ) -> None:
        self.runs = 1 if options.quick else options.runs
        self.kinds = options.kinds.split(",") if options.kinds else None
        self.tools, self.user, self.folder = tools, user, folder
        self.quick = options.quick
        self.scale = "0.25" if self.quick else "1"
        self._folders = (f"{folder}/{number}" for number in itertools.count())

    def job(self, kind: str, *options: str) -> list[str]:
        """Return the command of a ground-truth program."""
        python = os.path.realpath(sys.executable)
        return [python, PROGRAMS, kind, "--scale", self.scale, *options]

    def new_folder(self) -> str:
        """Make an empty folder for one run."""
        return self.user.make_folder(next(self._folders))

    def measure(
        self, tool: Tool, kind: str, *options: str
    ) -> tuple[Reading, dict[str, Any]]:
        """Run one kind under one tool; return what it says beside the truth."""
        to = self.new_folder()
        job = self.job(kind, "--truth", f"{to}/truth.json", *options)
        self.user.run(tool.argv(job, to), to)
        truth = wait_for_truth(f"{to}/truth.json")
        return answer(tool, to), truth

    def truth(
        self, tool: Tool, program: str, kind: str, group: MemoryGroup | None = None
    ) -> tuple[Reading, int]:
        """Run a compiled program under one tool; return what it says, and the truth."""
        to = self.new_folder()
        job = [program, kind, "--truth", f"{to}/truth.json", "--scale", self.scale]
        with group.entered() if group else nullcontext():
            started = self.user.start(tool.argv([*job, "--folder", to], to), to)
        started.wait()
        return answer(tool, to), wait_for_truth(f"{to}/truth.json")["peak_memory"]

    def repeat(
        self, tool: Tool, kind: str, *options: str
    ) -> list[tuple[Reading, dict[str, Any]]]:
        """Measure a kind a few times, or once when quick."""
        return [self.measure(tool, kind, *options) for _ in range(self.runs)]

    def cost(self, argv: Sequence[str]) -> Finished:
        """Run a command only for what it costs."""
        return self.user.run(argv, self.new_folder())


# One function a table; each yields lines of Markdown


def peak(bench: Bench) -> Iterator[str]:
    """Print peak memory reported / true, each kind under each tool."""
    names = [tool.name for tool in bench.tools]
    yield from heading("Peak memory, reported / true (the worst run)", ["", *names])
    near = dict.fromkeys(names, 0)
    held = total = 0
    for kind, what in PEAK_KINDS.items():
        cells = []
        for tool in bench.tools:
            say(f"{kind} under {tool.name}")
            runs = bench.repeat(tool, kind, "--seconds", LONG)
            ratio = worst(ratios(runs, "memory", "peak_memory"))
            cells.append(two_digits(ratio))
            if kind in NINE and ratio is not None:
                near[tool.name] += abs(ratio - 1) <= 0.05
            for reading, truth in runs:
                if reading.low is not None and reading.high is not None:
                    total += 1
                    true = truth["peak_memory"]
                    held += reading.low * 0.99 <= true <= reading.high * 1.01
        yield row([f"{kind}: {what}", *cells])
    yield row(["**within 5 %, of the nine without e2**", *near.values()])
    yield ""
    yield f"weigh's bounds held the truth (known to 1 %) in {held} of {total} runs."


def truths(bench: Bench) -> Iterator[str]:
    """Print weigh's peaks of the compiled programs, quiet, busy and in a cgroup."""
    yield from conditions(bench, "truths")


def held(bench: Bench) -> Iterator[str]:
    """Print the same for the programs that were held back."""
    yield from conditions(bench, "held_back")


def conditions(bench: Bench, source: str) -> Iterator[str]:
    """Run each compiled program under weigh in each condition."""
    weigh = next(tool for tool in bench.tools if tool.name == "weigh")
    program, kinds = compiled(source, bench.folder)
    if bench.kinds:
        kinds = {kind: kinds[kind] for kind in bench.kinds if kind in kinds}
    columns = ["quiet", f"{BUSY} busy processes"]
    group = memory_group()
    if group:
        remove(group)
        columns.append("in a group of its own")
    yield from heading(
        f"Peak memory by weigh / true ({source}; the worst of {bench.runs} runs)",
        ["", "MiB", *columns],
    )
    right = dict.fromkeys(columns, 0)
    for kind, what in kinds.items():
        cells, size = [], 0
        for column in columns:
            say(f"{kind}: {column}")
            runs = [
                in_condition(bench, weigh, program, kind, column)
                for _ in range(bench.runs)
            ]
            size = runs[0][1]
            cells.append(worst_run(runs))
            if kind not in SHOWN_ONLY:
                right[column] += all(is_right(*run) for run in runs)
        yield row([f"{kind}: {what}", f"{size / MIB:.0f}", *cells])
    count = sum(kind not in SHOWN_ONLY for kind in kinds)
    totals = (f"{number} of {count}" for number in right.values())
    yield row([f"**within {NEAR:.0%}, and the bounds hold**", "", *totals])


def in_condition(
    bench: Bench, tool: Tool, program: str, kind: str, column: str
) -> tuple[Reading, int]:
    """Run one program once, as the column's name demands."""
    with load(BUSY if "busy" in column else 0):
        group = memory_group() if "group" in column else None
        try:
            return bench.truth(tool, program, kind, group)
        finally:
            if group:
                remove(group)


def is_right(reading: Reading, truth: int) -> bool:
    """Return whether value and bounds are as they should be."""
    if reading.memory is None or reading.low is None or reading.high is None:
        return False
    slack = KNOWN * truth + MIB / 2
    holds = reading.low - slack <= truth <= reading.high + slack
    return holds and abs(reading.memory / truth - 1) <= NEAR


def worst_run(runs: Sequence[tuple[Reading, int]]) -> str:
    """Write the worst ratio with its bounds; bold if a run was not right."""
    known = [run for run in runs if run[0].memory is not None]
    if not known:
        return "**-**"
    # a wrong run before one that is only farther off
    worst_of = max(
        known, key=lambda r: (not is_right(*r), abs((r[0].memory or 0) / r[1] - 1))
    )
    value, low, high = (
        (part or 0) / worst_of[1]
        for part in (worst_of[0].memory, worst_of[0].low, worst_of[0].high)
    )
    text = f"{value:.2f}"
    right = sum(is_right(*run) for run in runs)
    if right < len(runs):
        text = f"**{text}** ({right} of {len(runs)} right)"
    return f"{text} [{low:.2f}, {high:.2f}]"


def peers(bench: Bench) -> Iterator[str]:
    """Print the compiled programs under every tool, one run each."""
    program, kinds = compiled("truths", bench.folder)
    names = [tool.name for tool in bench.tools]
    yield from heading("Peak memory reported / true, one run", ["", *names])
    near = dict.fromkeys(names, 0)
    for kind, what in kinds.items():
        cells = []
        for tool in bench.tools:
            say(f"{kind} under {tool.name}")
            reading, truth = bench.truth(tool, program, kind)
            ratio = reading.memory / truth if reading.memory is not None else None
            near[tool.name] += ratio is not None and abs(ratio - 1) <= NEAR
            cells.append(two_digits(ratio))
        yield row([f"{kind}: {what}", *cells])
    yield row([f"**within {NEAR:.0%}, of {len(kinds)}**", *near.values()])


def oracle(bench: Bench) -> Iterator[str]:
    """Print what the programs say beside what the kernel counts in a cgroup."""
    yield from heading("The truth / the kernel's own count", ["", "MiB", "ratio"])
    bare = Tool("bare", lambda argv, _: argv, lambda _: Reading())
    for source in ("truths", "held_back"):
        program, kinds = compiled(source, bench.folder)
        for kind in kinds:
            group = memory_group()
            if group is None:
                say("no memory cgroup can be made: run it as root")
                return
            _, truth = bench.truth(bare, program, kind, group)
            cells = [f"{truth / MIB:.0f}", f"{truth / group.peak():.3f}"]
            remove(group)
            # the kernel counts a file's cached pages, mapped or not
            note = " (with page cache)" if kind.startswith("file_") else ""
            yield row([f"{kind}{note}", *cells])


def other(bench: Bench) -> Iterator[str]:
    """Print CPU time and bytes written, reported / true."""
    names = [tool.name for tool in bench.tools]
    yield from heading(
        "CPU time and writes, reported / true (the worst run)", ["", *names]
    )
    for kind, (what, key) in OTHER_KINDS.items():
        options = ["--file", f"{bench.folder}/written"] if kind == "writes" else []
        cells = []
        for tool in bench.tools:
            say(f"{kind} under {tool.name}")
            runs = bench.repeat(tool, kind, *options)
            cells.append(two_digits(worst(ratios(runs, key, key)), digits=3))
        yield row([what, *cells])


def crowd(bench: Bench) -> Iterator[str]:
    """Print how far a reading moves when three copies of the job run beside it."""
    options = ["--file", f"{bench.folder}/mapped", "--seconds", LONG]
    yield from heading(
        "The same job beside three copies of itself, reading / reading alone",
        ["", *(tool.name for tool in bench.tools)],
    )
    cells = []
    for tool in bench.tools:
        say(f"alone and beside copies under {tool.name}")
        alone = bench.measure(tool, "m", *options)[0].memory
        beside = crowded(bench, tool, options)
        moved = [memory / alone for memory in beside if memory and alone]
        cells.append(two_digits(worst(moved), digits=3))
    yield row(["2 processes, one mapped file: the worst of 4", *cells])


def crowded(bench: Bench, tool: Tool, options: Sequence[str]) -> list[float | None]:
    """Measure four copies at once."""
    folders = [bench.new_folder() for _ in range(4)]
    started = [
        bench.user.start(tool.argv(bench.job("m", *options), to), to) for to in folders
    ]
    for process in started:
        process.wait()
    return [answer(tool, to).memory for to in folders]


def cost(bench: Bench) -> Iterator[str]:
    """Print what each tool adds to a job."""
    yield from heading("Cost", ["", *(tool.name for tool in bench.tools)])
    starts = startup(bench)
    yield row(["start-up, CPU ms more than `true`", *(f"{ms:.0f}" for ms in starts)])
    say("idle tree")
    loop = bare_loop(bench)
    steady = [watch(bench, tool, ["tree10"]) for tool in bench.tools]
    yield row(
        ["10 idle processes, % of a core", *(f"{share:.2f}" for share, _ in steady)]
    )
    yield row(
        [
            f"the same / a Python loop that wakes 20 times a second ({loop:.2f} %)",
            *(f"{share / loop:.2f}" for share, _ in steady),
        ]
    )
    for count in WORKING:
        say(f"{count} working processes")
        job = ["work", "--processes", str(count)]
        shares = [watch(bench, tool, job)[0] for tool in bench.tools]
        yield row(
            [
                f"{count} working processes, % of a core",
                *(f"{share:.2f}" for share in shares),
            ]
        )
    yield row(
        ["own memory (resident), MiB", *(f"{own / MIB:.1f}" for _, own in steady)]
    )
    yield row(
        ["CPU of 1,500 fork + exit / bare", *(f"{r:.2f}" for r in fork_heavy(bench))]
    )


def stall(bench: Bench) -> Iterator[str]:
    """Print the longest wait that each tool's looks add to a job's calls of mmap."""
    yield from heading("Stall", ["", *(tool.name for tool in bench.tools)])
    say("stall")
    bare = Tool("bare", lambda argv, _: argv, lambda _: Reading())
    seconds = "3" if bench.quick else "12"
    longest: list[list[float]] = [[] for _ in range(1 + len(bench.tools))]
    for _ in range(bench.runs):
        for tool, waits in zip((bare, *bench.tools), longest, strict=True):
            _, truth = bench.measure(tool, "mapper", "--seconds", seconds)
            waits.append(truth["stall"])
    pairs = [
        [under - alone for under, alone in zip(waits, longest[0], strict=True)]
        for waits in longest[1:]
    ]
    name = f"longest mmap of a family of 2 GiB, ms above bare ({middle(longest[0])})"
    yield row([name, *map(middle, pairs)])


def middle(values: Sequence[float]) -> str:
    """Write the median, and the least and the most."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def startup(bench: Bench) -> list[float]:
    """Return CPU milliseconds of each tool around `true`, less those of `true`."""
    say("start-up")
    runs = 5 if bench.quick else 15
    bare, *costs = interleaved(bench, ["true"], runs=runs)
    return [1000 * (seconds - bare) for seconds in costs]


def fork_heavy(bench: Bench) -> list[float]:
    """Return CPU of a job that only forks, under each tool and bare, as ratios."""
    say("1,500 forks")
    bare, *costs = interleaved(bench, bench.job("spawn1500"), runs=2 * bench.runs - 1)
    return [seconds / bare for seconds in costs]


def interleaved(bench: Bench, job: Sequence[str], *, runs: int) -> list[float]:
    """Return median CPU seconds bare, then under each tool, taking turns."""
    seconds: list[list[float]] = [[] for _ in range(1 + len(bench.tools))]
    for _ in range(runs):
        seconds[0].append(bench.cost(job).cpu)
        for tool, times in zip(bench.tools, seconds[1:], strict=True):
            to = bench.new_folder()
            times.append(bench.user.run(tool.argv(list(job), to), to).cpu)
    return [statistics.median(times) for times in seconds]


def watch(bench: Bench, tool: Tool, job: Sequence[str]) -> tuple[float, float]:
    """Return the % of a core that a tool takes to watch a job, and its memory.

    Observed from outside, between two moments when no process starts or ends.
    """
    seconds = 3 if bench.quick else 8
    shares, own = [], []
    for _ in range(bench.runs):
        to = bench.new_folder()
        options = [*job, "--seconds", str(seconds + SETTLED + 1)]
        process = bench.user.start(tool.argv(bench.job(*options), to), to)
        time.sleep(SETTLED)
        shares.append(share_of_a_core(process.pid, seconds))
        own.append(resident(process.pid))
        process.wait()
    return statistics.median(shares), statistics.median(own)


def bare_loop(bench: Bench) -> float:
    """Return the % of a core of a Python process that wakes 20 times a second."""
    seconds = 3 if bench.quick else 8
    code = (
        f"import time\nfor _ in range({20 * (seconds + SETTLED + 1)}): time.sleep(.05)"
    )
    shares = []
    for _ in range(bench.runs):
        python = os.path.realpath(sys.executable)
        process = bench.user.start([python, "-c", code], bench.new_folder())
        time.sleep(SETTLED)
        shares.append(share_of_a_core(process.pid, seconds))
        process.wait()
    return statistics.median(shares)


def share_of_a_core(pid: int, seconds: float) -> float:
    """Return the CPU time of a process in the next *seconds*, in %."""
    before = cpu_time(pid)
    time.sleep(seconds)
    return 100 * (cpu_time(pid) - before) / seconds


def floor(bench: Bench) -> Iterator[str]:
    """Print the least that a job's own getrusage can say when weigh launches it."""
    argv = own_maxrss()
    weigh = next((tool for tool in bench.tools if tool.name == "weigh"), None)
    if weigh is None or argv is None:
        return
    to = bench.new_folder()
    said = bench.user.run(weigh.argv(argv, to), to).stdout.split()
    maxrss, peak = (int(number) * 1024 / MIB for number in said)
    yield from heading("A job's own ru_maxrss under weigh run, MiB", ["", "MiB"])
    yield row(["ru_maxrss of a small perl", f"{maxrss:.1f}"])
    yield row(["its true peak (VmHWM)", f"{peak:.1f}"])


def own_maxrss() -> list[str] | None:
    """Return a small program that prints its own ru_maxrss and VmHWM in KiB."""
    call = {"x86_64": 98, "aarch64": 165}.get(platform.machine())
    if call is None or not os.access("/usr/bin/perl", os.X_OK):
        return None
    code = f"""
        my $usage = "\\0" x 144;
        syscall({call}, 0, $usage);
        open(my $status, "<", "/proc/self/status");
        my ($peak) = join("", <$status>) =~ /VmHWM:\\s+(\\d+)/;
        print unpack("x32 q", $usage), " $peak";
    """
    return ["/usr/bin/perl", "-e", code]


TABLES: dict[str, Callable[[Bench], Iterator[str]]] = {
    "peak": peak,
    "truths": truths,
    "held": held,
    "peers": peers,
    "oracle": oracle,
    "other": other,
    "crowd": crowd,
    "cost": cost,
    "stall": stall,
    "floor": floor,
}


# Around the tables


def main() -> int:
    """Measure what is asked for and print it as it comes."""
    parser = argparse.ArgumentParser(description="Set weigh beside its peers.")
    parser.add_argument("--quick", action="store_true", help="small and once")
    parser.add_argument("--runs", type=int, default=3, help="of each job")
    parser.add_argument("--kinds", help="only these of truths and held")
    parser.add_argument("--only", help=f"some of {','.join(TABLES)}")
    parser.add_argument("--peers", default=".bench-venv/bin", help="where they are")
    parser.add_argument("-o", "--output", help="write the tables there too")
    options = parser.parse_args()
    wanted = options.only.split(",") if options.only else list(TABLES)
    if unknown := set(wanted) - set(TABLES):
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(TABLES)}")
    tools, missing = find_tools(options.peers)
    for line in missing:
        say(line)
    with prepared(tools, options) as bench:
        lines = printed(report(bench, wanted))
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    return 0


@contextmanager
def prepared(tools: Sequence[Tool], options: argparse.Namespace) -> Iterator[Bench]:
    """Make ready a folder on disk, an ordinary user, and weigh's byte code."""
    package = importlib.util.find_spec("weigh")
    if package and package.submodule_search_locations:
        # nobody cannot write it, and would compile all of weigh at every start
        compileall.compile_dir(package.submodule_search_locations[0], quiet=2)
    # /tmp may be in memory, where writing is not counted
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        reached = [tool.argv([], folder)[0] for tool in tools]
        user = ordinary_user(folder, [os.path.realpath(sys.executable), *reached])
        if user.note:
            say(user.note)
        yield Bench(tools, user, folder, options)


def report(bench: Bench, wanted: Iterable[str]) -> Iterator[str]:
    """Yield the machine, then the tables."""
    yield f"Measured on {machine()}, as {bench.user.name}."
    if bench.quick:
        yield "Quick: small jobs, once each; hard on tools that look once a second."
    for name in wanted:
        yield from TABLES[name](bench)


def machine() -> str:
    """Describe this machine in one line."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.split(":")[1].strip() for line in file if "model name" in line]
    return (
        f"{models[0] if models else platform.machine()}, "
        f"{len(os.sched_getaffinity(0))} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}"
    )


def answer(tool: Tool, folder: str) -> Reading:
    """Read what a tool said, or that it said nothing."""
    try:
        return tool.read(folder)
    except (OSError, LookupError, ValueError) as error:
        say(f"{tool.name} has no answer: {error!r}")
        return Reading()


def wait_for_truth(path: str) -> dict[str, Any]:
    """Read the truth, which a daemon may write after its tool has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            with open(path, encoding="utf-8") as file:
                truth: dict[str, Any] = json.load(file)
                return truth
        except (OSError, ValueError):
            time.sleep(0.05)
    sys.exit(f"no truth in {path}: the program failed")


def ratios(
    runs: Iterable[tuple[Reading, dict[str, Any]]], said: str, true: str
) -> list[float | None]:
    """Return reported / true for each run."""
    return [
        None if getattr(reading, said) is None else getattr(reading, said) / truth[true]
        for reading, truth in runs
    ]


def worst(values: Iterable[float | None]) -> float | None:
    """Return the ratio farthest from 1, of those there are."""
    known = [value for value in values if value is not None]
    return max(known, key=lambda ratio: abs(ratio - 1), default=None)


def two_digits(ratio: float | None, *, digits: int = 2) -> str:
    """Write a ratio, or a dash for a tool that does not say."""
    return "-" if ratio is None else f"{ratio:.{digits}f}"


def heading(title: str, columns: Sequence[str]) -> list[str]:
    """Return a table's title and its first two lines."""
    return ["", f"### {title}", "", row(columns), "|" + "---|" * len(columns)]


def row(cells: Iterable[object]) -> str:
    """Return one line of a table."""
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def printed(lines: Iterable[str]) -> list[str]:
    """Print lines as they come; return them all."""
    kept = []
    for line in lines:
        print(line, flush=True)
        kept.append(line)
    return kept


def say(message: str) -> None:
    """Tell on stderr how far it is."""
    print(f"bench: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
