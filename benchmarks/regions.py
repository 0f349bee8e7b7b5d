"""What regions cost a program: ``python benchmarks/regions.py`` prints a table.

Each figure is the quickest of several rounds; the two loops take turns, so that what
else the machine does meets both.
"""

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable

os.environ["WEIGH_REPORT"] = "0"
BATCH = 1e-3
_ROUNDS = 9
_MANY = 2000
_PROBE = "import time; a = time.process_time(); {}; print(time.process_time() - a)"


def main() -> None:
    """Measure, and print a Markdown table."""
    if len(sys.argv) > 1:
        print(regions_cost() * 1e6)
        return
    rows = [
        ("a phase, entered and left", f"{regions_cost() * 1e6:.1f} us", "50 us"),
        ("the same with 1 GiB resident", f"{with_ballast() * 1e6:.1f} us", "50 us"),
        ("the same under `weigh run`", f"{under_a_wrapper():.1f} us", "50 us"),
        ("a call of a `@measured` function", f"{call_cost() * 1e6:.1f} us", "50 us"),
        ("an item of `batches`", f"{item_cost() * 1e9:.0f} ns", ""),
        ("a loop of 1 ms batches", f"{loop_cost():+.2%}", "+1 %"),
        ("`import weigh`", f"{import_cost('import weigh') * 1e3:.1f} ms", ""),
        (
            "`import weigh`, first phase",
            f"{import_cost('import weigh; weigh.phase') * 1e3:.1f} ms",
            "",
        ),
    ]
    print(f"Python {platform.python_version()}, {platform.system()}", end=" ")
    print(f"{platform.release()}, {os.cpu_count()} CPUs, no GPU read\n")
    print("| what | costs | at most |\n|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def quickest(measure: Callable[[], float], rounds: int = _ROUNDS) -> float:
    """Give the least of several measurements."""
    return min(measure() for _ in range(rounds))


def regions_cost() -> float:
    """Give the seconds of a phase around nothing."""
    import weigh  # noqa: PLC0415 - its import is measured elsewhere

    def enter_and_leave() -> float:
        began = time.perf_counter()
        for _ in range(_MANY):
            with weigh.phase("nothing"):
                pass
        return (time.perf_counter() - began) / _MANY

    return quickest(enter_and_leave)


def with_ballast() -> float:
    """Give the same in a process that holds a lot."""
    ballast = bytearray(1 << 30)
    cost = regions_cost()
    del ballast
    return cost


def under_a_wrapper() -> float:
    """Give the same, in microseconds, where a wrapper is told of it."""
    with tempfile.NamedTemporaryFile() as channel:
        done = subprocess.run(
            [sys.executable, __file__, "alone"],
            env={**os.environ, "WEIGH_CHANNEL": channel.name},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(done.stdout)


def call_cost() -> float:
    """Give the seconds that a decorated call takes more."""
    import weigh  # noqa: PLC0415 - as above

    @weigh.measured
    def nothing() -> None:
        return

    def call() -> float:
        began = time.perf_counter()
        for _ in range(_MANY):
            nothing()
        return (time.perf_counter() - began) / _MANY

    return quickest(call)


def item_cost() -> float:
    """Give the seconds that an item takes more in a loop that does nothing."""
    import weigh  # noqa: PLC0415 - as above

    items = [[1, 2, 3]] * 100_000

    def loop(over: Iterable[object]) -> float:
        began = time.perf_counter()
        for _ in over:
            pass
        return (time.perf_counter() - began) / len(items)

    timed = quickest(lambda: loop(weigh.batches(items, size=3)), 5)
    return timed - quickest(lambda: loop(items), 5)


def loop_cost() -> float:
    """Give the share of time that a loop of 1 ms batches takes more."""
    import weigh  # noqa: PLC0415 - as above

    items = [[1, 2, 3]] * 100

    def loop(over: Iterable[object]) -> float:
        began = time.perf_counter()
        for _ in over:
            work()
        return time.perf_counter() - began

    pairs = [
        (loop(items), loop(weigh.batches(items, size=3))) for _ in range(2 * _ROUNDS)
    ]
    bare = min(bare for bare, _ in pairs)
    return min(timed for _, timed in pairs) / bare - 1


def work() -> None:
    """Be busy for as long as a batch takes, however fast the machine is just now."""
    until = time.perf_counter() + BATCH
    while time.perf_counter() < until:
        pass


def import_cost(statement: str) -> float:
    """Give the CPU seconds of a statement in a new process."""

    def start() -> float:
        argv = [sys.executable, "-c", _PROBE.format(statement)]
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
        return float(done.stdout)

    return quickest(start, 5)


if __name__ == "__main__":
    main()
