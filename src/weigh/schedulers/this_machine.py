"""This machine as a scheduler: a job is a shell that runs in the background.

The store has one folder per job: ``process`` is the shell, ``exit`` its exit code.
"""

import os
import signal as signals
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from shlex import quote as quoted

import msgspec

from weigh.errors import SIGNAL_BASE, SchedulerError, StoreError, cannot_write, writing
from weigh.model.job import (
    CANCELLING,
    Elements,
    ElementState,
    JobScript,
    SubmittedJob,
)
from weigh.model.record import State
from weigh.regular_file import only_regular
from weigh.schedulers.job_script import (
    ENDED,
    KNOWN_CODE,
    ON_SIGNAL,
    SHEBANG,
    WAIT,
    ScriptRules,
    announce,
    at_exit,
    check_needs,
    heading,
    setup_lines,
    tasks_command,
)
from weigh.schedulers.kind import (
    Argv,
    SchedulerQuestion,
    SchedulerQuestions,
    known_answer,
)
from weigh.schedulers.reachable import JobSnapshot, Scheduler
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    is_alive,
    process_identity,
)
from weigh.store.lines import UNREADABLE, read_tail
from weigh.store.location import make_folder, open_privately
from weigh.units import Seconds

JOB = "WEIGH_JOB_ID"
FOLDER = "local"  # in the store: one folder per job
CANCELLED = "cancelled"  # there: the job is; with _N: its element N alone
ELEMENT = "element"  # there, with _N: the process of element N
AWAITED = "awaited"  # there: the ids of the jobs that it waits for, once changed
# a local job is never requeued; its shell may itself run inside a job of Slurm
LOCAL_RULES = ScriptRules(
    job_id="$job",
    requeue="",
    forget="${SLURM_RESTART_COUNT:+--forget-survivors}",
    checks_needs=True,
)
_LONGEST_WAIT = 1  # seconds between checks of a job to wait for


def local_script(job_script: JobScript) -> str:
    """Return the script; ``WEIGH_JOB_ID`` is the job id in the names of its logs."""
    return "\n".join(
        (SHEBANG, *heading(job_script), "", *_local_body_lines(job_script))
    )


def _local_body_lines(job_script: JobScript) -> Iterator[str]:
    at_once = job_script.request.throttle or 1
    yield f"export WEIGH_DIR={quoted(job_script.store)}"
    yield f"cd {quoted(job_script.cwd)} || exit"
    yield f"plan={quoted(job_script.folder)}"
    yield f"job=${{{JOB}:-here}}"
    yield f'own="$WEIGH_DIR/{FOLDER}/$job"'
    yield from announce(job_script, "$job")
    # the job that it waits for may make the environment
    yield from _wait_for_jobs_lines(job_script)
    yield from setup_lines(job_script)
    # nothing keeps an element to its CPUs: libraries would start the threads of all
    threads = max(1, job_script.request.cpus // job_script.together)
    yield f'export OMP_NUM_THREADS="${{OMP_NUM_THREADS:-{threads}}}"'
    yield ""
    # the function that an element calls at its end, if it notifies
    *function, trap = at_exit(job_script, LOCAL_RULES.job_id)
    yield from (line for line in function if line != "plan= requeued=")
    yield "element() {"
    yield f"  {trap}"
    yield "  element=$1 SECONDS=0"
    yield from _local_task_lines(job_script)
    yield "}"
    yield ""
    yield "# one element after the other, or a few at a time"
    yield "ended= worst=0"
    yield "trap 'ended=1 again=1; kill -TERM $(jobs -p) 2>/dev/null' TERM INT HUP"
    yield f"for number in {{0..{job_script.elements - 1}}}; do"
    yield f'  while [ "$(jobs -pr | wc -l)" -ge {at_once} ]; do wait -n; done'
    yield '  [ -z "$ended" ] || break'
    yield f'  [ ! -e "$own/{CANCELLED}_$number" ] || continue'
    yield '  element "$number" >"$plan/log/${job}_$number.out" 2>&1 &'
    yield "  all+=($!)"
    # a signal that came while the element was started did not find it
    yield '  [ -z "$ended" ] || kill -TERM $!'
    yield f'  [ ! -d "$own" ] || echo $! >"$own/{ELEMENT}_$number"'
    yield "done"
    yield 'for tasks in "${all[@]}"; do'
    yield "  again=1"
    yield f"  {WAIT}"
    yield '  [ "$code" -le "$worst" ] || worst=$code'
    yield "done"
    yield 'exit "$worst"\n'


def _local_task_lines(job_script: JobScript) -> Iterator[str]:
    if job_script.staging is not None:
        yield job_script.staged.rstrip("\n")
        return
    yield from (f"  {line}" for line in ON_SIGNAL)
    yield f"  {tasks_command(job_script, LOCAL_RULES)} &"
    yield "  tasks=$!"
    yield f"  {WAIT}"
    yield '  exit "$code"'


def _wait_for_jobs_lines(job_script: JobScript) -> Iterator[str]:
    """Yield the lines that wait for other local jobs; each writes an exit code file.

    What the job waits for may change meanwhile: then a file in its folder has the ids.
    """
    request = job_script.request
    ids = " ".join((*request.after, *request.after_end))
    if not ids:
        return
    yield ""
    yield "# after other jobs; kill -0 finds a zombie, which has ended"
    yield f'jobs="$WEIGH_DIR/{FOLDER}"'
    yield "awaited() {"
    yield f'  cat "$jobs/$job/{AWAITED}" 2>/dev/null || echo {quoted(ids)}'
    yield "}"
    yield "have_ended() {"
    yield "  for before; do"
    yield '    [ -e "$jobs/$before/exit" ] ||'
    yield '      { gone=$(cat "$jobs/$before/pid") &&'
    yield '        ! kill -0 "$gone" 2>/dev/null; } ||'
    yield "      return 1"
    yield "  done"
    yield "}"
    yield "until"
    yield "  these=$(awaited)"
    yield '  have_ended $these && [ "$these" = "$(awaited)" ]'
    yield "do"
    yield f"  sleep {_LONGEST_WAIT}"
    yield "done"
    yield from check_needs(job_script, LOCAL_RULES)


NAME = "local"
_TAIL = 4096  # bytes: the last line of a log
_TO_START: Seconds = 5.0
# a new session outlives this one; signals that end the job are passed on to it, also
# one that came before the job was started: cancel writes its mark first
_KEEP = f"""
echo $$ >"$2/pid.new" && mv "$2/pid.new" "$2/pid"
trap 'kill -TERM "$job" 2>/dev/null; again=1' TERM
bash "$1" & job=$! again=1
[ ! -e "$2/cancelled" ] || kill -TERM "$job"
until [ -z "$again" ]; do again=; wait "$job"; code=$?; done
{KNOWN_CODE}
echo "$code" >"$2/exit.new" && mv "$2/exit.new" "$2/exit"
"""
_START = 'setsid bash -c "$1" weigh "$2" "$3" >"$3/output" 2>&1 </dev/null & echo $!'


class JobRunner(msgspec.Struct, frozen=True):
    """The process that runs a job, and its machine."""

    machine: MachineIdentity
    process: ProcessIdentity


class LocalQuestions(SchedulerQuestions):
    """What this machine answers without a command."""

    def __init__(self, local_scheduler: "LocalScheduler") -> None:
        self._jobs = local_scheduler

    def patience(self) -> SchedulerQuestion[Seconds]:
        """Ask how long a started shell may take to write its process id."""
        return known_answer(_TO_START)

    def why(self, job_id: str) -> SchedulerQuestion[str | None]:
        """Ask for the last line that the script printed outside of its elements."""
        return SchedulerQuestion(lambda _: self._jobs.last_line_of(job_id))


class LocalScheduler(Scheduler):
    """This machine; *root* is the store."""

    name = NAME

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        root: str,
        machine: MachineIdentity,
        clock: Callable[[], Seconds] = time.time,
    ) -> None:
        self._env = env
        self._root = root
        self._machine = machine
        self._clock = clock
        self.questions = LocalQuestions(self)

    def render(self, job_script: JobScript) -> str:
        """Write the job script."""
        return local_script(job_script)

    def log_name(self, job_id: str, element: int, *, is_array: bool) -> str:
        """Return the name of an element's log."""
        return f"{job_id}_{element}.out"

    def submit(
        self,
        script: str,
        *,
        cwd: str,
        argv: Argv | None = None,  # a job script has one form here
    ) -> str:
        """Start the script in the background.

        Raises:
            SchedulerError: the job cannot be started.
        """
        job, folder = self._new_folder()
        # before the start: a weigh that is killed here finds the job by the token in it
        _write_local_file(os.path.join(folder, "script"), os.fsencode(script))
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
        self._record_process(folder, pid)
        return job

    def _record_process(self, folder: str, pid: int) -> None:
        runs = JobRunner(self._machine, process_identity(pid))
        _write_local_file(os.path.join(folder, "process"), msgspec.json.encode(runs))

    def find(self, token: str, *, name: str) -> str | None:
        """Return the job whose script was started with *token* in its path."""
        top = os.path.join(self._root, FOLDER)
        for job in sorted(os.listdir(top)) if os.path.isdir(top) else ():
            folder = os.path.join(top, job)
            pid = _number_in_file(os.path.join(folder, "pid"))
            if pid is None or token not in _end_of_local_log(
                os.path.join(folder, "script")
            ):
                continue
            # weigh was killed before it recorded the process
            if self._runs(job) is None:
                self._record_process(folder, pid)
            return job
        return None

    def states(
        self, submitted_jobs: Sequence[SubmittedJob], *, fresh: bool = False
    ) -> JobSnapshot:  # every answer is fresh
        """Return the states of jobs, from their processes and logs."""
        states = {job.id: self._elements(job) for job in submitted_jobs}
        return JobSnapshot(states, self._clock())

    def last_line_of(self, job_id: str) -> str | None:
        """Return the last line that the script printed outside of its elements."""
        path = os.path.join(self._folder(job_id), "output")
        return _end_of_local_log(path).strip().rpartition("\n")[2] or None

    def set_awaited_jobs(
        self, submitted_job: SubmittedJob, awaited_ids: tuple[str, ...]
    ) -> None:
        """Write which jobs a waiting one hangs on.

        Raises:
            StoreError: it cannot be written.
        """
        path = os.path.join(self._folder(submitted_job.id), AWAITED)
        _write_local_file(f"{path}.new", " ".join(awaited_ids).encode())
        os.replace(f"{path}.new", path)  # the script reads it meanwhile

    def cancel(
        self, submitted_job: SubmittedJob, elements: Sequence[int] | None
    ) -> None:
        """Send the job, or some of its elements, a signal to end.

        Raises:
            SchedulerError: the job runs elsewhere.
        """
        runs = self._runs(submitted_job.id)
        if runs is None or not self._machine.sees_processes_of(runs.machine):
            where = "nowhere" if runs is None else f"on {runs.machine.host}"
            raise SchedulerError(f"{submitted_job.id} runs {where}: cancel it there")
        mark = os.path.join(self._folder(submitted_job.id), CANCELLED)
        if elements is None or len(elements) == submitted_job.elements:
            _write_local_file(mark, b"")
            if is_alive(runs.process):
                _terminate(runs.process.pid)
            return
        for number in elements:
            _write_local_file(f"{mark}_{number}", b"")
            pid = _number_in_file(
                os.path.join(self._folder(submitted_job.id), f"{ELEMENT}_{number}")
            )
            if pid is not None and _is_grandchild(pid, runs.process.pid):
                _terminate(pid)

    def _elements(self, submitted_job: SubmittedJob) -> Elements:
        folder = self._folder(submitted_job.id)
        exit_code = _number_in_file(os.path.join(folder, "exit"))
        runs = self._runs(submitted_job.id)
        if runs is None:
            return {}
        sees = self._machine.sees_processes_of(runs.machine)
        lives = exit_code is None and sees and is_alive(runs.process)
        facts = _LocalJobFacts(
            lives=lives,
            cancelled=os.path.exists(os.path.join(folder, CANCELLED)),
            # the exit file is in the store, which other machines may share
            is_known=sees or exit_code is not None,
            node=runs.machine.host,
            words=self.last_line_of(submitted_job.id),
            awaited=self._awaited_that_run(submitted_job) if lives else (),
        )
        logs = os.path.join(submitted_job.folder, "log")
        alone = {name for name in os.listdir(folder) if name.startswith(CANCELLED)}
        as_cancelled = msgspec.structs.replace(facts, cancelled=True)
        return {
            number: _local_element_state(
                os.path.join(logs, f"{submitted_job.id}_{number}.out"),
                as_cancelled if f"{CANCELLED}_{number}" in alone else facts,
            )
            for number in range(submitted_job.elements)
        }

    def _awaited_that_run(self, submitted_job: SubmittedJob) -> tuple[str, ...]:
        """Return the jobs without an end that a job waits for, as its script does."""
        ids = (*submitted_job.request.after, *submitted_job.request.after_end)
        path = os.path.join(self._folder(submitted_job.id), AWAITED)
        with suppress(OSError), open(path, encoding="utf-8") as file:
            ids = tuple(file.read().split())
        ends = ((job, os.path.join(self._folder(job), "exit")) for job in ids)
        return tuple(job for job, end in ends if not os.path.exists(end))

    def _runs(self, job_id: str) -> JobRunner | None:
        try:
            with open(
                os.path.join(self._folder(job_id), "process"), "rb", opener=only_regular
            ) as file:
                return msgspec.json.decode(file.read(), type=JobRunner)
        except (OSError, *UNREADABLE):
            return None

    def _folder(self, job_id: str) -> str:
        return os.path.join(self._root, FOLDER, job_id)

    def _new_folder(self) -> tuple[str, str]:
        """Create the folder of a new job; return the job's id and the folder."""
        top = make_folder(self._root, FOLDER)
        numbers = [name.removeprefix(f"{NAME}-") for name in os.listdir(top)]
        number = max((int(n) for n in numbers if n.isdecimal()), default=0)
        while True:
            number += 1
            job = f"{NAME}-{number}"
            try:
                # mkdir succeeds for one of several processes: it is what makes the id
                # unique
                os.mkdir(os.path.join(top, job), 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise StoreError(cannot_write(top, error)) from error
            return job, os.path.join(top, job)


class _LocalJobFacts(msgspec.Struct, frozen=True):
    """The state of a job as a whole."""

    lives: bool  # its shell runs
    cancelled: bool
    is_known: bool  # False: on another machine
    node: str
    words: str | None = None
    awaited: tuple[str, ...] = ()  # jobs that have to end before it starts


def _local_element_state(log: str, facts: _LocalJobFacts) -> ElementState:
    """Return an element's state from the last line of its log, else from the job."""
    _, mark, code = _end_of_local_log(log).rpartition(f"{ENDED} ")
    if mark and code.strip().isdecimal():
        return _ended_local_element(int(code), facts)
    state, reason = _unended(facts, begun=os.path.exists(log))
    return ElementState(state=state, reason=reason, node=facts.node)


def _ended_local_element(code: int, facts: _LocalJobFacts) -> ElementState:
    # an element that ended by itself before the signal keeps its state
    stopped = facts.cancelled and code >= SIGNAL_BASE
    state: State = "FAILED" if code else "COMPLETED"
    return ElementState(
        state="CANCELLED" if stopped else state, exit_code=code, node=facts.node
    )


def _unended(facts: _LocalJobFacts, *, begun: bool) -> tuple[State, str | None]:
    if facts.lives:
        if facts.cancelled:
            return ("RUNNING" if begun else "PENDING"), CANCELLING
        waits = ", ".join(facts.awaited)
        why = f"waits for {waits} to end" if waits else "other elements run first"
        return ("RUNNING", None) if begun else ("PENDING", why)
    # another machine's process: only its exit file could show an end
    if not facts.is_known:
        return "UNKNOWN", f"runs on {facts.node}"
    if facts.cancelled:
        return "CANCELLED", None
    if begun:
        return "INTERRUPTED", "killed, or the machine was restarted"
    words = facts.words or "the script ended before this element"
    return "FAILED", words.removeprefix("weigh: ")


def _terminate(pid: int) -> None:
    with suppress(ProcessLookupError):  # the process may have ended meanwhile
        os.kill(pid, signals.SIGTERM)


def _is_grandchild(pid: int, above: int) -> bool:
    """Return whether the parent of the parent of a process is *above*.

    The shell of the job is in between. The number may be another process's by now.
    """
    parent = pid
    for _ in range(2):
        argv = ("ps", "-o", "ppid=", "-p", str(parent))
        ran = subprocess.run(argv, capture_output=True, text=True, check=False)
        if not ran.stdout.strip().isdecimal():
            return False
        parent = int(ran.stdout)
    return parent == above


def _end_of_local_log(path: str) -> str:
    return read_tail(path, _TAIL).decode("utf-8", "replace")


def _number_in_file(path: str) -> int | None:
    text = _end_of_local_log(path).strip()
    return int(text) if text.isdecimal() else None


def _write_local_file(path: str, contents: bytes) -> None:
    with writing(path), open(path, "wb", opener=open_privately) as file:
        file.write(contents)
