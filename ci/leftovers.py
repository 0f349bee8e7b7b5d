#!/usr/bin/env python3
"""Run a command, and fail if processes that it started are left when it has ended.

    ci/leftovers.py python -m pytest

They have WEIGH_LEFTOVERS_PATIENCE seconds to end. Those that stay are listed, each with
the test that started it, and killed. As a subreaper (prctl(2)) this process becomes the
parent of every orphan, so that no process is missed, whatever its session and
environment; where there is no /proc the command runs as it is.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LEFT = 9  # the exit code; pytest has 0 to 5
PATIENCE = float(os.environ.get("WEIGH_LEFTOVERS_PATIENCE", "30"))  # seconds
_PR_SET_CHILD_SUBREAPER = 36
_TEST = b"PYTEST_CURRENT_TEST="


def main(command: list[str]) -> int:
    """Return the command's exit code, or LEFT if it was 0 and processes are left."""
    if not Path("/proc/self/stat").exists():
        return subprocess.call(command)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = run(command)
    end = time.monotonic() + PATIENCE
    while (left := descendants(os.getpid())) and time.monotonic() < end:
        reap()
        time.sleep(0.1)
    if not left:
        return code
    sys.stderr.write(f"leftovers: {len(left)} processes were left running:\n")
    sys.stderr.writelines(f"    {described(pid)}\n" for pid in left)
    while left := descendants(os.getpid()):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
    reap()
    return code or LEFT


def run(command: list[str]) -> int:
    """Run the command, and wait for orphans while it runs."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the command gets it, too, and ends
    process = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    while True:
        pid, status = os.wait()
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def reap() -> None:
    """Wait for the orphans that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes below *pid* that have not ended."""
    found = []
    for child in children(pid):
        found += [*([child] if is_running(child) else []), *descendants(child)]
    return found


def children(pid: int) -> Iterator[int]:
    """Yield the ids of the children of all threads of a process."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, path.read_text().split())


def is_running(pid: int) -> bool:
    """Return whether a process has not ended: a zombie has."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat.rpartition(b")")[2].split()[0] not in b"ZX"
    return False


def described(pid: int) -> str:
    """Return a process's id, its command and the test that started it."""
    words = test = b""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        test = next((one for one in environment if one.startswith(_TEST)), b"")
    name = test.removeprefix(_TEST).decode(errors="replace") or "no test is named"
    return f"{pid} {words.decode(errors='replace')[:120]!r} ({name})"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
