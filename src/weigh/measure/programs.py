"""What the programs of a run show of themselves: a JVM's heap, signs, the files read.

HotSpot maps /tmp/hsperfdata_USER/PID, with counters in a format that has not changed
since Java 1.4 (jdk.internal.perf, ``perfMemory.hpp``). It unlinks the file when it
exits, but a mapping that was made before shows the final counters.

Programs that take the memory they are given are recognised by a look at the largest
process, and signs.toml has their table. A sign changes words, never figures. The maps
of a busy process wait for its own page faults, so there are few looks: each time that
the run has become twice as old.
"""

import mmap
import os
import pwd
import re
import stat
import struct
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from weigh.answers_in_time import in_time
from weigh.errors import FormatError
from weigh.lazy_modules import lazy_module
from weigh.model.record import FileCalls, JvmHeap, PageCache, ProgramSign
from weigh.probe.proc import ProcessReading, parse_io
from weigh.regular_file import file_head
from weigh.units import MIB, Bytes, Seconds
from weigh.work_done_elsewhere import WAITED_FOR, client_work

if TYPE_CHECKING:
    from weigh.probe import filesystem, pages
else:  # most runs read nothing that is seen
    filesystem = lazy_module("weigh.probe.filesystem")
    pages = lazy_module("weigh.probe.pages")

_MOST_BYTES = 4 << 20  # of the maps of a process; 40,000 have as many
_TRIES = 4  # looks at a new process until it is taken for another program
_OLD = "sun.gc.generation.1"  # the counters of the old generation
_HEAP_FLAGS = (
    "-Xmx",
    "-XX:MaxHeapSize=",
    "-XX:MaxRAMPercentage=",
    "-XX:MaxRAMFraction=",
    "-XX:MaxRAM=",
)
# variables from which HotSpot takes options
_VARIABLES = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")

Counters = Mapping[str, int | str]


def parse_perfdata(data: bytes) -> dict[str, int | str]:
    """Read the counters: numbers, and texts; of damaged ones those before it."""
    counters: dict[str, int | str] = {}
    # a damaged entry ends the list
    with suppress(struct.error, IndexError):
        # byte order 0 is big-endian
        order = ">" if data[4] == 0 else "<"
        at, count = struct.unpack_from(f"{order}ii", data, 24)
        for _ in range(count):
            # 4 bytes of flags follow the kind: J is a long, B a text of bytes
            length, name_at, size, kind, value_at = struct.unpack_from(
                f"{order}iiic3xi", data, at
            )
            if length <= 0:
                break
            name = data[at + name_at : at + length].partition(b"\0")[0]
            start = at + value_at
            if kind == b"J":
                number = struct.unpack_from(f"{order}q", data, start)[0]
                counters[name.decode("latin-1")] = number
            elif kind == b"B":
                text = data[start : start + size].partition(b"\0")[0]
                counters[name.decode("latin-1")] = text.decode("utf-8", "replace")
            at += length
    return counters


def jvm_of(counters: Counters, options: Sequence[str] = ()) -> JvmHeap | None:
    """Return what the counters of one virtual machine mean; None without a heap.

    *options* are those that it got from variables of its environment.
    """

    def number(name: str) -> int:
        value = counters.get(name, 0)
        return value if isinstance(value, int) else 0

    limit = number(f"{_OLD}.maxCapacity")
    if not limit:
        return None
    policy = str(counters.get("sun.gc.policy.name", ""))
    if any(part in policy for part in ("Copy", "Par", "MarkSweep")):
        # the old generation alone; G1 has the whole heap in each
        limit += number("sun.gc.generation.0.maxCapacity")
    collections = any(number(f"sun.gc.collector.{n}.invocations") for n in range(4))
    stopped, went = number("sun.rt.safepointTime"), number("sun.rt.applicationTime")
    flags = [*str(counters.get("java.rt.vmArgs", "")).split(), *options]
    return JvmHeap(
        heap_limit=limit,
        # before the first collection, what is used includes garbage
        live=number(f"{_OLD}.space.0.used") or None if collections else None,
        paused=stopped / (stopped + went) if stopped + went > 0 else None,
        flags=tuple(flag for flag in flags if flag.startswith(_HEAP_FLAGS)),
        metaspace=number("sun.gc.metaspace.used") or None,
    )


class JvmWatch:
    """Keeps the counters of the virtual machine with the largest peak memory."""

    def __init__(self, *, proc_folder: str = "/proc", folder: str = "/tmp") -> None:  # noqa: S108 - HotSpot ignores TMPDIR
        self._proc = proc_folder
        self._folder = folder
        self._tries: Counter[int] = Counter()
        self._pid: int | None = None
        self._peak: Bytes = 0
        self._counters = memoryview(b"")
        self._options: list[str] = []

    def look(self, readings: Sequence[ProcessReading]) -> None:
        """Map the counters of a virtual machine that is larger than the one before."""
        for reading in readings:
            pid, is_larger = reading.pid, reading.peak > self._peak
            # not every process is a virtual machine, and its file comes a little later
            if is_larger and pid != self._pid and self._tries[pid] < _TRIES:
                self._tries[pid] += 1
                self._map(pid)
            if pid == self._pid:
                self._peak = max(self._peak, reading.peak)

    def largest(self) -> JvmHeap | None:
        """Return the virtual machine with the largest peak memory; None without any."""
        return jvm_of(parse_perfdata(bytes(self._counters)), self._options)

    def _map(self, pid: int) -> None:
        try:
            name = _user_name(os.stat(f"{self._proc}/{pid}").st_uid)
        except (OSError, KeyError):  # it has ended, or nobody has this number
            return
        path = f"{self._folder}/hsperfdata_{name}/{pid}"
        # in a container, /tmp is another folder
        for root in ("", f"{self._proc}/{pid}/root"):
            # a symbolic link there may be another user's
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
            with suppress(OSError, ValueError):
                fd = os.open(root + path, flags)
                # all of it; ValueError for an empty one
                with open(fd, "rb", buffering=0):
                    view = mmap.mmap(fd, 0, access=mmap.ACCESS_READ)
                self._pid, self._counters = pid, memoryview(view)
                # options of variables are not among vmArgs
                env = _environment(f"{self._proc}/{pid}")
                words = (env.get(name, "") for name in _VARIABLES)
                self._options = " ".join(words).split()
                return


@cache
def _user_name(user: int) -> str:
    return pwd.getpwuid(user).pw_name


def _environment(folder: str) -> dict[str, str]:
    """Read a process's environment from its *folder* in /proc."""
    words = os.fsdecode(file_head(f"{folder}/environ")).split("\0")
    return dict(word.partition("=")[::2] for word in words if "=" in word)


SITE_FILE = "/etc/weigh/signs.toml"
VARIABLE = "WEIGH_SIGNS"
# glibc's HEAP_MAX_SIZE on 64 bits: each arena's heap is aligned to it
_ARENA = 64 * MIB
_LEAST_ARENAS = 3  # a program of one or two threads has no more to save
# the note with a build id that Go's linker writes, in the first page of the file: type
# and name (20 of 21 programs have it there)
_GO = b"\x04\0\0\0Go\0\0"
_INTERPRETERS = re.compile(r"(?:python|perl|ruby|bash|sh|node)[\d.]*")
_LONGEST_COMM = 15  # characters of a process's name to the kernel


class SignRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the table; see signs.toml."""

    name: str
    advice: str
    program: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    library: tuple[str, ...] = ()
    go: bool = False
    arenas: bool = False
    variable: str | None = None
    option: tuple[str, ...] = ()
    client: bool = False


class SignTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of signs."""

    sign: tuple[SignRule, ...] = ()


class ProcessSigns(msgspec.Struct, frozen=True):
    """What one process shows: its program, command, environment and memory map."""

    exe: str = ""
    words: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    maps: bytes = b""
    is_go: bool = False


def read_rules(
    env: Mapping[str, str], *, site: str = SITE_FILE
) -> tuple[SignRule, ...]:
    """Read weigh's table, with a site's before it; a file that is wrong is left out."""
    own = os.path.join(os.path.dirname(__file__), "signs.toml")
    found: list[SignRule] = []
    # the user's own table comes first, then the site's: the first match counts
    for path in (env.get(VARIABLE), site, own):
        with suppress(OSError, FormatError):  # weigh doctor reports it
            found += read_sign_table(path or os.devnull)
    return tuple(found)


def read_sign_table(path: str) -> tuple[SignRule, ...]:
    """Read one file of signs.

    Raises:
        OSError: it cannot be read.
        FormatError: it is no TOML, or has an unknown key.
    """
    import tomllib  # noqa: PLC0415 - later than what looks at a JVM

    try:
        with open(path, "rb") as file:
            return msgspec.convert(tomllib.load(file), SignTable).sign
    except (ValueError, msgspec.ValidationError) as error:
        raise FormatError(f"{path}: {error}") from error


def client_programs(env: Mapping[str, str]) -> frozenset[bytes]:
    """Return the names of programs that have others do their work, as docker does.

    They are cut off as in /proc/PID/stat.
    """
    rules = (rule.program for rule in read_rules(env) if rule.client)
    names = WAITED_FOR.union(*rules)
    return frozenset(os.fsencode(name)[:_LONGEST_COMM] for name in names)


def sign_of(look: ProcessSigns, rules: Sequence[SignRule]) -> ProgramSign | None:
    """Return the first sign that a process shows, with its knob's value if set."""
    names = _program_names(look)
    # before what docker and kubectl are written in: Go
    for name in names:
        work = client_work(name, look.words)
        if work is not None:
            return ProgramSign(name, advice=f"it {work}", is_client=True)
    for rule in rules:
        if set(rule.words) <= set(look.words) and (
            any(name in rule.program for name in names)
            or any(part.encode() in look.maps for part in rule.library)
            or (rule.go and look.is_go)
            or (rule.arenas and count_arenas(look.maps) >= _LEAST_ARENAS)
        ):
            knob, value = _knob(rule, look)
            return ProgramSign(
                rule.name, rule.advice, knob, value, is_client=rule.client
            )
    return None


def _program_names(look: ProcessSigns) -> list[str]:
    """Return the names a program goes by: its file, and its script."""
    names = [os.path.basename(path) for path in (look.exe, *look.words[:1])]
    if _INTERPRETERS.fullmatch(names[0]):
        # an interpreter's own options come before the script
        script = next((word for word in look.words[1:] if word[:1] != "-"), "")
        names.append(os.path.basename(script))
    return names


def _knob(sign_rule: SignRule, look: ProcessSigns) -> tuple[str | None, str | None]:
    """Return the knob that a rule names, and the value it has."""
    for option in sign_rule.option:
        for at, word in enumerate(look.words):
            if word == option and at + 1 < len(look.words):
                return option, look.words[at + 1]
            if word.startswith(option) and word != option:
                return option, word.removeprefix(option).lstrip("=")
    if sign_rule.variable is not None:
        return sign_rule.variable, look.env.get(sign_rule.variable)
    return next(iter(sign_rule.option), None), None


def count_arenas(maps: bytes) -> int:
    """Count the heaps of glibc's arenas: writable, unnamed, at multiples of 64 MiB."""
    if b"libjvm" in maps:
        return 0
    unnamed = re.findall(
        rb"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ \S+ *$", maps, re.MULTILINE
    )
    spans = ((int(start, 16), int(end, 16)) for start, end in unnamed)
    return sum(low % _ARENA == 0 and high - low <= _ARENA for low, high in spans)


_MOST_FILES = 64  # open files of a process that are looked at
_PATIENCE: Seconds = 1.0  # a look takes milliseconds
_MOST_READERS = 7  # large processes that may read for the largest
_LEAST_LOOKS = 2  # that saw a folder read; one may be by chance
_OUTPUTS = ("1", "2")
_NOT_DATA = re.compile(r"^/(?:proc|sys|dev)/|\.(?:py|pyc|so)$| \(deleted\)$")
_NOT_READ = os.O_WRONLY | os.O_DIRECTORY | os.O_PATH
_REREAD = 2.0  # times the files it has open
_LEAST_CACHE = 32 * MIB  # bytes; a smaller cache is not worth a word
_NEXT_JVMS: Seconds = 0.25  # until the next look for new virtual machines


class FolderLooks:
    """Counts the looks at open files that saw those of a folder being read.

    A file that is newly open, or whose position moved, is being read. One at which
    neither shows is if nothing else can be: the process has no pipe or socket.
    """

    def __init__(self, proc_folder: str) -> None:
        self._proc = proc_folder
        self._working = os.readlink("/proc/self/cwd")  # also of one that was deleted
        self._seen: dict[int, dict[str, bytes]] = {}  # positions, by process and path
        self._looks: Counter[str] = Counter()
        self._paths: defaultdict[str, set[str]] = defaultdict(set)

    def note(self, pid: int, files: Mapping[str, str]) -> None:
        """Enter a look at a process that has read since the one before.

        *files* are what its descriptors lead to: a path, or a text such as pipe:[3].

        Nothing here asks a file server, which may not answer.
        """
        seen, has_pipe = {}, False
        for number, path in files.items():
            if number in _OUTPUTS:
                continue
            if not path.startswith("/"):
                has_pipe = True
            # a text that is not printable may be no Unicode, and belongs in no record
            elif path.isprintable() and not _NOT_DATA.search(path):
                # position and flags
                shown = file_head(f"{self._proc}/{pid}/fdinfo/{number}")
                flags = re.search(rb"^flags:\s*([0-7]+)$", shown, re.MULTILINE)
                if flags is not None and not int(flags[1], 8) & _NOT_READ:
                    seen[path] = shown
        before, self._seen[pid] = self._seen.get(pid, {}), seen
        read = [p for p in seen if not has_pipe or before.get(p) != seen[p]]
        for folder, path in {self._staged_as(path): path for path in read}.items():
            self._looks[folder] += 1
            self._paths[folder].add(path)

    def add_to(self, calls: FileCalls) -> FileCalls:
        """Return *calls* with the folder that most looks saw, if several did."""
        for folder, looks in self._looks.most_common(1):
            if looks >= _LEAST_LOOKS:
                path = os.path.join(self._working, folder)
                mount = filesystem.mounted_system_of(path, pages.own_mounts(self._proc))
                return msgspec.structs.replace(
                    calls,
                    folder=folder,
                    files=len(self._paths[folder]),
                    mount=mount and mount.point,
                    file_system=mount and mount.kind,
                    is_shared=mount and filesystem.is_over_network(mount.kind),
                )
        return calls

    def _staged_as(self, path: str) -> str:
        """Return what to stage: the file, or the folder, as the user would write it."""
        inside = os.path.relpath(path, self._working)
        if inside.startswith("../"):
            return f"{os.path.dirname(path)}/"
        top, slash, _ = inside.partition("/")
        return top + slash


class ProgramWatch:
    """Looks at the largest process now and then, and at what the large ones read."""

    def __init__(self, env: Mapping[str, str], *, proc_folder: str = "/proc") -> None:
        self._proc = proc_folder
        self._env = env
        self._rules: tuple[SignRule, ...] | None = None
        self._next_look: Seconds = 0.0
        self._is_looking = False
        self._largest: Bytes = 0  # of what showed the sign
        self._turn = 0
        # bytes that each process held and had read when its files were looked at
        self._states: dict[int, tuple[Bytes, Bytes | None]] = {}
        self.jvms = JvmWatch(proc_folder=proc_folder)
        self.folders = FolderLooks(proc_folder)
        self.sign: ProgramSign | None = None
        self.cache: PageCache | None = None

    def look(
        self, current_time: Seconds, readings: Sequence[ProcessReading]
    ) -> Seconds:
        """Look at what is due; return the seconds until the next call."""
        self.jvms.look(readings)
        if readings and current_time >= self._next_look and not self._is_looking:
            self._next_look = 2 * current_time
            self._is_looking = True
            # the files may be on a server that does not answer
            in_time([partial(self._look_at_large, readings)], patience=_PATIENCE)
        return _NEXT_JVMS

    def _look_at_large(self, readings: Sequence[ProcessReading]) -> None:
        by_size = sorted(readings, key=lambda reading: -reading.resident)
        largest, others = by_size[0], by_size[1 : _MOST_READERS + 1]
        try:
            self._look_at_files(largest, is_largest=True)
            # the others, as the workers of a data loader, take turns: a look costs the
            # same for many
            if others:
                self._turn = (self._turn + 1) % len(others)
                self._look_at_files(others[self._turn])
            self._look_at_program(largest)
        finally:
            self._is_looking = False

    def _look_at_program(self, largest: ProcessReading) -> None:
        folder = f"{self._proc}/{largest.pid}"
        try:
            exe = os.readlink(f"{folder}/exe")
        except OSError:
            return
        words = os.fsdecode(file_head(f"{folder}/cmdline")).split("\0")
        maps = b""
        # buffered, as the kernel hands out a page at a time
        with suppress(OSError), open(f"{folder}/maps", "rb") as file:
            maps = file.read(_MOST_BYTES)
        shown = ProcessSigns(
            exe=exe,
            words=tuple(words[:-1]),
            env=_environment(folder),
            maps=maps,
            is_go=_GO in file_head(f"{folder}/exe", 4096),
        )
        if self._rules is None:
            self._rules = read_rules(self._env)
        found = sign_of(shown, self._rules)
        # the sign of the largest process counts
        if found is not None and largest.resident >= self._largest:
            self.sign, self._largest = found, largest.resident

    def _look_at_files(
        self, reading: ProcessReading, *, is_largest: bool = False
    ) -> None:
        """Note which files a process reads, and whether it reads them again."""
        pid, read = reading.pid, None
        with suppress(ValueError, KeyError):  # it has ended, or may not be read
            # also from the page cache, not only from storage
            read = parse_io(file_head(f"{self._proc}/{pid}/io")).read_by_calls
        # where it has neither read nor touched anything, it shows nothing new: a parent
        # that waits with a log open must not outvote its workers
        state = reading.resident, read
        if self._states.get(pid) == state:
            return
        self._states[pid] = state
        files = self._open_files(pid)
        self.folders.note(pid, files)
        if not is_largest or read is None:
            return
        sizes: dict[tuple[int, int], int] = {}
        for number in files:
            with suppress(OSError):  # it was closed meanwhile
                status = os.stat(f"{self._proc}/{pid}/fd/{number}")
                if stat.S_ISREG(status.st_mode):
                    sizes[status.st_dev, status.st_ino] = status.st_size
        size = sum(sizes.values())
        # what is read over and over could stay in the page cache
        if size >= _LEAST_CACHE and read > _REREAD * size:
            self.cache = PageCache(read=read, files=size)

    def _open_files(self, pid: int) -> dict[str, str]:
        files: dict[str, str] = {}
        folder = f"{self._proc}/{pid}/fd"
        with suppress(OSError):
            for name in os.listdir(folder)[:_MOST_FILES]:
                with suppress(OSError):  # it was closed meanwhile
                    files[name] = os.readlink(f"{folder}/{name}")
        return files
