"""Read a process tree and its storage traffic from /proc.

The tree is everything below one process: its children's ``children`` files lead to
all the rest. Descriptors stay open between looks, which is three times cheaper than
opening them again and safe when a process id is used again: the kernel answers ESRCH.

When a process is reaped, the kernel adds its traffic to its parent's. What weigh's own
/proc/self/io has beyond weigh's own threads is therefore exactly the job's traffic.
"""

import operator
import os
import time
from collections.abc import Callable

import msgspec

from weigh.process_ids import is_own_proc
from weigh.regular_file import file_head
from weigh.units import KIB, Bytes, Seconds

_STATUS_BYTES = 16384  # a thousand groups come before the memory
STAT_BYTES = 1024  # small: in the job's group, buffers of weigh count as its memory
_ENVIRONMENT_BYTES = 1 << 20
# what the kernel holds for a thread: a stack of 16 KiB, its task structure, slab
_PER_THREAD = 28 * KIB
_LONGEST_TRUST = 20  # looks; loadavg may be virtual (lxcfs) and lag behind
_CHILDREN_BYTES = 65536  # bytes per read; longer lists are read on
_NEAR_A_PAGE = 3072  # the kernel hands out seq files a page at a time
_MOST_CLOCKS = 64  # processes, the newest
_MOST_OPEN = 200  # processes with open descriptors, up to three each
_OPEN_SHARE = 4  # of the descriptors weigh may have, processes with open ones
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


def usable_proc(root: str = "/proc") -> str:
    """Return *root*, or a path without entries if it is another namespace's."""
    return root if is_own_proc(root) else os.devnull


class ProcessReading(msgspec.Struct, frozen=True, gc=False):
    """One process's memory now, and its peaks.

    ``resident = anonymous + file + shared``, in bytes; ``peak`` is VmHWM. ``kernel``
    are page tables, stacks and task structures, which a cgroup counts too. ``image``
    is the size of its code and libraries; a fork has its parent's.
    """

    pid: int
    virtual: Bytes
    virtual_peak: Bytes
    resident: Bytes
    peak: Bytes
    anonymous: Bytes
    file: Bytes
    shared: Bytes
    kernel: Bytes = 0
    image: bytes = b""
    threads: int = 1


class ProcessTimes(msgspec.Struct, frozen=True, gc=False):
    """CPU time of a process and its reaped children, its parent, its identity.

    ``faulted`` are the bytes of minor page faults, which include the copies of pages
    shared with a fork; ``faulted_by_reaped`` those of children that it waited for.
    ``stack_start`` and ``code_start`` survive a fork and change at exec, so processes
    with equal values may share memory.
    """

    parent: int  # process id
    cpu_time: Seconds
    faulted: Bytes = 0
    faulted_by_reaped: Bytes = 0
    code_start: int = 0
    stack_start: int = 0  # an address; 0: the kernel hides it
    has_ended: bool = False  # a zombie without threads

    def is_fork_of(self, other: "ProcessTimes") -> bool:
        """Return whether neither has execed since one was forked from the other.

        False where the kernel hides the stack.
        """
        return self.stack_start != 0 and (self.code_start, self.stack_start) == (
            other.code_start,
            other.stack_start,
        )


def parse_status(pid: int, text: bytes) -> ProcessReading | None:
    """Read the memory lines of /proc/PID/status; None for a zombie or kernel thread."""
    at = text.find(b"\nVmPeak:")  # a process may be named VmPeak:
    if at < 0:
        return None
    # the lines come in a fixed order, so one split finds them all
    words = text[at:].split(None, 48)
    try:
        if words[18] != b"RssAnon:" or words[39] != b"VmPTE:":  # Linux before 4.5
            return None
        threads = _count_of_threads(text)
        return ProcessReading(
            pid,
            virtual=int(words[4]) * KIB,
            virtual_peak=int(words[1]) * KIB,
            resident=int(words[16]) * KIB,
            peak=int(words[13]) * KIB,
            anonymous=int(words[19]) * KIB,
            file=int(words[22]) * KIB,
            shared=int(words[25]) * KIB,
            kernel=int(words[40]) * KIB + threads * _PER_THREAD,
            image=b"/".join(words[34:38:3]),
            threads=threads,
        )
    except (IndexError, ValueError):
        return None


def _count_of_threads(text: bytes) -> int:
    words = text[text.find(b"\nThreads:") :].split(None, 2)
    return int(words[1]) if words[:1] == [b"Threads:"] else 1


def parse_stat(text: bytes) -> ProcessTimes | None:
    """Read /proc/PID/stat: the name in parentheses may hold spaces and parentheses."""
    # the first of these words is field 3 of proc(5), the state
    words = text[text.rfind(b")") + 2 :].split()
    try:
        return ProcessTimes(
            parent=int(words[1]),
            cpu_time=sum(int(word) for word in words[11:15]) / _CLOCK_TICKS,
            faulted=int(words[7]) * _PAGE,
            code_start=int(words[23]),
            stack_start=int(words[25]),
            has_ended=words[20] == b"0" and int(words[17]) <= 1,
            faulted_by_reaped=int(words[8]) * _PAGE,
        )
    except (IndexError, ValueError, OverflowError):
        return None


def parse_children(text: bytes) -> list[int]:
    """Read the process ids of a ``children`` file."""
    return [int(word) for word in text.split() if word.isdigit()]


class _KnownProcess(msgspec.Struct):
    """A process, with those of its files that stay open: their descriptors by path."""

    pid: int
    keeps_open: bool = False
    files: dict[str, int] = {}
    is_threaded: bool = True  # until its status is read
    has_ended: bool = False
    thread: int | None = None  # one that lives, where the first has ended

    def close(self) -> None:
        """Close its files."""
        while self.files:
            os.close(self.files.popitem()[1])


_STRANGER = _KnownProcess(0)  # any other process: nothing of it stays open


class ProcTree:
    """All descendants of one process, except the children in ``excluded``.

    A process once seen stays in the tree until it ends, even if it is adopted. The tree
    is empty where *root* shows another pid namespace.
    """

    def __init__(self, top: int, root: str = "/proc") -> None:
        self.top = top
        self.excluded: frozenset[int] = frozenset()
        self.seen = 0  # processes met so far
        self.zombies = 0  # at the last reading
        self._root = usable_proc(root)
        self._known: dict[int, _KnownProcess] = {}
        self._most_open = min(_MOST_OPEN, os.sysconf("SC_OPEN_MAX") // _OPEN_SHARE)
        # the last id given by the kernel, at the last two walks
        self._last_pids = (b"", b"")
        self._first_pid = b""  # the same at the first walk
        self._trust = 0  # looks for which loadavg is believed

    def close(self) -> None:
        """Close every descriptor."""
        for known in self._known.values():
            known.close()
        self._known.clear()

    def pids(self) -> list[int]:
        """Return the processes alive at the last reading."""
        return list(self._known)

    def clocks(self) -> dict[int, Seconds]:
        """Return the CPU seconds of the newest processes, without a look at /proc."""
        clocks = {}
        for pid in list(self._known)[-_MOST_CLOCKS:]:
            try:
                # clock_getcpuclockid(3) of that process
                clocks[pid] = time.clock_gettime(~pid << 3 | 2)
            except OSError:
                continue
        return clocks

    def read(self) -> list[ProcessReading]:
        """Read every process of the tree once, without zombies."""
        self._walk()
        readings = []
        self.zombies = 0
        for known in tuple(self._known.values()):
            try:
                reading = self._read_status(known)
            except OSError:
                # ESRCH: it has ended, and its id may be another's already
                self._known.pop(known.pid).close()
                continue
            if reading is None:
                self.zombies += 1
            else:
                readings.append(reading)
        return readings

    def _read_status(self, known_process: _KnownProcess) -> ProcessReading | None:
        """Read one process; None for a zombie. Raises OSError if it is gone."""
        pid, text = known_process.pid, b""
        try:
            text = self._text_of(
                known_process, f"{self._place(pid)}/status", _STATUS_BYTES
            )
        except OSError:
            # the thread that was followed has ended: another one may live
            if known_process.thread is None:
                raise
        reading = parse_status(pid, text)
        if reading is None and not known_process.has_ended:
            reading = self._follow_thread(known_process)
            known_process.has_ended = reading is None
        if reading is not None:
            known_process.is_threaded = reading.threads > 1
        return reading

    def _follow_thread(self, known_process: _KnownProcess) -> ProcessReading | None:
        """Read the process through another thread from now on; None without one.

        Its memory stays with the threads that outlive the first one.
        """
        known_process.close()
        for tid in self._threads(known_process.pid):
            known_process.thread = tid
            reading = self.reading(known_process.pid)
            if reading is not None:
                return reading
        known_process.thread = None
        return None

    def _threads(self, pid: int) -> list[int]:
        """Return a process's threads without the first."""
        try:
            names = os.listdir(f"{self._root}/{pid}/task")
        except OSError:
            return []
        return [int(name) for name in names if name.isdecimal() and int(name) != pid]

    def folder(self, pid: int) -> str:
        """Return the folder with a process's maps and descriptors."""
        return f"{self._root}/{self._place(pid)}"

    def _place(self, pid: int) -> str:
        """Return where below /proc a process is read: through a thread that lives."""
        known = self._known.get(pid)
        thread = None if known is None else known.thread
        return f"{pid}" if thread is None else f"{pid}/task/{thread}"

    def reading(self, pid: int) -> ProcessReading | None:
        """Read one process, in the tree or not."""
        text = self._read(f"{self._place(pid)}/status", _STATUS_BYTES)
        return None if text is None else parse_status(pid, text)

    def is_stopped(self, pid: int) -> bool:
        """Return whether a signal has stopped the process."""
        text = self._read(f"{pid}/stat", STAT_BYTES) or b""
        return text[text.rfind(b")") + 2 :].startswith(b"T")

    def times(self, pid: int) -> ProcessTimes | None:
        """Read one process's CPU time and identity; None when it is gone."""
        known = self._known.get(pid, _STRANGER)
        try:
            times = parse_stat(self._text_of(known, f"{pid}/stat", STAT_BYTES))
        except OSError:
            return None
        if times is None or known.thread is None:
            return times
        # the first thread has ended: another one knows the program
        text = self._read(f"{self._place(pid)}/stat", STAT_BYTES)
        other = None if text is None else parse_stat(text)
        if other is None:
            return times
        return msgspec.structs.replace(
            times,
            code_start=other.code_start,
            stack_start=other.stack_start,
            has_ended=False,
        )

    def environment(self, pid: int) -> dict[str, str]:
        """Read a process's environment at its exec; empty if refused."""
        text = self._read(f"{pid}/environ", _ENVIRONMENT_BYTES) or b""
        words = (os.fsdecode(word).partition("=") for word in text.split(b"\0"))
        return {name: value for name, _, value in words}

    def children(self) -> list[int] | None:
        """Return the top process's own children; None if they are not listed."""
        text = self._read(f"{self.top}/task/{self.top}/children", _CHILDREN_BYTES)
        if text is None:
            return None
        return [pid for pid in parse_children(text) if pid not in self.excluded]

    def _may_have_grown(self) -> bool:
        """Return whether a process may have been started since the last two walks.

        One walk is not enough: a process has its id before it is in its parent's list,
        and children are adopted while they are being listed. A loadavg that has never
        moved may be a made-up one.
        """
        last_pid = (self._read("loadavg", 128) or b"").rpartition(b" ")[2]
        before, self._last_pids = self._last_pids, (self._last_pids[1], last_pid)
        self._first_pid = self._first_pid or last_pid
        self._trust -= 1
        is_new = not last_pid or before != (last_pid, last_pid)
        if self._trust < 0 or is_new:
            self._trust = _LONGEST_TRUST if last_pid != self._first_pid else 0
            return True
        return False

    def members(self) -> list[int] | None:
        """Return the processes below which the tree lies; None if unknown."""
        return self.children()

    def find_new(self) -> list[int]:
        """Find new processes of the tree, and return them."""
        before = set(self._known)
        self._walk()
        return [pid for pid in self._known if pid not in before]

    def _walk(self) -> None:
        if not self._may_have_grown():
            return
        queue = self.members() or []
        # those known already lead to further ones
        queue.extend(self._known)
        visited = set()
        while queue:
            pid = queue.pop()
            if pid in visited:
                continue
            visited.add(pid)
            if pid in self._known or self.adopt(pid):
                queue.extend(self.children_of(pid))

    def adopt(self, pid: int) -> bool:
        """Add a process that may be no descendant; False if it has ended."""
        if not os.access(f"{self._root}/{pid}", os.F_OK):
            return False
        # without descriptors from there on: each look opens the files anew
        keep = len(self._known) < self._most_open
        self.seen += 1
        self._known[pid] = _KnownProcess(pid, keeps_open=keep)
        return True

    def children_of(self, pid: int) -> list[int]:
        """Return the children of every thread: any thread may start processes."""
        known = self._known.get(pid, _STRANGER)
        try:
            path = f"{pid}/task/{pid}/children"
            text = self._text_of(known, path, _CHILDREN_BYTES)
        except OSError:  # others may live
            text = b""
        for tid in self._threads(pid) if known.is_threaded else ():
            lists = self._read(f"{pid}/task/{tid}/children", _CHILDREN_BYTES)
            text += b" " + (lists or b"")
        return parse_children(text)

    def _text_of(self, known_process: _KnownProcess, path: str, size: int) -> bytes:
        """Read a file of a process, *path* below /proc. Raises OSError if it is gone.

        A file that stays open is of that process alone, even if its id is used again.
        """
        fd = known_process.files.get(path)
        if fd is not None:
            return read_kernel_list(fd, size)
        fd = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        if known_process.keeps_open:
            known_process.files[path] = fd
        try:
            return read_kernel_list(fd, size)
        finally:
            if not known_process.keeps_open:
                os.close(fd)

    def _read(self, path: str, size: int) -> bytes | None:
        try:
            return self._text_of(_STRANGER, path, size)
        except OSError:
            return None


def read_kernel_list(descriptor: int, size: int = _CHILDREN_BYTES) -> bytes:
    """Read a kernel file from its beginning, past its first page where it is longer."""
    text = os.pread(descriptor, size, 0)
    part = text
    while len(part) > _NEAR_A_PAGE:
        part = os.pread(descriptor, size, len(text))
        text += part
    return text


class IoReading(msgspec.Struct, frozen=True):
    """Bytes that reached storage, as the kernel counts them, and all calls.

    Not the bytes in files that were deleted or cut short before they were written.
    ``*_calls`` and ``*_by_calls`` are calls that read and write, and their bytes: of
    files also from the page cache, of pipes and sockets too.
    """

    read_bytes: Bytes
    write_bytes: Bytes
    read_calls: int = 0
    write_calls: int = 0
    read_by_calls: Bytes = 0
    written_by_calls: Bytes = 0

    def __add__(self, other: "IoReading") -> "IoReading":
        return self._each_with(operator.add, other)

    def since(self, before: "IoReading") -> "IoReading":
        """Return the traffic between two readings."""
        return self._each_with(operator.sub, before)

    def _each_with(
        self, combine: Callable[[int, int], int], other: "IoReading"
    ) -> "IoReading":
        figures = map(msgspec.structs.astuple, (self, other))
        return IoReading(*map(combine, *figures))


def parse_io(text: bytes) -> IoReading:
    """Read /proc/PID/io. Raises ValueError or KeyError when it is something else."""
    fields = dict(line.split(b":") for line in text.splitlines())
    written = int(fields[b"write_bytes"]) - int(fields[b"cancelled_write_bytes"])
    names = (b"syscr", b"syscw", b"rchar", b"wchar")
    calls = (int(fields[name]) for name in names)
    return IoReading(int(fields[b"read_bytes"]), written, *calls)


def read_reaped_io(proc_folder: str = "/proc") -> IoReading | None:
    """Read the traffic of reaped descendants; None if the kernel does not count it."""
    try:
        total = parse_io(file_head(f"{proc_folder}/self/io"))
        # weigh's own threads are in the total as well
        for tid in os.listdir(f"{proc_folder}/self/task"):
            of_thread = parse_io(file_head(f"{proc_folder}/self/task/{tid}/io"))
            total = total.since(of_thread)
    except (OSError, ValueError, KeyError):
        return None
    return total
