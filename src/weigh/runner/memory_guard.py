"""Prevent parallel tasks from running out of memory, on the host and on GPUs.

A control group's usage counts without inactive page cache, which the kernel frees
first. Every group up to the root may have a limit; the one with least left counts.

If a plan states how much each task needs, memory is short only if some task holds more
than its plan, or if the tasks may still grow, within their plans, beyond what is free.
The task furthest over its plan is stopped. Without plans, the youngest task is stopped
when little memory is left, because it loses the least work; what it held is from then
on the least that a task is assumed to need. Another task starts once there is room for
it, assuming that all running tasks grow to their full size.
"""

import signal
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from weigh.probe.cgroup import limited_groups
from weigh.regular_file import file_head
from weigh.runner.attempt import TaskAttempt
from weigh.runner.retry import MADE_ROOM, AttemptEnding
from weigh.runner.slots import (
    MOST_PASSING,
    NO_RESERVATION,
    FreeSlots,
    RunSlot,
    TaskReservation,
    TaskTurn,
    TurnQueue,
)
from weigh.runner.stopping import AttemptStopper
from weigh.sweep.variables import uses_grant
from weigh.units import KIB, MIB, Bytes, Seconds, format_size

if TYPE_CHECKING:
    from weigh.runner.run_context import RunContext

MemoryKind = Literal["memory", "gpu_memory"]
_MARGIN = 0.05  # of the limit, to be left free
_GPU_MARGIN = 0.03
# GPU memory grows in leaps, and an allocation that fails does not kill the process
_GPU_AHEAD = 0.1  # of the limit: the most growth that is extrapolated
_LAST = 0.01  # of the limit: too little left to wait for a task to end
_AHEAD: Seconds = 0.3  # for which growth is extrapolated
_SETTLING: Seconds = 2.0  # the same before another task starts
_MORE = 1.2  # times what it held: the need of a task stopped while it grew
_OLDEST: Seconds = 1.0  # by which the figures of tasks may lag behind the total
_LATELY: Seconds = 10.0  # long compared with that lag
_PATIENCE: Seconds = 2.5  # after stopping a task, before the next one is stopped
_LARGER = 2  # times what it held: the reservation after running out of memory
_CLOSE = 0.7  # of the limit used, from which to look often
_OFTEN, _SELDOM = 0.05, 0.25  # seconds between looks


class MemoryRoom(msgspec.Struct, frozen=True):
    """A memory limit, and how much of it is used."""

    used: Bytes
    limit: Bytes

    @property
    def free(self) -> Bytes:
        """Return how much is left."""
        return self.limit - self.used


class MemoryReading(msgspec.Struct, frozen=True):
    """A memory *at* a time on the monotonic clock; ``label`` follows what is left."""

    room: MemoryRoom
    at: Seconds
    label: str


class MachineMemoryGauge:
    """Reads the limits of this machine; *limit* applies to the tasks' own memory."""

    def __init__(
        self,
        limit: Bytes | None = None,
        *,
        proc_folder: str = "/proc",
        root: str = "/sys/fs/cgroup",
    ) -> None:
        self._limit = limit
        self._proc = proc_folder
        self._groups, self._version = limited_groups(proc_folder, root)
        self.is_grouped = bool(self._groups)
        self.is_limited = self.is_grouped or limit is not None  # to less than all

    def tightest(self, tasks: Bytes) -> MemoryRoom | None:
        """Return the limit with least left; the tasks together hold *tasks* bytes."""
        rooms = [self._read(folder, limit) for folder, limit in self._groups.items()]
        # without a group, or within its limit, the machine may run out first
        rooms.append(self._machine())
        if self._limit is not None:
            rooms.append(MemoryRoom(tasks, self._limit))
        known = [room for room in rooms if room is not None]
        return min(known, key=lambda room: room.free, default=None)

    def _read(self, folder: str, limit: Bytes) -> MemoryRoom | None:
        names = {1: ("memory.usage_in_bytes", b"total_inactive_file")}
        name, key = names.get(self._version, ("memory.current", b"inactive_file"))
        used = _decimal_or_none(file_head(f"{folder}/{name}"))
        if used is None:
            return None
        # so that a key matches only where a line begins
        stat = b"\n" + file_head(f"{folder}/memory.stat")
        _, _, rest = stat.partition(b"\n" + key + b" ")
        cache = _decimal_or_none(rest.partition(b"\n")[0]) or 0
        return MemoryRoom(max(0, used - cache), limit)

    def _machine(self) -> MemoryRoom | None:
        """Read the whole machine: MemTotal and MemAvailable."""
        # MemTotal, MemFree, MemAvailable: three lines of three words
        words = file_head(f"{self._proc}/meminfo").split(None, 9)
        if words[0:1] != [b"MemTotal:"] or words[6:7] != [b"MemAvailable:"]:
            return None
        total, available = _decimal_or_none(words[1]), _decimal_or_none(words[7])
        if total is None or available is None:
            return None
        return MemoryRoom((total - available) * KIB, total * KIB)


def _decimal_or_none(file_content: bytes) -> int | None:
    digits = file_content.strip()
    return int(digits) if digits.isdigit() else None


class AttemptMemory(NamedTuple):
    """What an attempt holds now, has held at most, and may hold; 0: unknown."""

    now: Bytes
    most: Bytes
    allowed: Bytes

    @property
    def excess(self) -> Bytes:
        """Return by how much it exceeds what it may hold; 0 if that is unknown."""
        return max(0, self.now - self.allowed) if self.allowed else 0


_STALE: Seconds = 10.0  # a driver without a reading for so long hangs
_UNKNOWN: Seconds = 0.5  # until the next look for a first reading
_NEVER = float("inf")
_GRACE = 2.0  # seconds that a task has to end when memory is short
_NOISE = MIB  # a peak counts if it exceeds weigh's own size by more


class GuardedMemory:
    """One memory that tasks share: the host's, or that of a GPU.

    ``stop`` is why a task is stopped that takes too much of it, and its name in a
    reservation. ``need`` is what a task needs; 0 until it was short. ``due`` is when to
    look next. ``is_desperate``: at the last look, too little was left to let a task
    end. Readings from before ``ended_at`` still have what a task held that ended then.
    """

    def __init__(
        self,
        stop: MemoryKind = "memory",
        read: Callable[[Collection[TaskAttempt]], MemoryReading | None] = (
            lambda _tasks: None
        ),
        gpu_name: str | None = None,
    ) -> None:
        """*read* returns how much is left next to these tasks; None if unknown."""
        self.stop: MemoryKind = stop
        self.gpu_name = gpu_name  # None: the machine's only GPU
        self.need: Bytes = 0
        self.due: Seconds = 0.0
        self.is_desperate = False
        self.ended_at: Seconds = 0.0
        self._read = read
        # both are fractions of the limit
        self._margin, self._ahead = (
            (_MARGIN, 1.0) if stop == "memory" else (_GPU_MARGIN, _GPU_AHEAD)
        )
        self._before: tuple[Seconds, Bytes] | None = None  # last look: time, used
        self._growth = 0.0  # bytes per second
        # since when plans and other usage exceed the limit; None: they do not
        self._misfit_at: Seconds | None = None
        # recent looks: time, limit, what was used by anything but the tasks
        self._others: list[tuple[Seconds, Bytes, Bytes]] = []
        self._patient_until: Seconds = 0.0

    def _sharing(self, running: Collection[TaskAttempt]) -> Collection[TaskAttempt]:
        if self.stop == "memory":
            return running
        return [attempt for attempt in running if attempt.slot.gpu == self.gpu_name]

    def _held(self, attempt: TaskAttempt) -> AttemptMemory:
        kind, plan = self.stop, attempt.plan
        level = attempt.host if kind == "memory" else attempt.gpu
        allowed = max(getattr(attempt.reservation, kind), getattr(plan, kind))
        return AttemptMemory(level.now, level.peak, allowed)

    def room(self, sharing: Collection[TaskAttempt]) -> MemoryRoom | None:
        """Return how much is left, by the last reading."""
        reading = self._read(sharing)
        return None if reading is None else reading.room

    def look(
        self, current_time: Seconds, running: Collection[TaskAttempt]
    ) -> tuple[TaskAttempt, str] | None:
        """Return the task to stop where memory is about to run out, and why."""
        sharing = self._sharing(running)
        reading = self._read(sharing)
        self.is_desperate = False
        # nothing is stopped for figures that may no longer be true
        if reading is None or current_time - reading.at > _STALE:
            # of a host without a limit there is nothing to guard
            self.due = current_time + (_NEVER if self.stop == "memory" else _UNKNOWN)
            return None
        room = reading.room
        is_close = room.used > _CLOSE * room.limit
        self.due = current_time + (_OFTEN if is_close else _SELDOM)
        is_short = self.is_short(reading.at, room, sharing)
        if not is_short or reading.at <= self.ended_at:
            return None
        self.is_desperate = _leaves_no_time(room)
        victim = self.victim(sharing, current_time)
        if victim is None:
            return None
        excess = self._held(victim).excess
        over = f", {format_size(excess)} over plan" if excess else ""
        return victim, f"{format_size(max(0, room.free))} {reading.label}{over}"

    def is_short(
        self,
        current_time: Seconds,
        memory_room: MemoryRoom,
        running: Collection[TaskAttempt] = (),
    ) -> bool:
        """Return whether a task has to be stopped because memory is about to run out.

        It is not if all *running* tasks keep within plans that fit together.
        """
        # always both: each keeps figures that its next call compares with
        is_tight = self._is_tight(current_time, memory_room)
        fits = self._fits_if_as_planned(current_time, memory_room, running)
        return is_tight and not fits

    def _fits_if_as_planned(
        self,
        current_time: Seconds,
        memory_room: MemoryRoom,
        running: Collection[TaskAttempt],
    ) -> bool:
        held = [self._held(attempt) for attempt in running]
        # without a plan, or beyond it, a task may take any amount
        if not held or any(one.excess or not one.allowed for one in held):
            self._misfit_at = None
            return False
        limit = memory_room.limit
        # recent growth is in the total already, and not yet in the figures of a task:
        # the least that was recently used by anything but the tasks counts
        others = max(0, memory_room.used - sum(one.now for one in held))
        recent = (at for at in self._others if at[0] > current_time - _LATELY)
        self._others = [at for at in recent if at[1] == limit]
        self._others.append((current_time, limit, others))
        planned = sum(max(one.allowed, one.now) for one in held)
        if planned + min(at[2] for at in self._others) > limit * (1 + self._margin):
            return False
        if not _leaves_no_time(memory_room) or planned + others <= limit:
            self._misfit_at = None
            return True
        # figures of tasks may be older than the total: wait until they agree
        if self._misfit_at is None:
            self._misfit_at = current_time
        return current_time - self._misfit_at < _OLDEST

    def _is_tight(self, current_time: Seconds, memory_room: MemoryRoom) -> bool:
        """Return whether memory is about to run out at its present growth."""
        self._growth /= 2  # one look without growth may be chance
        if self._before is not None and current_time > self._before[0]:
            at, used = self._before
            rise = (memory_room.used - used) / (current_time - at)
            self._growth = max(self._growth, rise)
        self._before = (current_time, memory_room.used)
        margin = self._margin * memory_room.limit
        return memory_room.free < max(margin, self._grown(memory_room, _AHEAD))

    def _grown(self, memory_room: MemoryRoom, time_ahead: Seconds) -> float:
        return min(self._growth * time_ahead, self._ahead * memory_room.limit)

    def victim(
        self, running: Collection[TaskAttempt], current_time: Seconds = 0.0
    ) -> TaskAttempt | None:
        """Choose the task to stop: the one furthest over its plan, else the youngest.

        Return None for a single task, and for a moment after another was stopped to
        make room. Tasks that are ending for another reason are left out.
        """
        # what was stopped a moment ago still holds its memory
        makes_room = any(attempt.state.stop in MADE_ROOM for attempt in running)
        if makes_room and current_time < self._patient_until:
            return None
        left = [attempt for attempt in running if attempt.state.stop is None]
        over = [attempt for attempt in left if self._held(attempt).excess]
        if len(running) < 2 or not (over or left[1:]):  # noqa: PLR2004
            return None
        self._patient_until = current_time + _PATIENCE
        if over:
            return max(over, key=lambda attempt: self._held(attempt).excess)
        unplanned = [attempt for attempt in left if not self._held(attempt).allowed]
        return max(unplanned or left, key=lambda attempt: attempt.launch.began)

    def learn(self, attempt: TaskAttempt) -> None:
        """Note the most that a stopped task held, if it has no plan."""
        held = self._held(attempt)
        # not 0: memory was short, so each start is checked from now on
        need = 0 if held.allowed else round(held.most * _MORE)
        self.need = max(self.need, 1, need)

    def fits(
        self,
        running: Collection[TaskAttempt],
        reserved: TaskReservation,
        plan: TaskReservation = NO_RESERVATION,
    ) -> bool:
        """Return whether one more task fits next to those running."""
        sharing = self._sharing(running)
        needed = max(getattr(reserved, self.stop), getattr(plan, self.stop))
        return self.may_start(self.room(sharing), sharing, needed)

    def may_start(
        self,
        memory_room: MemoryRoom | None,
        running: Collection[TaskAttempt],
        needed: Bytes = 0,
    ) -> bool:
        """Return whether one more task fits, with those running at their full size.

        It needs *needed* bytes, or else as much as the others.
        """
        # with nothing running it may try, however much it needs
        if not running or memory_room is None:
            return True
        held = [self._held(attempt) for attempt in running]
        if not (self.need or needed or any(one.allowed for one in held)):
            return True
        # tasks of one file are similar: assume that the next needs as much as any
        largest = max((one.most for one in held if not one.allowed), default=0)
        need = max(self.need, round(largest * _MORE))
        growth = sum(max(0, (one.allowed or need) - one.now) for one in held)
        margin = self._margin * memory_room.limit + self._grown(memory_room, _SETTLING)
        return memory_room.free - margin >= growth + (needed or need)

    def reservation_after_stop(self, attempt: TaskAttempt) -> TaskReservation | None:
        """Return what to reserve for a task that was stopped; None without a plan."""
        held, room = self._held(attempt), self.room([attempt])
        if not held.allowed:
            return None
        size = max(held.allowed, round(held.most * _MORE))
        return self._reservation(size if room is None else min(size, room.limit))

    def larger_reservation(self, attempt: TaskAttempt) -> TaskReservation | None:
        """Return what to reserve for a task that ran out of it; None if unknown.

        That is no less than before: what was seen of it may be much less than it held.
        """
        room = self.room([attempt])
        if room is None:
            return None
        held = self._held(attempt)
        most = held.most
        if self.stop == "memory":
            reaped = attempt.usage.max_rss
            # samples miss short peaks, and the kernel's figure is of one process
            seen = reaped if reaped > attempt.floor + _NOISE else 0
            # with such an option it held less than that let it
            granted = attempt.launch.granted if uses_grant(attempt.text) else 0
            most = max(most, seen, granted)
        # half of all where nothing was seen of it: the next attempt runs alone
        size = max(_LARGER * most if most else room.limit // 2, held.allowed)
        return self._reservation(max(1, min(size, room.limit)))

    def _reservation(self, size: Bytes) -> TaskReservation:
        return TaskReservation(**{self.stop: size})


def _leaves_no_time(memory_room: MemoryRoom) -> bool:
    """Return whether too little is left to give a task time to end."""
    return memory_room.free < _LAST * memory_room.limit


class MemoryGuard:
    """Guards the memory of host and GPUs."""

    def __init__(
        self,
        context: "RunContext",
        gpus: Sequence[GuardedMemory],
        stopper: AttemptStopper,
    ) -> None:
        self._gauge = MachineMemoryGauge(context.options.memory)
        # granted memory counts if no group enforces it
        if not self._gauge.is_grouped:
            self._gauge = MachineMemoryGauge(context.memory_limit or None)
        self._host = GuardedMemory("memory", self._read_host)
        self._gpus = {gpu.gpu_name: gpu for gpu in gpus}
        self._all = (self._host, *gpus)
        self._stopper = stopper
        self._context = context
        self._is_calm = True  # memory was never short: starts need no look
        # what the plan has for all tasks that run at once
        self._room = context.shared.room if context.shared else NO_RESERVATION

    def _read_host(self, sharing: Collection[TaskAttempt]) -> MemoryReading | None:
        room = self._gauge.tightest(sum(attempt.host.now for attempt in sharing))
        at = time.monotonic()
        return None if room is None else MemoryReading(room, at, "of memory left")

    @property
    def due(self) -> Seconds:
        """Return when to look next."""
        return min(memory.due for memory in self._all)

    def fits(
        self,
        run_slot: RunSlot,
        running: Collection[TaskAttempt],
        reserved: TaskReservation,
        plan: TaskReservation = NO_RESERVATION,
    ) -> bool:
        """Return whether a task fits into *run_slot*, with *reserved* memory for it.

        What its *plan* states of memory matters once that has been short, if the plan
        has no room for all that run at once.
        """
        if not fits_by_plan(self._room, run_slot, running, plan):
            return False
        if not running or (self._is_calm and reserved == NO_RESERVATION):
            return True
        gpu = self._gpus.get(run_slot.gpu)
        return self._host.fits(running, reserved, plan) and (
            gpu is None or gpu.fits(running, reserved, plan)
        )

    def learn(self, attempt: TaskAttempt) -> None:
        """Note what a task held that was stopped to make room: others are similar."""
        self._is_calm = False
        for memory in self._all:
            if memory.stop == attempt.state.stop:
                memory.learn(attempt)

    def reservation_after_stop(self, attempt: TaskAttempt) -> TaskReservation | None:
        """Return what to reserve for a planned task that was stopped to make room."""
        memory = self._memory_of(attempt, on_gpu=attempt.state.stop == "gpu_memory")
        return None if memory is None else memory.reservation_after_stop(attempt)

    def had_everything(self, attempt: TaskAttempt, ending: AttemptEnding) -> bool:
        """Return whether a task ran out of memory that no other task took any of.

        Where the limit is the machine's, other users may have had the rest; where its
        command states what it was granted, a larger grant may help.
        """
        # in each of these cases an attempt alone may have more than this one had
        if ending.on_gpu or attempt.state.shared or uses_grant(attempt.text):
            return False
        room = self._host.room(()) if self._gauge.is_limited else None
        more = self.larger_reservation(attempt, ending)
        return room is not None and more is not None and more.memory >= room.limit

    def larger_reservation(
        self, attempt: TaskAttempt, ending: AttemptEnding
    ) -> TaskReservation | None:
        """Return what to reserve for a task that ran out of memory; None if unknown."""
        self._is_calm = False
        memory = self._memory_of(attempt, on_gpu=ending.on_gpu)
        return None if memory is None else memory.larger_reservation(attempt)

    def _memory_of(self, attempt: TaskAttempt, *, on_gpu: bool) -> GuardedMemory | None:
        return self._gpus.get(attempt.slot.gpu) if on_gpu else self._host

    def ended(self, attempt: TaskAttempt) -> None:
        """Note that an attempt ended: earlier readings still include its memory."""
        gpu = self._gpus.get(attempt.slot.gpu)
        if gpu is not None:
            gpu.ended_at = attempt.state.ended

    def look(self, current_time: Seconds, running: Collection[TaskAttempt]) -> None:
        """Stop a task where memory is about to run out."""
        for memory in self._all:
            if current_time < memory.due:
                continue
            found = memory.look(current_time, running)
            if memory is self._host and memory.is_desperate:
                # those that are being stopped hold what is needed now
                self._stopper.end_grace("memory")
                self._stopper.end_grace("timeout")
            if found is not None:
                victim, reason_text = found
                self._stopper.stop(victim, memory.stop, signal.SIGTERM, grace=_GRACE)
                self.learn(victim)
                self._context.console.notify(
                    f"{reason_text}: task {self._context.number_of(victim.seq)} is "
                    "stopped; it runs again next to fewer tasks"
                )


def fits_by_plan(
    room: TaskReservation,
    run_slot: RunSlot,
    running: Collection[TaskAttempt],
    plan: TaskReservation,
) -> bool:
    """Return whether a task fits next to those running, each at its planned need.

    What a task holds beyond its plan counts too. GPU memory is that of the slot's GPU.
    """
    # with nothing next to it a task may try, however much it needs
    if not running or room == NO_RESERVATION:
        return True
    memory = sum(max(one.plan.memory, one.host.now) for one in running)
    if room.memory and plan.memory and memory + plan.memory > room.memory:
        return False
    cpus = sum(one.plan.cpus for one in running)
    if room.cpus and cpus + plan.cpus > room.cpus:
        return False
    if not (room.gpu_memory and plan.gpu_memory):
        return True
    # only tasks on the same GPU share its memory
    there = [one for one in running if one.slot.gpu == run_slot.gpu]
    held = sum(max(one.plan.gpu_memory, one.gpu.now) for one in there)
    return not there or held + plan.gpu_memory <= room.gpu_memory


class TurnPlacer:
    """Assigns turns to free slots, as far as memory allows."""

    def __init__(
        self,
        queue: TurnQueue,
        free: FreeSlots,
        memory: MemoryGuard,
        context: "RunContext",
    ) -> None:
        self._queue = queue
        self._plan = context.plan
        self._free = free
        self._memory = memory
        self._passed = 0  # starts since the large turn that is next has waited

    def next(self, running: Collection[TaskAttempt]) -> tuple[TaskTurn, RunSlot] | None:
        """Return what to start now, given the *running* attempts; None for nothing."""
        large = self._queue.large
        # first, or a smaller task would take the memory that has just become free
        if large is not None:
            slot = self._slot(running, large.reservation)
            if slot is not None:
                self._passed = 0
                self._free.take(slot)
                return self._queue.take_large(), slot
            if self._passed >= MOST_PASSING:
                return None

        def place(task_number: int) -> RunSlot | None:
            return self._slot(running, NO_RESERVATION, self._plan.need_of(task_number))

        found = self._queue.take_where(len(running), place)
        if found is not None:
            self._passed += large is not None
            self._free.take(found[1])
        return found

    def _slot(
        self,
        running: Collection[TaskAttempt],
        reserved: TaskReservation,
        plan: TaskReservation = NO_RESERVATION,
    ) -> RunSlot | None:
        return self._free.find(
            lambda slot: self._memory.fits(slot, running, reserved, plan)
        )
