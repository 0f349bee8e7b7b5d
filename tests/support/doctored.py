"""A /proc made of plain files, for what no live kernel can be made to say."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

KIB = 1024


def status_text(  # noqa: PLR0913 - any line may matter
    *,
    name: str = "job",
    resident: int = 30,
    peak: int | None = None,
    groups: str = "",
    page_tables: int = 0,
    threads: int = 1,
) -> bytes:
    """Write a status as Linux 6 does; sizes in kB, a third of each kind."""
    third = resident // 3
    return (
        f"Name:\t{name}\nUmask:\t0022\nState:\tR (running)\nTgid:\t7\nNgid:\t0\n"
        f"Pid:\t7\nPPid:\t1\nGroups:\t{groups} \nNStgid:\t7\n"
        f"VmPeak:\t    9000 kB\nVmSize:\t    8000 kB\nVmLck:\t       0 kB\n"
        f"VmPin:\t       0 kB\nVmHWM:\t    {peak or resident} kB\n"
        f"VmRSS:\t    {resident} kB\nRssAnon:\t      {third} kB\n"
        f"RssFile:\t    {third} kB\nRssShmem:\t       {third} kB\n"
        "VmData:\t     500 kB\nVmStk:\t     132 kB\nVmExe:\t       4 kB\n"
        f"VmLib:\t    1700 kB\nVmPTE:\t      {page_tables} kB\n"
        f"VmSwap:\t       0 kB\nThreads:\t{threads}\n"
    ).encode()


ZOMBIE = b"Name:\tjob\nState:\tZ (zombie)\nTgid:\t7\nPid:\t7\nPPid:\t1\nThreads:\t1\n"


def stat_text(
    name: str = "job",
    *,
    parent: int = 1,
    state: str = "S",
    ticks: Sequence[int] = (100, 50, 20, 30),
    stack: int = 140700000000000,
) -> bytes:
    """Write a stat line with utime, stime, cutime and cstime as *ticks*."""
    fields: list[object] = [0] * 50
    fields[0], fields[1] = state, parent
    fields[7], fields[11:15], fields[19] = 321, ticks, 4567
    fields[23], fields[25] = 94000000000000, stack
    return f"7 ({name}) {' '.join(map(str, fields))}\n".encode()


class DoctoredProc:
    """Processes as folders under *root*; change one by writing it again."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.last_pid(1)

    def last_pid(self, pid: int) -> None:
        """Say which process the machine started last."""
        self.write("loadavg", f"0.30 0.23 0.24 1/99 {pid}\n".encode())

    def process(
        self,
        pid: int,
        children: Sequence[int] = (),
        *,
        status: bytes | None = None,
        stat: bytes | None = None,
    ) -> None:
        """Write one process, with one thread."""
        self.write(f"{pid}/status", status or status_text())
        self.write(f"{pid}/stat", stat or stat_text())
        self.thread(pid, pid, children)

    def family(self, children: Mapping[int, Sequence[int]]) -> None:
        """Write processes with their children."""
        for pid, own in children.items():
            self.process(pid, own)

    def thread(self, pid: int, tid: int, children: Sequence[int] = ()) -> None:
        """Write one thread of a process."""
        text = "".join(f"{child} " for child in children)
        self.write(f"{pid}/task/{tid}/children", text.encode())

    def write(self, path: str, content: bytes) -> None:
        """Write any file; *path* may name folders that do not exist yet."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    def remove(self, path: str) -> None:
        """Take a file away."""
        os.unlink(self.root / path)
