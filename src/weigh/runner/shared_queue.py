"""One queue that several ``weigh exec`` pull from: a claim is a hard link.

The directory of a queue holds ``plan.json`` and ``tasks.txt``, and:

    w.NAME    one run of weigh exec (an owner): who it is, where its joblog is
    cU.K      claim K of unit U: a hard link to the file of its owner

link(2) to a new name succeeds for exactly one process, also over NFS, and a claim is
never removed. So a claim that is seen is true, and one that is not seen yet costs a
link in vain: no clock, no lock and no listing decides. A unit is claimed again only
if all its owners are gone, and then only by the next number.
"""

import errno
import itertools
import os
import posixpath
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from weigh.errors import StoreError, UsageError, cannot_write
from weigh.model.element_time import NOT_STARTED
from weigh.planning.queue_order import units_looked_ahead
from weigh.progress.eta import TaskTally
from weigh.regular_file import only_regular, write_all
from weigh.runner.events import SUFFIX, TaskLeft, ended_tasks, read_left
from weigh.runner.slots import (
    MOST_PASSING,
    NO_RESERVATION,
    RunSlot,
    TaskPlan,
    TaskReservation,
    TaskTurn,
    TurnQueue,
)
from weigh.store.identity import MachineIdentity, ProcessIdentity
from weigh.store.lines import UNREADABLE
from weigh.store.location import file_mode
from weigh.units import Seconds, count_with_noun, format_duration

if TYPE_CHECKING:
    from weigh.runner.run_context import RunContext

# how link(2) fails on a file system without hard links, or with few for each file
_NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EMLINK}
)
_MISSES = 4  # vain links until the directory is listed
_MORE = 2  # times as long as a task ran that its job stopped


class QueueOwner(msgspec.Struct, frozen=True, kw_only=True):
    """One run of weigh exec that pulls.

    ``name`` is that of its file, ``joblog`` a path relative to the queue, ``run`` the
    id of the run in its events. ``job`` is the scheduler's job, if any. ``folder`` is
    where the queue was. Without a joblog it is a resumption, which moved what it
    claimed to a queue of its own.
    """

    name: str
    joblog: str
    run: str
    machine: MachineIdentity
    process: ProcessIdentity
    folder: str
    job: str | None = None

    @property
    def element(self) -> int | None:
        """Return the number of its element in the plan; None if run by hand."""
        stem = posixpath.basename(self.joblog).removesuffix(".joblog")
        number = stem.removeprefix("tasks_")
        return int(number) if number != stem and number.isdecimal() else None


class QueueFiles:
    """What a queue asks of the file system; tests replace it to inject faults."""

    def link(self, source: str, target: str) -> None:
        """Create a hard link."""
        os.link(source, target)

    def create(self, file_path: str, content: bytes) -> None:
        """Create a file with *content*, synced to disk."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(file_path, flags, file_mode(file_path))
        try:
            write_all(fd, content)
            os.fsync(fd)
        except OSError:
            # a part of the name is no owner: its units would never be given back
            with suppress(OSError):
                os.unlink(file_path)
            raise
        finally:
            os.close(fd)

    def read(self, file_path: str) -> bytes:
        """Return the content of a file."""
        with open(file_path, "rb", opener=only_regular) as file:
            return file.read()

    def changed(self, file_path: str) -> Seconds:
        """Return when a file was written, by the clock of its file system."""
        return os.stat(file_path).st_mtime

    def listed(self, folder: str) -> list[tuple[str, int]]:
        """Return the names in a directory, with their inodes."""
        with os.scandir(folder) as entries:
            # with the inodes of readdir(3), so no stat for each
            return [(entry.name, entry.inode()) for entry in entries]


class QueueClaims:
    """The claims in the directory of one queue, as of the last look.

    ``taken`` has the number of the last claim of each claimed unit.
    """

    def __init__(self, folder: str, files: QueueFiles | None = None) -> None:
        self.folder = folder
        self.taken: dict[int, int] = {}
        self.files = files or QueueFiles()
        # names of owners' files: a claim has the inode of its owner's file
        self._by_inode: dict[int, str] = {}
        self._inodes: dict[tuple[int, int], int] = {}  # by (unit, number of the claim)
        self._owners: dict[str, QueueOwner] = {}  # by file name; never changed

    def look(self) -> None:
        """List the directory: learn the claims of all runs.

        Raises:
            StoreError: it cannot be listed.
        """
        try:
            names = self.files.listed(self.folder)
        except OSError as error:
            raise StoreError(f"cannot list {self.folder}: {error.strerror}") from error
        for name, inode in names:
            if name.startswith("w."):
                self._by_inode[inode] = name
            elif claim := _parsed_claim_name(name):
                self.note(*claim)
                self._inodes[claim] = inode

    def note(self, unit: int, claim_number: int) -> None:
        """Note that a unit has a claim of this number."""
        self.taken[unit] = max(claim_number, self.taken.get(unit, 0))

    def after(self, unit: int) -> int:
        """Return the number of the next claim of a unit."""
        return self.taken.get(unit, -1) + 1

    def owners(self) -> tuple[QueueOwner, ...]:
        """Return the runs that have entered."""
        names = sorted(set(self._by_inode.values()))
        found = (self._read_owner(name) for name in names)
        return tuple(one for one in found if one is not None)

    def entered(self, owner: QueueOwner) -> Seconds:
        """Return when a run entered; 0 if that is not visible."""
        with suppress(OSError):
            return self.files.changed(f"{self.folder}/{owner.name}")
        return 0.0

    def claimants(self) -> Iterator[tuple[int, list[QueueOwner | None]]]:
        """Yield each claimed unit with its owners in the order of their claims.

        An owner is None if it is not known yet.
        """
        for unit, last in sorted(self.taken.items()):
            yield unit, [self._owner_of(unit, number) for number in range(last + 1)]

    def named_in(self, file_path: str) -> str | None:
        """Return the name of the owner that a claim holds; None if it has none yet."""
        with suppress(OSError, *UNREADABLE):
            return msgspec.json.decode(self.files.read(file_path), type=QueueOwner).name
        return None

    def _owner_of(self, unit: int, claim_number: int) -> QueueOwner | None:
        inode = self._inodes.get((unit, claim_number))
        name = None if inode is None else self._by_inode.get(inode)
        if name is None:  # made without links, or the file was not listed yet
            name = self.named_in(f"{self.folder}/c{unit}.{claim_number}")
        return None if name is None else self._read_owner(name)

    def _read_owner(self, file_name: str) -> QueueOwner | None:
        if file_name not in self._owners:
            with suppress(OSError, *UNREADABLE):
                text = self.files.read(f"{self.folder}/{file_name}")
                self._owners[file_name] = msgspec.json.decode(text, type=QueueOwner)
        return self._owners.get(file_name)


class OwnClaims(QueueClaims):
    """The claims of one run among those of all; ``links`` counts its calls."""

    def __init__(
        self, folder: str, owner: QueueOwner, files: QueueFiles | None = None
    ) -> None:
        """Claim for *owner*, whose name gets a number when it enters."""
        super().__init__(folder, files)
        self.owner = owner
        self.links = 0
        self._can_link = True
        self._content = b""  # of the owner's file

    def enter(self) -> None:
        """Create the file of the owner, which has to be there before its claims.

        Raises:
            UsageError: the directory is a copy of a queue in use.
            StoreError: the file cannot be created.
        """
        self.look()
        refuse_copy(self.folder, self.owners())
        self.owner = self._new_file(self.owner)

    def take(self, unit: int, claim_number: int = 0) -> bool:
        """Claim a unit; return False if another run has that claim.

        Raises:
            StoreError: the claim cannot be written.
        """
        target = f"{self.folder}/c{unit}.{claim_number}"
        self.links += 1
        try:
            self._claim(target)
        except FileExistsError:
            self.note(unit, claim_number)
            # over NFS the answer to our own call may have been lost
            return self.named_in(target) == self.owner.name
        except OSError as error:
            raise StoreError(
                f"cannot claim a task in {self.folder}: {error.strerror}"
            ) from error
        self.note(unit, claim_number)
        return True

    def is_ours(self, owner: QueueOwner) -> bool:
        """Return whether *owner* is this very run."""
        return owner.name == self.owner.name

    def _claim(self, target: str) -> None:
        if self._can_link:
            source = f"{self.folder}/{self.owner.name}"
            try:
                self.files.link(source, target)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                # from here on each claim is a file that names its owner
                self._can_link = False
            else:
                return
        # a reader may see the file before its content: then nobody owns it yet
        self.files.create(target, self._content)

    def _new_file(self, owner: QueueOwner) -> QueueOwner:
        # an earlier run on the same joblog may have the first names
        for number in itertools.count():
            name = f"w.{owner.name}.{number}"
            ours = msgspec.structs.replace(owner, name=name)
            self._content = msgspec.json.encode(ours)
            try:
                self.files.create(f"{self.folder}/{name}", self._content)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(
                    cannot_write(f"{self.folder}/{name}", error)
                ) from error
            return ours
        raise AssertionError  # the count has no end


def _parsed_claim_name(file_name: str) -> tuple[int, int] | None:
    """Return unit and number of the claim called *file_name*; None for another file."""
    unit, dot, number = file_name[1:].partition(".")
    if file_name[:1] == "c" and dot and unit.isdecimal() and number.isdecimal():
        return int(unit), int(number)
    return None


class PulledTasks(TaskPlan):
    """The tasks of a queue. Here all are alike; those of a plan have needs and times.

    ``units`` are the numbers of their tasks, in the order in which they are claimed,
    and ``elements`` is how many runs pull. ``room`` is what the plan has for all tasks
    that run at once; with none, all need the same.
    """

    def __init__(
        self,
        units: Sequence[Sequence[int]],
        elements: int,
        *,
        folder: str = "",
        room: TaskReservation = NO_RESERVATION,
    ) -> None:
        self.units = units
        self.elements = elements
        self.folder = folder
        self.room = room

    def kind_of(self, _task_number: int) -> int:
        """Return the kind of a task: those of one kind have equal needs."""
        return 0

    def time_to_start(self, _task_number: int) -> Seconds | None:
        """Return the time that has to be left for a task to start; None: any."""
        return None

    def gone_runs(self, _owners: Collection[QueueOwner]) -> Collection[str]:
        """Return the names of the runs that have certainly ended, with all tasks."""
        return ()


class PullingRun:
    """This run as its queue sees it; ``place`` is which of the elements it is."""

    def __init__(
        self, context: "RunContext", tally: TaskTally, owner: QueueOwner
    ) -> None:
        self._context = context
        self._tally = tally
        self._folder = owner.folder
        # any number that differs between runs by hand
        by_hand = sum(owner.name.encode())
        self.place = by_hand if owner.element is None else owner.element

    def sync(self) -> None:
        """Write the joblog to the disk."""
        self._context.journal.sync()

    def time_left(self) -> Seconds | None:
        """Return the time until the tasks are asked to end; None without a limit."""
        ends_at = self._context.ends_at
        if ends_at is None:
            return None
        return ends_at - self._context.options.grace - time.monotonic()

    def note_claimed(self, count: int) -> None:
        """Count tasks that were claimed."""
        self._tally.tasks += count

    def choose_unit(self, units: Sequence[int]) -> int:
        """Return one of several units that are as good as each other."""
        return random.choice(units)  # noqa: S311 - no secret

    def tasks_ended_by(self, owner: QueueOwner) -> Mapping[int, bool]:
        """Return the tasks that have ended in a run.

        Raises:
            StoreError: its joblog cannot be read.
        """
        path = os.path.join(self._folder, owner.joblog)
        try:
            return ended_tasks(path)
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error.strerror}") from error

    def tasks_left_by(self, owner: QueueOwner) -> Mapping[int, TaskLeft]:
        """Return why tasks did not end in a run."""
        path = os.path.join(self._folder, owner.joblog) + SUFFIX
        try:
            with open(path, "rb", opener=only_regular) as file:
                return read_left(file)
        except OSError:
            return {}


class UntakenTasks(msgspec.Struct, frozen=True):
    """Tasks that a run leaves in the queue, as there is too little time for them.

    The shortest needs ``needed``, and ``left`` is left. ``later``: other elements have
    more time, or have still to start.
    """

    tasks: int
    needed: Seconds
    left: Seconds
    later: bool

    @property
    def words(self) -> str:
        """Return why they were not started."""
        which = "it" if self.tasks == 1 else "the shortest"
        what = count_with_noun(self.tasks, "task")
        return (
            f"{what} {NOT_STARTED} {which} needs {format_duration(self.needed)}, "
            f"{format_duration(max(0.0, self.left))} left"
        )


class _LostUnit(msgspec.Struct, frozen=True):
    """A unit that runs left which are gone, and the number of its next claim.

    Of its tasks those in ``short`` ran out of memory there.
    """

    unit: int
    number: int
    tasks: Sequence[int]
    short: Sequence[int]


class SharedQueue(TurnQueue):
    """The queue of a loop whose tasks come from the claims of a shared queue.

    Retries of its own tasks come first. ``unsure`` are runs that have tasks without an
    end, and may be alive.
    """

    def __init__(self, claims: OwnClaims, work: PulledTasks, run: PullingRun) -> None:
        super().__init__(iter(()))
        self.claims = claims
        self._work = work
        self._run = run
        self._units = work.units
        self._begin = 0  # the units before it are all claimed
        self._ours: list[int] = []  # tasks of claimed units that have still to start
        self._passed = 0  # starts since the first of them was the first
        # units of runs that are gone, to be claimed again
        self._lost: list[_LostUnit] = []
        self._ended: dict[str, Mapping[int, bool]] = {}  # by the owner's name
        self._is_over = False
        self.unsure: tuple[QueueOwner, ...] = ()
        self.untaken: UntakenTasks | None = None

    def is_empty(self) -> bool:
        """Return whether nothing is left that this run could start."""
        return self._is_over and super().is_empty()

    def take_where(
        self, running: int, place_task: Callable[[int], RunSlot | None]
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Take the next task for which *place_task* finds a slot; claim it if needed.

        Raises:
            StoreError: the claims cannot be read or written.
        """
        if self.peek(running) is not None:
            return super().take_where(running, place_task)
        if self._is_over:
            return None
        found = self._of_ours(place_task)
        if found is None and self._passed < MOST_PASSING:
            found = self._claimed(place_task) or self._left_over(place_task)
        # last of all: whether others are gone, the scheduler may have to answer
        if found is None and not running:
            self._find_lost()
            found = self._left_over(place_task)
            self._is_over = found is None and super().is_empty()
            if self._is_over:
                self.untaken = self._left_untaken()
        return found

    def _of_ours(
        self, place_task: Callable[[int], RunSlot | None]
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Take a task of a unit that was claimed before."""
        waits = False  # an earlier one that has time
        for at, seq in enumerate(self._ours):
            # one without time never starts here, and holds up nobody
            if not self._has_time(seq):
                continue
            slot = place_task(seq)
            if slot is not None:
                del self._ours[at]
                self._passed = self._passed + 1 if waits else 0
                return TaskTurn(seq), slot
            waits = True
            if self._passed >= MOST_PASSING:
                return None
        if not waits:
            self._passed = 0
        return None

    def _claimed(
        self, place_task: Callable[[int], RunSlot | None]
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Claim a unit whose first task fits, and take that."""
        misses = 0
        while units := self._fitting(place_task):
            unit = self._chosen(units)
            # others judge this run by its joblog, so what ended must be on disk
            self._run.sync()
            if self.claims.take(unit):
                self._own(self._units[unit])
                return self._of_ours(place_task)
            misses += 1
            # others are faster: learn all their claims at once
            if misses % _MISSES == 0:
                self.claims.look()
        return None

    def _chosen(self, units: Sequence[int]) -> int:
        """Choose among the first units: those in turn of this element are rarely taken.

        Where all took the first one, many links would be in vain. With unlike needs the
        longest task that fits fills an element best, and elements differ in what fits.
        """
        # the units are sorted, the longest first
        if self._work.room != NO_RESERVATION:
            return units[0]
        elements = self._work.elements
        for unit in units:
            if unit % elements == self._run.place % elements:
                return unit
        return self._run.choose_unit(units[:elements])

    def _fitting(self, place_task: Callable[[int], RunSlot | None]) -> list[int]:
        """Return the first free units of which a task fits."""
        taken = self.claims.taken
        while self._begin < len(self._units) and self._begin in taken:
            self._begin += 1
        found: list[int] = []
        ahead = units_looked_ahead(self._work.elements)
        fits: dict[int, bool] = {}
        for unit in range(self._begin, len(self._units)):
            if unit in taken:
                continue
            seq = self._units[unit][0]
            if not self._has_time(seq):
                continue
            kind = self._work.kind_of(seq)
            # tasks of a kind have equal needs, so one answer is enough
            if kind not in fits:
                fits[kind] = place_task(seq) is not None
            if fits[kind]:
                found.append(unit)
            ahead -= 1
            if not ahead:
                break
        return found

    def _has_time(self, task_number: int) -> bool:
        needed = self._work.time_to_start(task_number)
        left = None if needed is None else self._run.time_left()
        return needed is None or left is None or needed <= left

    def _own(self, tasks: Sequence[int]) -> None:
        self._ours += tasks
        self._run.note_claimed(len(tasks))

    def _left_over(
        self, place_task: Callable[[int], RunSlot | None]
    ) -> tuple[TaskTurn, RunSlot] | None:
        """Claim again a unit that runs left which are gone, and take a task of it."""
        refused: set[int] = set()  # kinds: tasks of one have equal needs
        for one in tuple(self._lost):
            first = next(iter((*one.tasks, *one.short)))
            kind = self._work.kind_of(first)
            if kind in refused:
                continue
            # before the claim, which cannot be given back
            slot = place_task(first) if self._has_time(first) else None
            if slot is None:
                # a shorter or smaller one behind it may fit
                refused.add(kind)
                continue
            self._lost.remove(one)
            self._run.sync()
            if self.claims.take(one.unit, one.number):
                self._run.note_claimed(len(one.short))
                for seq in one.short:  # less than all memory was too little
                    self.put(TaskTurn(seq, alone=True))
                # the first one starts now, the others when there are slots
                self._own(one.tasks[1:])
                if one.tasks:
                    self._run.note_claimed(1)
                    return TaskTurn(first), slot
            # else another run was faster, or all that is left has to run alone
        return None

    def _find_lost(self) -> None:
        """Ask which runs are gone, and note the tasks that they left."""
        claims = self.claims
        self._lost.clear()  # those that did not fit are found again
        claims.look()
        held = {
            unit: [owner for owner in owners if owner is not None]
            for unit, owners in claims.claimants()
            # an owner that is not visible yet may be alive
            if unit < len(self._units) and None not in owners
        }
        # only of units with tasks that nobody has ended
        doubtful = {unit: held[unit] for unit in held if self._left(unit, held[unit])}
        asked = {
            owner.name: owner
            for owners in doubtful.values()
            for owner in owners
            if not claims.is_ours(owner)
        }
        mine = claims.owner.joblog  # whose lock this run has: earlier ones are gone
        gone = {name for name, one in asked.items() if one.joblog == mine}
        others = tuple(one for name, one in asked.items() if name not in gone)
        gone |= set(self._work.gone_runs(others)) if others else set()
        self._ended.clear()  # opened anew: now all that they wrote is there
        self.unsure = tuple(one for name, one in asked.items() if name not in gone)
        for unit, owners in doubtful.items():
            left = self._left(unit, owners)
            if left and all(owner.name in gone for owner in owners):
                self._lose(unit, left, owners)

    def _left_untaken(self) -> UntakenTasks | None:
        """Return the tasks that nobody has taken, if time is too short for them."""
        claims, work = self.claims, self._work
        free = [unit for unit in range(len(self._units)) if unit not in claims.taken]
        tasks = [*self._ours, *(seq for unit in free for seq in self._units[unit])]
        tasks += (seq for one in self._lost for seq in (*one.tasks, *one.short))
        left = self._run.time_left()
        needs = [work.time_to_start(seq) for seq in tasks]
        # without a limit, or for a task of unknown time, time is not the reason
        if left is None or not needs or None in needs:
            return None
        needed = min(need for need in needs if need is not None)
        if needed <= left:
            return None
        return UntakenTasks(
            len(tasks), needed, left, later=self._is_taken_later(needed - left)
        )

    def _is_taken_later(self, lacked: Seconds) -> bool:
        """Return whether another run has the time that is *lacked*, or is to come.

        An element that entered later has more time by as much; if it does not take the
        tasks either, the last one to enter reports it. A run by hand has no others.
        """
        ours = self.claims.owner
        if ours.element is None:
            return False
        owners = self.claims.owners()
        if len({one.element for one in owners} - {None}) < self._work.elements:
            return True
        # both by the clock of the file system, so clocks of machines do not matter
        since = self.claims.entered(ours) + lacked
        return any(self.claims.entered(one) >= since for one in owners)

    def _lose(
        self, unit: int, tasks: Sequence[int], owners: Sequence[QueueOwner]
    ) -> None:
        """Note these tasks of runs that are gone, if they may end here.

        One that was stopped at the time limit needs more than it had. One that ran out
        of memory gets all there is; if that was too little, nobody takes it.
        """
        time_left = self._run.time_left()
        left = [self._run.tasks_left_by(owner) for owner in owners]
        known = {seq: [one[seq] for one in left if seq in one] for seq in tasks}
        had = max((one.time for ones in known.values() for one in ones), default=0.0)
        hopeless = any(one.alone for ones in known.values() for one in ones)
        if hopeless or (time_left is not None and time_left < _MORE * had):
            return
        short = [seq for seq in tasks if any(one.short for one in known[seq])]
        others = [seq for seq in tasks if seq not in short]
        self._lost.append(_LostUnit(unit, self.claims.after(unit), others, short))

    def _left(self, unit: int, owners: Sequence[QueueOwner]) -> list[int]:
        """Return the tasks of a unit that no owner has in its joblog."""
        over: set[int] = set()
        for owner in owners:
            if owner.name not in self._ended:
                self._ended[owner.name] = self._run.tasks_ended_by(owner)
            over |= set(self._ended[owner.name])
        return [seq for seq in self._units[unit] if seq not in over]


def refuse_copy(folder: str, owners: Collection[QueueOwner]) -> None:
    """Refuse a copy of a queue whose original may be in use.

    A directory that was moved, or has another path on this machine, is none.

    Raises:
        UsageError: it is a copy.
    """
    for owner in owners:
        with suppress(OSError):
            if not os.path.samefile(owner.folder, folder):
                raise UsageError(
                    f"{folder} is a copy of {owner.folder}, whose tasks were begun "
                    "there (weigh submit --again runs all of them here)"
                )
