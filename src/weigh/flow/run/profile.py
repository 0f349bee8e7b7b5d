"""``weigh profile``: profile a Python program line by line, with Scalene.

Scalene must be installed in the Python that runs the program, which may differ from
weigh's own.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import msgspec

from weigh.errors import (
    SIGNAL_BASE,
    CommandNotFoundError,
    StoreError,
    UsageError,
    WeighError,
)
from weigh.flow.run import profiled
from weigh.measure.orphans import Orphans, adopt_orphans, send
from weigh.probe.driver import gpu_may_be_present, has_amd_driver
from weigh.probe.proc import ProcTree
from weigh.render.profile_lines import Profile, read_profile
from weigh.schedulers import job_from_environment
from weigh.store import identity, location
from weigh.sweep.quoting import quoted

_ENDING_SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)
_ROUND = 0.25  # seconds between checks for received signals
_SETTLING = 0.05  # seconds until a sender has signalled the whole group
_PATIENCE = 2.0  # seconds for orphans to end by themselves
_GRACE = 2.0  # seconds between TERM and KILL after that
_REAPING = 0.02


class Ended(msgspec.Struct, frozen=True):
    """How it ended; ``stopped`` counts the orphans that were stopped."""

    exit_code: int
    stopped: int = 0


def run_scalene(argv: Sequence[str], env: Mapping[str, str]) -> Ended:
    """Run *argv* until the profile is written and all processes have ended.

    An ending signal to weigh is passed on to the program; the exit code is then
    128 + n.
    """
    tree = ProcTree(os.getpid())
    tree.excluded = frozenset(tree.children() or ())
    adopt_orphans()
    with _noted_signals() as received:
        scalene = _Scalene(subprocess.Popen(argv, env=dict(env)), received)
        code = scalene.follow()
        stopped = _stop_what_is_left(tree) if sys.platform == "linux" else 0
    return Ended(SIGNAL_BASE + received[0] if received else code, stopped)


class _Scalene:
    """Scalene's first process, and the second, which is the program."""

    def __init__(
        self, process: subprocess.Popen[bytes], received: Sequence[int]
    ) -> None:
        self._process = process
        self._received = received
        self._program: int | None = None
        self._passed_on = 0
        self._was_alive = True

    def follow(self) -> int:
        """Wait for both; return the exit code."""
        while (code := self._wait()) is None:
            if self._program is None:
                children = ProcTree(self._process.pid).children()
                self._program = children[0] if children else None
            self._pass_signals_on()
        while _is_my_child(self._program):  # writes its profile after Scalene ends
            time.sleep(_REAPING)
            self._pass_signals_on()
        return code

    def _wait(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_ROUND)
        return None

    def _pass_signals_on(self) -> None:
        for number in self._received[self._passed_on :]:
            self._passed_on += 1
            self._pass_on(number)

    def _pass_on(self, number: int) -> None:
        """Signal the program, unless its whole group was signalled.

        In that case Scalene's first process has ended by now. Ctrl-C always goes to the
        group, and a second one would destroy the profile.
        """
        time.sleep(_SETTLING)
        was_alive, self._was_alive = self._was_alive, self._process.poll() is None
        if number != signal.SIGINT and self._was_alive == was_alive:
            send(self._program or self._process.pid, number)


def _is_my_child(pid: int | None) -> bool:
    """Return whether an adopted process still runs; reap it if it has ended."""
    try:
        return pid is not None and os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Record the signals that would end weigh."""
    received: list[int] = []
    before = {n: signal.getsignal(n) for n in _ENDING_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda number, _frame: received.append(number))
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_what_is_left(tree: ProcTree) -> int:
    """Stop the processes that do not end in time; return their number."""
    orphans = Orphans(tree, time.monotonic, _GRACE, None)
    end = time.monotonic() + _PATIENCE
    stopped = 0
    while _reap(tree) or orphans.are_left():
        if not stopped and time.monotonic() >= end:
            stopped = len(tree.read())
            orphans.stop()
        time.sleep(_REAPING)
    return stopped


def _reap(tree: ProcTree) -> bool:
    """Collect adopted processes that ended; return whether there were any."""
    ended = []
    for pid in tree.children() or ():
        with suppress(ChildProcessError):
            ended.append(os.waitpid(pid, os.WNOHANG)[0])
    return any(ended)


FOLDER = "profiles"
_RUNS = "weigh_profiled.py"  # starts the program; its own lines are left out
_OLDEST = (2, 1, 4)  # the first version that writes a page offline
_ASK = (
    "import importlib.metadata as m, importlib.util as u;"
    "print(m.version('scalene') if u.find_spec('scalene') else '')"
)
_EXAMPLE = "weigh profile -- python3 train.py"
# Scalene restarts Python without its options; these have an environment variable
_VARIABLES = {
    "-u": {"PYTHONUNBUFFERED": "1"},
    "-B": {"PYTHONDONTWRITEBYTECODE": "1"},
    "-O": {"PYTHONOPTIMIZE": "1"},
    "-OO": {"PYTHONOPTIMIZE": "2"},
}


class Program(msgspec.Struct, frozen=True):
    """A Python program on a command line; ``kind`` is script or module."""

    python: str
    kind: str
    name: str
    words: tuple[str, ...]
    variables: dict[str, str]


class Profiled(msgspec.Struct, frozen=True):
    """A finished profile and its files; None where Scalene wrote none.

    ``stopped`` counts the program's orphans, which were stopped.
    """

    id: str
    exit_code: int
    stopped: int = 0
    path: str | None = None
    page: str | None = None
    profile: Profile | None = None


def profile(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    output: str | None = None,
    page: bool = True,
    force: bool = False,
) -> Profiled:
    """Run *command* under Scalene and keep the profile in the store.

    *output* is a file for another copy; with *page* an HTML page is written; *force*
    allows a batch job, which a profiler slows down.

    Raises:
        UsageError: it is not a Python program, or this is a batch job without *force*.
        CommandNotFoundError: that Python does not exist.
        WeighError: Scalene is missing or too old.
        StoreError: the store or *output* cannot be written.
    """
    if not force:
        refuse_in_job(environ)
    program = read_command(command)
    require_scalene(program.python)
    folder = location.make_folder(location.locate(os.getcwd(), environ), FOLDER)
    _check_writable(output)
    name = identity.new_id()
    path = os.path.join(folder, f"{name}.json")
    ended = _run(program, path, environ)
    done = Profiled(name, ended.exit_code, ended.stopped, profile=_seen(path))
    if done.profile is None:
        return done
    _copy(path, output)
    if not done.profile.lines:  # an empty file is not worth keeping
        os.unlink(path)
        return done
    html = _write_page(program.python, path) if page else None
    return msgspec.structs.replace(done, path=path, page=html)


def refuse_in_job(environ: Mapping[str, str]) -> None:
    """Raise UsageError inside a batch job of a scheduler."""
    job = job_from_environment(environ)
    if job is not None:
        raise UsageError(
            f"in batch job {job.id} a profiler slows the real run: --force runs it"
        )


def read_command(command: Sequence[str]) -> Program:
    """Parse a command line of Python.

    Raises:
        UsageError: it is not one, or it cannot be profiled.
        CommandNotFoundError: that Python does not exist.
    """
    if not command:
        raise UsageError(f"no command to profile: {_EXAMPLE}")
    python, *rest = command
    if not _is_python(python):
        raise UsageError(_not_python(command))
    path = shutil.which(python)
    if path is None:
        raise CommandNotFoundError(f"command not found: {python}")
    variables: dict[str, str] = {}
    while rest and rest[0] in _VARIABLES:
        variables |= _VARIABLES[rest.pop(0)]
    kind, name, words = _program(rest)
    return Program(path, kind, name, words, variables)


def require_scalene(python: str) -> None:
    """Raise WeighError where *python* has no Scalene, or too old a one."""
    try:
        found = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise WeighError(f"cannot run {python}: {error.strerror}") from error
    version = found.stdout.strip()
    if found.returncode != 0 or not version:
        raise WeighError(
            f"scalene is not installed for {python}: {python} -m pip install scalene"
        )
    if _numbers(version) < _OLDEST:
        oldest = ".".join(str(number) for number in _OLDEST)
        raise WeighError(
            f"scalene {version} is too old: pip install 'scalene>={oldest}'"
        )


def _is_python(word: str) -> bool:
    name = os.path.basename(word).lower().removesuffix(".exe")
    version = name.removeprefix("python").removesuffix("t")  # t: free-threaded
    return name.startswith("python") and all(
        part.isdecimal() or not part for part in version.split(".")
    )


def _not_python(command: Sequence[str]) -> str:
    word = command[0]
    if word.endswith(".py"):
        return f"put python3 before it: weigh profile -- python3 {quoted(word)}"
    return f"not a Python command: {word}   (weigh run measures any command)"


def _program(words: Sequence[str]) -> tuple[str, str, tuple[str, ...]]:
    first = words[0] if words else "-"
    if first == "-m" and len(words) > 1:
        return "module", words[1], tuple(words[2:])
    if first in ("-", "-c", "-m"):
        raise UsageError(f"a profile needs a file or a module: {_EXAMPLE}")
    if first.startswith("-"):
        raise UsageError(f"Scalene does not pass on Python's option {first}: leave it")
    if not os.path.isfile(first):
        raise UsageError(f"no such file: {first}")
    return "script", first, tuple(words[1:])


def _numbers(version: str) -> tuple[int, ...]:
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _run(program: Program, path: str, environ: Mapping[str, str]) -> Ended:
    """Run the program and return how it ended."""
    task = msgspec.json.encode([program.kind, program.name, *program.words])
    env = {**environ, **program.variables}
    argv = [program.python, "-m", "scalene", "run", "-o", path]
    argv += ["--program-path", _program_path(program), *_kinds(env)]
    # in a folder of its own: Scalene imports torch with that folder first on sys.path,
    # and a file named profile.py in it would replace the library's
    with tempfile.TemporaryDirectory() as folder:
        runs = shutil.copy(profiled.__file__, os.path.join(folder, _RUNS))
        return run_scalene([*argv, runs, task.decode()], env)


def _kinds(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the options that leave the GPU out of the profile if there is none.

    With a GPU, Scalene makes torch trace itself, which makes a CPU program many times
    slower and larger.
    """
    has_none = not (gpu_may_be_present(env) or has_amd_driver())
    if has_none and sys.platform == "linux":
        return ("--memory",)  # and CPU time; without it, both and the GPU
    return ()


def _program_path(program: Program) -> str:
    """Return the folder whose files are profiled: this one, if it has the program."""
    cwd = os.getcwd()
    folder = os.path.dirname(os.path.abspath(program.name))
    if program.kind == "module" or folder.startswith(os.path.join(cwd, "")):
        return cwd
    return folder


def _seen(path: str) -> Profile | None:
    try:
        with open(path, "rb") as file:
            profile = read_profile(file.read(), path=path)
    except FileNotFoundError:
        return None
    lines = (one for one in profile.lines if os.path.basename(one.file) != _RUNS)
    return msgspec.structs.replace(profile, lines=tuple(lines))


def _check_writable(output: str | None) -> None:
    if output is not None:
        _write(output, b"")


def _copy(path: str, output: str | None) -> None:
    if output is not None:
        with open(path, "rb") as file:
            _write(output, file.read())


def _write(output: str, content: bytes) -> None:
    try:
        with open(output, "wb") as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error


def _write_page(python: str, path: str) -> str | None:
    """Write Scalene's page next to the profile; None if that fails."""
    page = f"{path.removesuffix('.json')}.html"
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as folder:
        argv = [python, "-m", "scalene", "view", "--standalone", os.path.abspath(path)]
        subprocess.run(argv, cwd=folder, capture_output=True, check=False)
        try:
            os.replace(os.path.join(folder, "scalene-profile.html"), page)
        except OSError:
            return None
    return page
