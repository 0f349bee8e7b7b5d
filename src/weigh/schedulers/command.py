"""Run one scheduler command, which may be missing, slow, failing or garbled."""

import ctypes
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from weigh.errors import SchedulerError, WeighError
from weigh.schedulers import KINDS
from weigh.units import Seconds

_PR_SET_PDEATHSIG = 1  # prctl(2): a signal at the parent's death
_KILLED = 128 + 9  # as a shell reports KILL
_LONGEST_WORD = 300  # characters of an error message
_AFTER_THE_KILL: Seconds = 1.0  # for the output that is left in its pipes


class NoAnswerError(SchedulerError):
    """A command did not end in time."""


class CommandOutput(msgspec.Struct, frozen=True):
    """What a command printed, and its exit code.

    ``trouble`` is why there is no answer: command not found, or too slow.
    """

    code: int = 127  # as a shell reports a command that is not there
    out: str = ""
    err: str = ""
    trouble: str | None = None

    @property
    def is_answer(self) -> bool:
        """Return whether the command succeeded."""
        return self.code == 0

    @property
    def text(self) -> str | None:
        """Return the output; None if the command failed."""
        return self.out if self.is_answer else None

    @property
    def words(self) -> str:
        """Return all that it printed, errors first."""
        return self.err + self.out

    def require(self, name: str) -> None:
        """Raise an error if the scheduler *name* did not answer.

        Raises:
            WeighError: the command is missing, too slow or failed.
        """
        if self.trouble is not None:
            raise WeighError(f"{name}: {self.trouble} (weigh top shows this machine)")
        if not self.is_answer:
            raise WeighError(f"{name} does not answer: {self.complaint()}")

    def complaint(self) -> str:
        """Return why the command failed, on one line, in its own words if possible."""
        text = self.trouble or "; ".join(final_errors(self.err or self.out))
        return text[:_LONGEST_WORD] or f"exit code {self.code} and no word"


def final_errors(printed: str) -> list[str]:
    """Return the lines of an error message: only what was fatal, if anything was."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    # Slurm prints errors that it went on after in front of the one that ended it
    return [line for line in lines if ": fatal: " in line] or lines


Runner = Callable[..., CommandOutput]


def run_scheduler_command(
    argv: tuple[str, ...],
    env: Mapping[str, str],
    *,
    timeout: Seconds,
    cwd: str | None = None,
    submits: bool = False,
) -> CommandOutput:
    """Run *argv* as a scheduler's command, set up to print formats that we can read.

    One that *submits* runs in *env* as it is, which the job inherits, and is killed
    together with this process.

    Raises:
        SchedulerError: it is not there.
        NoAnswerError: it takes longer than *timeout* seconds.
    """
    before = _dies_with(os.getpid()) if submits else None
    env = env if submits else query_environment(env)
    return run_as_is(argv, cwd, env, timeout=timeout, before=before)


def query_environment(
    env: Mapping[str, str], unset: tuple[str, ...] = ()
) -> dict[str, str]:
    """Return *env* so that all schedulers' commands print what we can read.

    Variables that begin with one of *unset* are removed, too.
    """
    variables = [kind.variables for kind in KINDS.values()]
    # users set formats for their own eyes (SQUEUE_FORMAT), which these parsers cannot
    # read
    off = (*unset, *(prefix for one in variables for prefix in one.unset))
    kept = {key: value for key, value in env.items() if not key.startswith(off)}
    fixed = dict(pair for one in variables for pair in one.fixed)
    # messages and numbers in English, whatever the user's language
    return kept | {"LC_ALL": "C"} | fixed


def outside_of_job(env: Mapping[str, str]) -> dict[str, str]:
    """Return *env* without the variables of a surrounding job, if there is one.

    sbatch reads it as options: the element of an array would hand its index on, and
    SBATCH_* of the job around it would win over the directives of the script.
    """
    variables = [kind.variables for kind in KINDS.values()]
    if not any(env.get(name) for one in variables for name in one.in_job):
        return dict(env)
    of_job = tuple(prefix for one in variables for prefix in one.of_job)
    to_reach = frozenset[str]().union(*(one.kept for one in variables))
    return {
        key: value
        for key, value in env.items()
        if key in to_reach or not key.startswith(of_job)
    }


def run_as_is(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    *,
    timeout: Seconds,
    before: Callable[[], None] | None = None,
) -> CommandOutput:
    """Run *argv* without input and read its output; undecodable bytes are escaped.

    *before* is called in the new process.

    Raises:
        SchedulerError: it is not there.
        NoAnswerError: it takes longer than *timeout* seconds.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # a group of its own: it can be killed with its children, and no Ctrl-C
            # reaches it
            start_new_session=True,
            preexec_fn=before,  # noqa: PLW1509 - one system call, and one thread
        )
    except FileNotFoundError as error:
        # Popen raises the same error for a missing folder as for a missing program
        if cwd is not None and error.filename == cwd:
            raise SchedulerError(f"cannot run {argv[0]}: there is no {cwd}") from error
        raise SchedulerError(f"{argv[0]} is not on this machine") from error
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SchedulerError(f"cannot run {argv[0]}: {why}") from error
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        _kill_process_tree(process)
        raise NoAnswerError(
            f"{argv[0]} did not answer within {timeout:g} seconds"
        ) from error
    # Ctrl-C in weigh: the command, in its own session, did not get it
    except BaseException:
        _kill_process_tree(process)
        raise
    return CommandOutput(process.returncode, _printed_text(out), _printed_text(err))


def lines_of_command(argv: Sequence[str], *, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines that a scheduler's command prints, without keeping them.

    A newline ends a line, and nothing else does.

    Raises:
        SchedulerError: it is not there, or failed after the lines that it printed.
    """
    import tempfile  # noqa: PLC0415 - start-up time

    try:
        with (
            # a file, not a pipe: nobody reads it meanwhile, and a full pipe would stop
            # the command
            tempfile.TemporaryFile() as complaints,
            subprocess.Popen(
                list(argv),
                env=query_environment(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=complaints,
            ) as process,
        ):
            try:
                with io.TextIOWrapper(
                    process.stdout or io.BytesIO(),
                    encoding="utf-8",
                    errors="backslashreplace",
                    newline="\n",
                ) as lines:
                    yield from lines
            # the reader stopped early: without this the exit would wait for the rest of
            # the list
            except BaseException:
                process.kill()
                raise
            if process.wait() != 0:
                complaints.seek(0)
                ran = CommandOutput(
                    process.returncode, "", _printed_text(complaints.read(4096))
                )
                why = ran.complaint().removeprefix(f"{argv[0]}: ")
                raise SchedulerError(f"{argv[0]}: {why}")
    except FileNotFoundError as error:
        raise SchedulerError(f"{argv[0]} is not on this machine") from error


def _kill_process_tree(process: subprocess.Popen[bytes]) -> None:
    """Kill *process* and its children; do not wait for one that cannot be killed.

    Its children may keep our pipe open.
    """
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    # it has ended meanwhile
    except OSError:
        return
    try:
        process.communicate(timeout=_AFTER_THE_KILL)
    except subprocess.TimeoutExpired:
        return


def _dies_with(parent: int) -> Callable[[], None] | None:
    """Return a function that makes Linux kill the new process when *parent* dies.

    A killed weigh must not leave behind a command that submits the job later.
    """
    if sys.platform != "linux":
        return None
    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return None

    def die_with_parent() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        # the parent died before prctl: the signal will not come any more
        if os.getppid() != parent:
            os._exit(_KILLED)

    return die_with_parent


def _printed_text(printed: bytes) -> str:
    return printed.decode("utf-8", "backslashreplace")


def unanswered(replies: Mapping[str, CommandOutput]) -> tuple[str, ...]:
    """Return a note for each command, by name, that did not answer."""
    return tuple(
        f"{name} does not answer: {reply.complaint()}"
        for name, reply in replies.items()
        if not reply.is_answer
    )
