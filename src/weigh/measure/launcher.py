"""A child that is forked while weigh is small, and later becomes the job.

A child's ru_maxrss starts with its parent's memory at the fork; with vfork or
posix_spawn, with its parent's peak. The children that become jobs are therefore forked
first, with plain fork, while this process is a bare interpreter. For the same reason
this module imports only built-in modules, and what they are enough for.

The child waits on a pipe for what to start, and then executes it. If weigh dies first,
the pipe closes and the child ends. Its signals are blocked while it waits, so that
Ctrl-C during one run does not affect the children for the next runs.
"""

import _signal  # type: ignore[import-not-found]  # signal itself imports enum
import marshal
import os
import sys
import time

from weigh.errors import (
    NOT_FOUND,
    CommandNotExecutableError,
    CommandNotFoundError,
    WeighError,
)
from weigh.regular_file import file_head, whole_file

_ENOENT, _ENOEXEC, _EACCES, _ENOTDIR = 2, 8, 13, 20
_OF_SHELLS = frozenset("|&;<>()$`")  # characters that only a shell gives a meaning
_LANGUAGES = {".py": "python", ".R": "Rscript", ".jl": "julia"}
_BUILTINS = frozenset(("cd", "conda", "export", "module", "source", "ulimit"))
_MOST_WAITING = 32  # launchers for further repeats are forked later
# values of LC_CTYPE that the interpreter sets by itself
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")

# the signal mask that weigh was started with; the job gets the same
_first_mask = (
    _signal.pthread_sigmask(_signal.SIG_BLOCK, ()) if sys.platform != "win32" else ()
)


# command, variables to set, files to open in place of descriptors
_ToStart = tuple[list[bytes], dict[bytes, bytes], dict[int, str]]


def fork_with_pipes() -> tuple[int, int, int]:
    """Fork; return the process id, 0 in the child, and two ends of pipes.

    One is to read what the other process writes, and one to write to it.

    Raises:
        OSError: there are no descriptors, or there can be no process.
    """
    child_reads, parent_writes = os.pipe()
    parent_reads, child_writes = os.pipe()
    ends = (parent_reads, parent_writes), (child_reads, child_writes)
    try:
        pid = os.fork()
    except OSError:
        for end in (*ends[0], *ends[1]):
            os.close(end)
        raise
    own, others = ends if pid else reversed(ends)
    for end in others:
        os.close(end)
    return pid, *own


class JobLauncher:
    """One waiting child; ``pid`` becomes the process id of the job."""

    def __init__(self) -> None:
        """Fork the child. Raises OSError."""
        self.pid, *ends = fork_with_pipes()
        if self.pid == 0:
            _become_the_job(*ends)
        self._status, self._go = ends

    def launch(
        self,
        command: list[str],
        env: dict[str, str],
        streams: dict[int, str] | None = None,
    ) -> tuple[float, int]:
        """Let the child exec *command* with *env* added to the environment.

        *streams* maps descriptors to the files to open in their place: ``>PATH`` for
        writing, ``<>PATH`` for both. A file that cannot be opened is skipped. Returns
        when the command started, on the monotonic clock, and the child's own memory
        peak, which the kernel later includes in the job's: once the command runs, or
        once a signal has ended the child before, which then counts as the end of the
        job.

        Raises:
            CommandNotFoundError: the command does not exist.
            CommandNotExecutableError: it cannot be executed.
        """
        words = [os.fsencode(word) for word in command]
        settings = {os.fsencode(name): os.fsencode(env[name]) for name in env}
        to_start: _ToStart = words, settings, streams or {}
        try:
            # End of file cannot mark its end, because the children hold each other's
            # pipes open
            with open(self._go, "wb") as go:
                go.write(marshal.dumps(to_start))
        except BrokenPipeError:  # it has been killed, and leaves no figures
            pass
        with open(self._status, "rb") as status:
            # "!" and an errno follow if exec failed; at success exec closes the pipe
            figures, _, failure = status.read().partition(b"!")
        if failure:
            os.waitpid(self.pid, 0)
            raise launch_error(command[0], int(failure))
        # a child that was killed before has written nothing
        start, _, peak = figures.partition(b" ")
        return float(start or time.monotonic()), int(peak or 0)

    def discard(self) -> None:
        """End the child without running a command."""
        os.close(self._go)
        os.close(self._status)
        end_child(self.pid)


def has_child_ended(pid: int) -> bool:
    """Return whether a child has ended; its status stays for who reaps it."""
    try:
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, pid, flags) is not None
    except ChildProcessError:  # it is reaped already
        return True


def end_child(pid: int) -> None:
    """Kill a child if it is still running, and reap it."""
    if not has_child_ended(pid):  # once it is reaped, the id may be another's
        os.kill(pid, _signal.SIGKILL)
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def prepare(argv: list[str]) -> list[JobLauncher]:
    """Fork a launcher for each run of ``weigh`` *argv*, before any import.

    Errors in *argv* are reported later, by the command line.
    """
    # without "--" no command is run; what follows it is the job's, not weigh's
    if argv[:1] != ["run"] or "--" not in argv or not hasattr(os, "fork"):
        return []
    runs = _runs_typed(argv[: argv.index("--")])
    launchers = [JobLauncher()]
    while len(launchers) < min(runs, _MOST_WAITING):
        try:
            launchers.append(JobLauncher())
        except OSError:  # one is enough to begin: others are forked when needed
            break
    return launchers


def _runs_typed(words: list[str]) -> int:
    """Return how many runs ``--repeat 10,2`` asks for, 1 if it is not given."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name == "--repeat":
            value = value if equals else "".join(words[at + 1 : at + 2])
            return sum(int(count) for count in value.split(",") if count.isdecimal())
    return 1


def _become_the_job(go: int, status: int) -> None:
    """Wait for what to start and execute it; never returns."""
    try:
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        with open(go, "rb") as pipe:
            start = marshal.load(pipe)  # noqa: S302 - our parent wrote it
        _restore_signals()
        command, settings, streams = start
        _open_streams(streams)
        env = first_environment() | settings
        folders = os.get_exec_path()  # before the peak is read: it imports warnings
        # on a busy machine weigh itself may not run for a while from here on
        os.write(status, b"%f %d" % (time.monotonic(), own_peak()))
        _exec(command, folders, env)
    except EOFError:  # weigh has ended
        os._exit(0)
    except OSError as error:
        os.write(status, b"!%d" % (error.errno or _ENOENT))
    except ValueError:  # no command has an empty name
        os.write(status, b"!%d" % _ENOENT)
    finally:
        # only if exec failed: at success nothing of this is left
        os._exit(NOT_FOUND)


def exec_command(command: list[str]) -> None:
    """Become *command*, as a shell's exec does; never returns.

    Raises:
        CommandNotFoundError: the command does not exist.
        CommandNotExecutableError: it cannot be executed.
    """
    _restore_signals()
    words = [os.fsencode(word) for word in command]
    try:
        _exec(words, os.get_exec_path(), first_environment())
    except OSError as error:
        raise launch_error(command[0], error.errno or _ENOENT) from error


def _open_streams(streams: dict[int, str]) -> None:
    for target, word in streams.items():
        how, _, path = word.partition(">")
        mode = os.O_RDWR if how else os.O_WRONLY
        try:
            opened = os.open(path, mode | os.O_NOCTTY)
        except OSError:
            # the job keeps weigh's own stream instead
            continue
        # dup2 makes the copy inheritable, which an opened file is not
        os.dup2(opened, target)
        if opened != target:
            os.close(opened)


def first_environment() -> dict[bytes, bytes]:
    """Return the environment that weigh was started with.

    In a C locale the interpreter adds LC_CTYPE to it (PEP 538).
    """
    env = dict(os.environb)
    if env.get(b"LC_CTYPE") not in _COERCED or env.get(b"LC_ALL"):
        return env
    first = whole_file("/proc/self/environ")
    if first:
        del env[b"LC_CTYPE"]
    for setting in first.split(b"\0"):
        if setting.startswith(b"LC_CTYPE="):
            env[b"LC_CTYPE"] = setting.partition(b"=")[2]
    return env


def _exec(command: list[bytes], folders: list[str], env: dict[bytes, bytes]) -> None:
    """Exec as execvp(3) does: search PATH, and use sh for files without #! line."""
    name = command[0]
    paths = [os.path.join(os.fsencode(folder), name) for folder in folders]
    failure: OSError = FileNotFoundError(_ENOENT, "")
    for path in [name] if b"/" in name else paths:
        try:
            os.execve(path, command, env)  # noqa: S606 - argv as the user gave it
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == _ENOEXEC and not _in_other_language(path):
                script = [b"/bin/sh", path, *command[1:]]
                os.execve("/bin/sh", script, env)  # noqa: S606
            # a file in PATH in place of a folder is not the reason to report
            if error.errno != _ENOTDIR or b"/" in name:
                failure = error
    raise failure


def _in_other_language(path: bytes) -> bool:
    """Return whether the file's name shows that it is not a script for sh."""
    return os.path.splitext(os.fsdecode(path))[1] in _LANGUAGES


def own_peak() -> int:
    """Read this process's VmHWM in bytes; 0 where /proc is hidden."""
    text = file_head("/proc/self/status", 4096)
    at = text.find(b"VmHWM:")
    return int(text[at:].split(None, 2)[1]) * 1024 if at >= 0 else 0


def _restore_signals() -> None:
    """Undo what the interpreter changed, so that the job starts as from a shell.

    An exec resets handlers, but until then Ctrl-C must end this child without a
    traceback. Ignored signals (nohup, ``cmd &``) stay ignored. Pending signals are
    discarded by ignoring them: they were for another run, or weigh passes them on.
    Whether weigh was started with SIGPIPE ignored is not known.
    """
    for number in _signal.sigpending():
        if _signal.getsignal(number) is not _signal.SIG_IGN:
            _signal.signal(number, _signal.SIG_IGN)
            _signal.signal(number, _signal.SIG_DFL)
    if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, _first_mask)


def launch_error(name: str, number: int) -> WeighError:
    """Return the error for *name*, which did not start; *number* is the errno."""
    path = _program_file(name)
    if number == _ENOENT:
        why = f"command not found: {name or repr(name)}{_program_suggestion(name)}"
        if path is not None:
            why = script_trouble(name) or f"{name}: {_missing_part(path)}"
        return CommandNotFoundError(why)
    advice = _interpreter_advice(name)
    why = f"cannot execute {name}: {os.strerror(number)}"
    if os.path.isdir(name):
        why = f"{name} is a directory"
    elif number == _ENOEXEC:
        advice = advice or f"bash {_shell_word(name)}"
        why = f"{name} has no #! line   (write: {advice})"
    elif number == _EACCES and path is not None and not os.access(path, os.X_OK):
        advice = advice or f"chmod +x {_shell_word(name)}"
        why = f"cannot execute {name}: it is not executable   (write: {advice})"
    return CommandNotExecutableError(why)


def script_trouble(name: str) -> str | None:
    """Return what is wrong with the first line of a script that ended with 127.

    A line end of Windows is part of the interpreter's name to the kernel and to env(1).
    """
    path = _program_file(name)
    first = _first_line_of_program(path)
    if path is not None and first.startswith(b"#!") and first.endswith(b"\r"):
        fix = f"dos2unix {_shell_word(path)}"
        return f"{name}: its first line ends as on Windows   ({fix})"
    return None


def _missing_part(path: str | None) -> str:
    """Return why the kernel finds no program for a file that exists."""
    first = _first_line_of_program(path)
    if not first.startswith(b"#!"):
        return "built for another system: its loader does not exist"
    interpreter = os.fsdecode(b"".join(first[2:].split()[:1]))
    return f"its interpreter does not exist: {interpreter}   (see its first line)"


def _first_line_of_program(path: str | None) -> bytes:
    return file_head(path or "", 4096).partition(b"\n")[0]


def _interpreter_advice(name: str) -> str | None:
    """Return how to run a program whose name says its language."""
    program = _LANGUAGES.get(os.path.splitext(name)[1])
    if program == "python" and not _program_file(program):
        program = "python3"  # Debian has no other
    return None if program is None else f"{program} {_shell_word(name)}"


def _shell_word(word: str) -> str:
    import shlex  # noqa: PLC0415 - only in messages

    return shlex.quote(word)


def _program_file(name: str) -> str | None:
    """Return the file that *name* stands for, executable or not."""
    # a name with a slash is not searched in PATH
    folders = [""] if "/" in name else os.get_exec_path()
    paths = (os.path.join(folder, name) for folder in folders)
    return next((path for path in paths if os.path.isfile(path)), None)


def _program_suggestion(name: str) -> str:
    """Return what was probably meant, in brackets.

    That is the words in quotes that were taken for one, a setting for env(1), a word of
    the shell's, a program without its interpreter, or a missing ``./``.
    """
    if len(name.split()) > 1:
        # quotes around a whole command line, with a pipe in it
        if set(name) & _OF_SHELLS:
            return f"   (for a shell: bash -c {_shell_word(name)})"
        return f"   (without the quotes: {name})"
    if _is_setting(name):
        return f"   (put env before it: env {name} ...)"
    if "/" in name:
        return ""
    if name in _BUILTINS:
        return f"   (for a shell: bash -c '{name} ... && COMMAND')"
    near = _interpreter_advice(name) if os.path.isfile(name) else None
    if near is None and os.access(name, os.X_OK) and not os.path.isdir(name):
        near = f"./{name}"
    return f"   (did you mean {near}?)" if near else ""


def _is_setting(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()
