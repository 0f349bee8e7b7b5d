"""This machine as a scheduler: a job is a shell in the background.

A folder a job in the store: ``process`` says who runs it, ``exit`` how it ended.
"""

import os
import signal as signals
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from weigh.errors import SchedulerError, StoreError
from weigh.model.complexes import Complexes
from weigh.model.job import (
    CANCELLING,
    Elements,
    ElementState,
    JobScript,
    RecordedRequest,
    Submitted,
)
from weigh.model.record import State
from weigh.schedulers.job_script import ENDED
from weigh.schedulers.local.script import JOB, local_script
from weigh.schedulers.local.script import log_name as _log_name
from weigh.schedulers.protocol import Snapshot
from weigh.store.identity import Machine, Process, is_alive, process
from weigh.store.lines import UNREADABLE
from weigh.store.location import make_folder, private
from weigh.units import Seconds

NAME = "local"
FOLDER = "local"
_TAIL = 4096
_SIGNAL_BASE = 128
_TO_START: Seconds = 5.0
# a session of its own outlives this one; what ends the job is passed on to it
_KEEP = """
echo $$ >"$2/pid.new" && mv "$2/pid.new" "$2/pid"
trap 'kill -TERM "$job" 2>/dev/null; again=1' TERM
bash "$1" & job=$! again=1
until [ -z "$again" ]; do again=; wait "$job"; code=$?; done
echo "$code" >"$2/exit.new" && mv "$2/exit.new" "$2/exit"
"""
_START = 'setsid bash -c "$1" weigh "$2" "$3" >"$3/output" 2>&1 </dev/null & echo $!'


class Runs(msgspec.Struct, frozen=True):
    """Which process runs a job, and where."""

    machine: Machine
    process: Process


class Local:
    """This machine; *root* is the store."""

    name = NAME

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        root: str,
        machine: Machine,
        clock: Callable[[], Seconds] = time.time,
    ) -> None:
        self._env = env
        self._root = root
        self._machine = machine
        self._clock = clock

    def render(self, script: JobScript) -> str:
        """Write the job script."""
        return local_script(script)

    def log_name(self, job: str, element: int, *, is_array: bool) -> str:
        """Name the log of an element."""
        return _log_name(job, element, is_array=is_array)

    def foresee(self, script: str, *, cwd: str) -> Seconds | None:  # noqa: ARG002
        """Say nothing: it starts now."""
        return None

    def understood(self, job: str) -> RecordedRequest | None:  # noqa: ARG002
        """Say nothing: nobody asks for anything here."""
        return None

    def submit(self, script: str, *, cwd: str) -> str:
        """Start the script in the background.

        Raises:
            SchedulerError: it cannot be started.
        """
        job, folder = self._new_folder()
        _write(os.path.join(folder, "script"), os.fsencode(script))
        try:
            started = subprocess.run(
                ("/bin/bash", "-c", _START, "weigh", _KEEP, script, folder),
                cwd=cwd,
                env={**self._env, JOB: job},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                check=True,
            )
            pid = int(started.stdout)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise SchedulerError(f"cannot start {script}: {error}") from error
        runs = Runs(self._machine, process(pid))
        _write(os.path.join(folder, "process"), msgspec.json.encode(runs))
        return job

    def find(self, token: str, *, name: str) -> str | None:  # noqa: ARG002
        """Return the job whose script was started with *token* in its path."""
        top = os.path.join(self._root, FOLDER)
        for job in sorted(os.listdir(top)) if os.path.isdir(top) else ():
            folder = os.path.join(top, job)
            pid = _number(os.path.join(folder, "pid"))
            if pid is None or token not in _tail(os.path.join(folder, "script")):
                continue
            if (
                self._runs(job) is None
            ):  # who started it was killed before it noted that
                runs = Runs(self._machine, process(pid))
                _write(os.path.join(folder, "process"), msgspec.json.encode(runs))
            return job
        return None

    def patience(self) -> Seconds:
        """Return how long a shell that was started may take to note its number."""
        return _TO_START

    def states(self, jobs: Sequence[Submitted], *, fresh: bool = False) -> Snapshot:  # noqa: ARG002 - it always is
        """Look at the processes and logs."""
        states = {job.id: self._elements(job) for job in jobs}
        return Snapshot(states, self._clock())

    def gpu_types(self) -> tuple[str, ...]:
        """Give none: here nobody asks for a type."""
        return ()

    def cpus_beside_gpus(
        self,
        complexes: Complexes | None = None,  # noqa: ARG002
    ) -> str | None:
        """Give none: nobody counts slots here."""
        return None

    def array_limit(self, elements: int) -> int | None:  # noqa: ARG002
        """Give none."""
        return None

    def why(self, job: Submitted) -> str | None:
        """Say what the script itself had to say, outside of any element."""
        path = os.path.join(self._folder(job.id), "output")
        return _tail(path).strip().rpartition("\n")[2] or None

    def cancel(self, job: Submitted, elements: Sequence[int] | None) -> None:
        """Tell the job to end.

        Raises:
            SchedulerError: it runs elsewhere, or only some elements are meant.
        """
        if elements is not None and len(elements) < job.elements:
            raise SchedulerError("a job on this machine can only be cancelled whole")
        runs = self._runs(job.id)
        if runs is None or not self._machine.sees_processes_of(runs.machine):
            where = "nowhere" if runs is None else f"on {runs.machine.host}"
            raise SchedulerError(f"{job.id} runs {where}: cancel it there")
        _write(os.path.join(self._folder(job.id), "cancelled"), b"")
        if is_alive(runs.process):
            with suppress(ProcessLookupError):  # it may end this very moment
                os.kill(runs.process.pid, signals.SIGTERM)

    def _elements(self, job: Submitted) -> Elements:
        folder = self._folder(job.id)
        exit_code = _number(os.path.join(folder, "exit"))
        runs = self._runs(job.id)
        if runs is None:
            return {}
        sees = self._machine.sees_processes_of(runs.machine)
        lives = exit_code is None and sees and is_alive(runs.process)
        facts = _Facts(
            lives=lives,
            cancelled=os.path.exists(os.path.join(folder, "cancelled")),
            is_known=sees or exit_code is not None,
            node=runs.machine.host,
            words=self.why(job),
        )
        return {
            number: _state(_log_path(job, number), facts)
            for number in range(job.elements)
        }

    def _runs(self, job: str) -> Runs | None:
        try:
            with open(os.path.join(self._folder(job), "process"), "rb") as file:
                return msgspec.json.decode(file.read(), type=Runs)
        except (OSError, *UNREADABLE):
            return None

    def _folder(self, job: str) -> str:
        return os.path.join(self._root, FOLDER, job)

    def _new_folder(self) -> tuple[str, str]:
        """Number the job by the folder that nobody else made."""
        top = make_folder(self._root, FOLDER)
        numbers = [name.removeprefix(f"{NAME}-") for name in os.listdir(top)]
        number = max((int(n) for n in numbers if n.isdecimal()), default=0)
        while True:
            number += 1
            job = f"{NAME}-{number}"
            try:
                os.mkdir(os.path.join(top, job), 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(f"cannot write {top}: {error.strerror}") from error
            return job, os.path.join(top, job)


class _Facts(msgspec.Struct, frozen=True):
    """What is known of a job as a whole."""

    lives: bool
    cancelled: bool
    is_known: bool
    node: str
    words: str | None = None


def _state(log: str, facts: _Facts) -> ElementState:
    """Judge an element by the last line of its log, else by the job."""
    _, mark, code = _tail(log).rpartition(f"{ENDED} ")
    if mark and code.strip().isdecimal():
        return _ended(int(code), facts)
    state, reason = _unended(facts, begun=os.path.exists(log))
    return ElementState(state=state, reason=reason, node=facts.node)


def _ended(code: int, facts: _Facts) -> ElementState:
    stopped = facts.cancelled and code >= _SIGNAL_BASE
    state: State = "FAILED" if code else "COMPLETED"
    return ElementState(
        state="CANCELLED" if stopped else state, exit_code=code, node=facts.node
    )


def _unended(facts: _Facts, *, begun: bool) -> tuple[State, str | None]:
    if facts.lives:
        reason = CANCELLING if facts.cancelled else None
        return ("RUNNING" if begun else "PENDING"), reason
    if not facts.is_known:
        return "UNKNOWN", f"runs on {facts.node}"
    if facts.cancelled:
        return "CANCELLED", None
    if begun:
        return "INTERRUPTED", "it was killed, or the machine was restarted"
    return "FAILED", facts.words or "the script ended before it"


def _log_path(job: Submitted, number: int) -> str:
    return os.path.join(job.folder, "log", _log_name(job.id, number, is_array=True))


def _tail(path: str) -> str:
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _number(path: str) -> int | None:
    text = _tail(path).strip()
    return int(text) if text.isdecimal() else None


def _write(path: str, contents: bytes) -> None:
    try:
        with open(path, "wb", opener=private) as file:
            file.write(contents)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
