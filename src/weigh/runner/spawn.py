"""Start a task: its command, environment, streams and cores."""

import _socket  # importing socket takes 5 ms
import os
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from weigh.measure.launcher import first_environment
from weigh.runner.attempt import TaskAttempt
from weigh.runner.run_context import RunContext
from weigh.runner.shell import LineShell
from weigh.runner.slots import RunSlot, gpu_settings, thread_settings
from weigh.schedulers import kind_of_job
from weigh.store.identity import process_identity
from weigh.sweep.variables import CPUS, MEMORY, with_expanded_placeholders
from weigh.units import MIB, Bytes, Seconds

# where the ranks of torch.distributed meet
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"
_PORT_OF_OURS = "WEIGH_PORT"
_TORCHRUN = "PET_MASTER_PORT"  # the default of torchrun's --master-port
_TRIES = 50  # ports drawn until one is not taken


def meeting_place(env: Mapping[str, str]) -> dict[str, str]:
    """Return MASTER_ADDR: this node's name if the job has several nodes.

    Return none if the user set it.
    """
    if ADDRESS in env:
        return {}
    kind = kind_of_job(env)
    nodes = "1" if kind is None else env.get(kind.variables.nodes or "", "1")
    several = nodes not in {"", "0", "1"}
    return {ADDRESS: os.uname().nodename if several else "127.0.0.1"}


def port_names(env: Mapping[str, str]) -> tuple[str, ...]:
    """Name the variables that a task's port goes into: those the user did not set."""
    return (_PORT_OF_OURS, *(name for name in (PORT, _TORCHRUN) if name not in env))


def free_port(taken: Collection[int] = ()) -> int | None:
    """Find a port that no process listens on, and none of *taken*.

    Those may be assigned to tasks that do not listen yet. Return None without a
    network.
    """
    held: list[
        _socket.socket
    ] = []  # an open socket keeps its port from being returned again
    try:
        for _ in range(_TRIES):
            held.append(_socket.socket(_socket.AF_INET, _socket.SOCK_STREAM))
            held[-1].bind(("", 0))  # the kernel chooses a free one
            port: int = held[-1].getsockname()[1]
            if port not in taken:
                return port
    except OSError:
        return None
    finally:
        for one in held:
            one.close()
    return None


MARK = b"WEIGH_TASK"
_MEMORY = MEMORY.encode()
_ENOENT, _EACCES, _ENOEXEC = 2, 13, 8
# tasks must not read weigh's own input, which may be the task file
_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
_INTERPRETER_IGNORES = frozenset(
    {signal.SIGPIPE, signal.SIGXFSZ}
)  # what the interpreter ignores
_PORT_LIFE: Seconds = 1.0  # finding one takes longer than many tasks run
_TICKS = os.sysconf("SC_CLK_TCK")  # per second


def granted_memory(
    attempt: TaskAttempt, limit: Bytes | None, slots: int
) -> Bytes | None:
    """Return what an attempt may hold: what is reserved or planned for it.

    Without either it is its share of the *limit*, for one of *slots*; None without one.
    """
    most = max(attempt.reservation.memory, attempt.plan.memory)
    if most:
        return most
    if limit is None:
        return None
    return limit if attempt.alone else limit // slots


class AttemptSpawner:
    """Starts the attempts of one run; their mark begins with the run's id."""

    def __init__(
        self, context: RunContext, channels: Mapping[int, Mapping[str, str]]
    ) -> None:
        """Prepare what all tasks share; *channels* are more variables by slot."""
        layout, env = context.layout, first_environment()
        self._run = context.id.encode()
        self._shell = LineShell(env)
        self._memory = context.memory_limit
        self._slots = max(1, len(layout.slots))
        self._mask = tuple(context.mask)
        self._everywhere = os.sched_getaffinity(0)  # to return to after a pinned start
        self._defaults = _signals_at_default()
        threads = thread_settings(os.environ, layout.threads)
        self._ports = [os.fsencode(name) for name in port_names(os.environ)]
        self._port_until: dict[int, Seconds] = {}
        self._port_of: dict[int, int] = {}
        # made once for each slot; a start changes only what differs by task
        self._envs = {
            slot.number: {
                **env,
                CPUS.encode(): b"%d" % max(1, layout.threads),
                **_encoded_environment(threads),
                **_encoded_environment(meeting_place(os.environ)),
                **_slot_settings(slot),
                **_encoded_environment(channels.get(slot.number, {})),
                **_encoded_environment(context.options.variables),
            }
            for slot in layout.slots
        }

    def start(self, attempt: TaskAttempt, streams: Sequence[int] | None) -> None:
        """Start *attempt*, with (stdout, stderr) as *streams* or else weigh's own.

        Raises:
            OSError: no process can be created.
        """
        env = self._envs[attempt.slot.number]
        env[b"PARALLEL_SEQ"] = b"%d" % attempt.seq
        env[MARK] = b"%b.%d" % (self._run, attempt.seq)
        granted = granted_memory(attempt, self._memory, self._slots)
        if granted is None:
            env.pop(_MEMORY, None)  # the shell then reports it
        else:
            env[_MEMORY] = b"%d" % max(1, granted // MIB)
            attempt.launch.granted = granted
        self._renew_port(attempt.slot.number, env)
        program, argv = self._shell.words(with_expanded_placeholders(attempt.text))
        cores = attempt.slot.cores
        if cores:
            # A child inherits the affinity of the thread that starts it. It also
            # prevents vfork from starting all children on one core.
            with suppress(OSError):  # the cores may have been taken from us
                os.sched_setaffinity(0, cores)
        attempt.launch.started, attempt.launch.began = time.time(), time.monotonic()
        earliest = _ticks_since_boot()
        try:
            attempt.launch.pid = self._spawn(program, argv, env, streams, attempt.text)
        finally:
            if cores:
                # to all cores: each move to another one costs 40 us of CPU
                with suppress(OSError):
                    os.sched_setaffinity(0, self._everywhere)
        # reading /proc waits for the end of the exec, so only in case of doubt
        latest = _ticks_since_boot()
        attempt.launch.start_time = (
            latest
            if earliest == latest
            else process_identity(attempt.launch.pid).start_time
        )

    def argv(self, task_text: bytes) -> tuple[str, ...]:
        """Return the argv that runs *task_text*, as stored in records."""
        return tuple(
            os.fsdecode(word)
            for word in self._shell.words(with_expanded_placeholders(task_text))[1]
        )

    def _renew_port(self, slot: int, env: dict[bytes, bytes]) -> None:
        """Assign a new port to a slot, unless its port is recent."""
        now = time.monotonic()
        if now < self._port_until.get(slot, 0.0):
            return
        self._port_until[slot] = now + _PORT_LIFE
        port = free_port(self._port_of.values())
        if port is not None:
            self._port_of[slot] = port
            env.update(dict.fromkeys(self._ports, b"%d" % port))

    def _spawn(
        self,
        program: bytes,
        argv: list[bytes],
        env: Mapping[bytes, bytes],
        streams: Sequence[int] | None,
        task_text: bytes,
    ) -> int:
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [_NO_INPUT]
        for number, stream in enumerate(streams or (), start=1):
            actions.append((os.POSIX_SPAWN_DUP2, stream, number))
        try:
            return self._posix_spawn(program, argv, env, actions)
        except OSError as error:
            if error.errno not in (_ENOENT, _EACCES, _ENOEXEC):
                raise
            # the shell reports the error into the task's output
            program, argv = self._shell.shell_words(task_text)
            return self._posix_spawn(program, argv, env, actions)

    def _posix_spawn(
        self,
        program: bytes,
        argv: list[bytes],
        env: Mapping[bytes, bytes],
        actions: Sequence[tuple[object, ...]],
    ) -> int:
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=actions,
            setpgroup=0,  # a group of its own, so that one signal reaches all of it
            setsigmask=self._mask,  # weigh itself blocks the signals it waits for
            setsigdef=self._defaults,
        )


def _signals_at_default() -> tuple[int, ...]:
    """Return the signals that are at their default in a task, as from a shell.

    An exec resets the others too, but naming fewer halves the system calls of a spawn.
    """
    fixed = {signal.SIGKILL, signal.SIGSTOP}
    return tuple(
        number
        for number in signal.valid_signals() - fixed
        if number in _INTERPRETER_IGNORES
        or signal.getsignal(number) is not signal.SIG_IGN
    )


def _ticks_since_boot() -> int:
    """Return the current time in the unit of a process's start time."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * _TICKS // 1_000_000_000


def _slot_settings(run_slot: RunSlot) -> dict[bytes, bytes]:
    number = b"%d" % run_slot.number
    settings = {b"PARALLEL_JOBSLOT": number, b"WEIGH_SLOT": number}
    return settings | _encoded_environment(gpu_settings(run_slot.gpu, os.environ))


def _encoded_environment(settings: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in settings.items()}
