"""A child forked before weigh grows, waiting to become the job.

A child's ru_maxrss starts at what its launcher held when it forked, and with vfork or
posix_spawn at the most its launcher ever held. So the children that will be jobs are
forked first thing, by plain fork, while this process is a bare interpreter; that is
why this module may import nothing but what is built in.

The child waits for a payload on a pipe and then execs it. When weigh dies first, the
pipe closes and the child ends.
"""

import _signal  # type: ignore[import-not-found]  # signal itself imports enum
import os
import sys
import time

from weigh.errors import (
    CommandNotExecutableError,
    CommandNotFoundError,
    WeighError,
)

_ENOENT, _ENOEXEC = 2, 8
_MOST_WAITING = 32  # repeats beyond these are forked when their turn comes


class Launch:
    """What a child cost before it became the job, in bytes and CPU seconds.

    Both are part of what the kernel later reports as the job's own.
    """

    __slots__ = ("cpu_time", "peak_memory")

    def __init__(self, peak_memory: int, cpu_time: float) -> None:
        self.peak_memory = peak_memory
        self.cpu_time = cpu_time


# What a later child must not keep open: an earlier one would never see its pipe close
_kept_ends: set[int] = set()


class Launcher:
    """One waiting child: ``pid`` is the process id that the job will have."""

    def __init__(self) -> None:
        """Fork the child. Raises OSError when no process can be made."""
        go, self._go = os.pipe()
        self._status, status = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for end in (self._go, self._status, *_kept_ends):
                os.close(end)
            _become_the_job(go, status)
        os.close(go)
        os.close(status)
        _kept_ends.update((self._go, self._status))

    def launch(self, command: list[str], env: dict[str, str]) -> Launch:
        """Have the child exec *command* with *env* added to the environment.

        Returns when it runs, with what the child itself cost until then.

        Raises:
            CommandNotFoundError: no such command.
            CommandNotExecutableError: it cannot be executed.
        """
        _kept_ends.difference_update((self._go, self._status))
        words = [os.fsencode(word) for word in command]
        settings = [os.fsencode(f"{name}={value}") for name, value in env.items()]
        payload = b"\0".join([str(len(words)).encode(), *words, *settings])
        with open(self._go, "wb") as go:
            go.write(payload)
        with open(self._status, "rb") as status:
            peak, cpu_time, failure = (*status.read().split(b" "), b"", b"", b"")[:3]
        if failure:
            os.waitpid(self.pid, 0)
            raise launch_error(command[0], int(failure))
        return Launch(int(peak or 0), int(cpu_time or 0) / 1e9)

    def discard(self) -> None:
        """Let the child go; it ends without having run anything."""
        _kept_ends.difference_update((self._go, self._status))
        os.close(self._go)
        os.close(self._status)
        os.waitpid(self.pid, 0)


def prepare(argv: list[str]) -> list[Launcher]:
    """Fork a launcher for each run that ``weigh`` *argv* will make, before imports.

    Whatever is wrong with *argv* is for the command line to say later.
    """
    own = argv[: argv.index("--")] if "--" in argv else argv
    if not own or own[0] != "run" or not hasattr(os, "fork"):
        return []
    if "-h" in own or "--help" in own:
        return []
    runs = _number_after(own, "--repeat", 1) + _number_after(own, "--warmup", 0)
    return [Launcher() for _ in range(max(1, min(runs, _MOST_WAITING)))]


def _number_after(words: list[str], option: str, default: int) -> int:
    for at, word in enumerate(words):
        value = ""
        if word == option and at + 1 < len(words):
            value = words[at + 1]
        elif word.startswith(option + "="):
            value = word[len(option) + 1 :]
        if value.isdecimal():
            return int(value)
    return default


def _become_the_job(go: int, status: int) -> None:
    """Wait for the payload and exec it; never returns."""
    try:
        _restore_signals()
        with open(go, "rb") as pipe:
            payload = pipe.read()
        if not payload:
            os._exit(0)
        count, *words = payload.split(b"\0")
        command = words[: int(count)]
        env = dict(os.environb)
        for word in words[int(count) :]:
            name, _, value = word.partition(b"=")
            env[name] = value
        folders = os.get_exec_path()  # before the peak is read: it imports warnings
        os.write(status, b"%d %d " % (_own_peak(), time.process_time_ns()))
        _exec(command, folders, env)
    except OSError as error:
        os.write(status, str(error.errno or _ENOENT).encode())
    finally:
        os._exit(127)


def _exec(command: list[bytes], folders: list[str], env: dict[bytes, bytes]) -> None:
    """Exec as execvp(3) does: along PATH, by the shell where there is no #! line."""
    name = command[0]
    paths = [os.path.join(os.fsencode(folder), name) for folder in folders]
    failure: OSError = FileNotFoundError(_ENOENT, "")
    for path in [name] if b"/" in name else paths:
        try:
            os.execve(path, command, env)  # noqa: S606 - argv as the user gave it
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if error.errno == _ENOEXEC:
                script = [b"/bin/sh", path, *command[1:]]
                os.execve("/bin/sh", script, env)  # noqa: S606
            failure = error
    raise failure


def _own_peak() -> int:
    """Read this process's VmHWM in bytes; 0 where /proc is hidden."""
    try:
        with open("/proc/self/status", "rb", buffering=0) as status:
            text = status.read(4096)
    except OSError:
        return 0
    at = text.find(b"VmHWM:")
    return int(text[at:].split(None, 2)[1]) * 1024 if at >= 0 else 0


def _restore_signals() -> None:
    """Undo what the interpreter changed, so that the job starts as from a shell.

    An exec turns handlers into defaults, but until then Ctrl-C must end this child
    without a traceback. Ignored signals (nohup, ``cmd &``) stay ignored.
    """
    if _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)


def launch_error(name: str, number: int) -> WeighError:
    """Say in one line why *name* could not be started; *number* is the errno."""
    if number == _ENOENT and "/" in name and os.path.exists(name):
        return CommandNotFoundError(
            f"{name}: its interpreter does not exist (see its first line)"
        )
    if number == _ENOENT:
        return CommandNotFoundError(f"command not found: {name}{_suggestion(name)}")
    if os.path.isdir(name):
        return CommandNotExecutableError(f"{name} is a directory")
    return CommandNotExecutableError(f"cannot execute {name}: {os.strerror(number)}")


def _suggestion(name: str) -> str:
    """Offer the nearest command on PATH, or the ``./`` that was left out."""
    if "/" in name:
        return ""
    if os.access(name, os.X_OK) and not os.path.isdir(name):
        return f"   (did you mean ./{name}?)"
    from difflib import get_close_matches  # noqa: PLC0415 - only for a typo

    names: set[str] = set()
    for folder in os.get_exec_path():
        try:
            names.update(os.listdir(folder))
        except OSError:
            continue
    near = get_close_matches(name, sorted(names), n=1)
    return f"   (did you mean {near[0]}?)" if near else ""


def interrupt_quietly() -> None:
    """Let Ctrl-C end weigh silently while it is still starting."""
    if sys.platform != "win32" and (
        _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN
    ):
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
