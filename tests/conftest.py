"""What holds for every test; real schedulers, one for all test processes."""

import fcntl
import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import pytest
from called_weigh import CalledWeigh, called_here, work_alone_in
from forked_weigh import weigh_server
from hypothesis import settings
from hypothesis.strategies import text
from run_captured import run_captured

from weigh.schedulers import KINDS

pytest_plugins = ["forked_workers"]

CI = Path(__file__).parents[1] / "ci"
SHARED = {"browser", "wheel"}  # fixtures that take long to make
OF_ROOT = {"memory_group", "small", "under_foreign_proc"}  # those that only root makes
HOME = Path(os.environ.get("WEIGH_RIG", "/var/lib/weigh-rig"))
USUALLY_IMPOSSIBLE = 3  # the exit code of a rig that lacks root or packages

# the tests may themselves run in a job; before a test module copies the environment
_FOREIGN = "WEIGH_ SLURM_ SBATCH_ SGE_ JOB_ SSH_ CUDA_VISIBLE OMP_ PYTHONDONTWRITE"
FOREIGN = tuple(_FOREIGN.split())
# thousands of processes would each compile what they import
sys.dont_write_bytecode = False
OURS = ("RIG", "EXAMPLES", "FUZZ", "ISOLATED", "NEW_GOLDEN", "IMAGES")
for name in list(os.environ):
    if name.startswith(FOREIGN) and not name.startswith(
        tuple(f"WEIGH_{x}" for x in OURS)
    ):
        del os.environ[name]

# under nohup, and behind a shell's `&`, programs ignore these, and so would every one
# that a test starts
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# a busy machine is no fault of the code's: examples may take their time
settings.register_profile("weigh", deadline=None, max_examples=20)
settings.register_profile("long", deadline=None, max_examples=300)
settings.load_profile("long" if os.environ.get("WEIGH_FUZZ") == "long" else "weigh")


FAILED = pytest.StashKey[bool]()
PYTEST_MARK = "PYTEST_CURRENT_TEST="  # pytest sets it to the name of each test


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of ci/each_once.sh."""
    parts = ("user", "root")
    parser.addoption("--part", choices=parts, help="run a part of the tests")
    parser.addoption("--collected", help="file: made when the tests are collected")


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of each scheduler of the table."""
    for name, kind in KINDS.items():
        line = f"{name}: needs a real {kind.title}"
        config.addinivalue_line("markers", line)


# programs and packages that a reason for skipping names
PROGRAMS = r"\b(gcc|rsync|tmux|git|strace|shellcheck|vim|Chromium|root)\b"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count on one line the tests that need what is missing here."""
    reasons = [one.longrepr[2] for one in terminalreporter.getreports("skipped")]
    missing = Counter(
        found[1] for reason in reasons if (found := re.search(PROGRAMS, reason))
    )
    if missing:
        counts = ", ".join(f"{name} ({n})" for name, n in missing.most_common())
        terminalreporter.write_line(f"{missing.total()} tests need: {counts}")


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Order the tests for several processes.

    Groups come first, each in one process: what shares a browser or a built package,
    and what has a cluster alone. The others of real schedulers, which mostly wait, are
    spread among the rest.
    """
    leave_to_integrations(items)
    for item in items if os.geteuid() else ():
        if needs_root(item) and not rigs_of(item):
            item.add_marker(pytest.mark.skip(reason="only root may do this"))
    select_part(config, items)
    if not config.getoption("workers"):
        return
    for item in items:
        if is_alone(item):
            item.add_marker(pytest.mark.together(f"{rigs_of(item)[0]} alone"))
        elif shared := SHARED & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.together(min(shared)))
    waiting = [item for item in items if rigs_of(item) and not is_alone(item)]
    # last those of the cluster that others have alone at the beginning, for longest
    alone = Counter(rig for item in items if is_alone(item) for rig in rigs_of(item))
    waiting.sort(key=lambda item: alone[rigs_of(item)[0]])
    others = [item for item in items if not rigs_of(item) or is_alone(item)]
    # one that begins last would end alone
    others.sort(key=lambda item: item.get_closest_marker("together") is None)
    items[:] = spread(waiting, others)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Load once what each of several processes would load for itself."""
    if session.config.getoption("workers"):
        weigh_server()
        if any(item.get_closest_marker("hypothesis") for item in session.items):
            text().validate()  # classes of all characters: a second


def select_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that ci/each_once.sh asks for."""
    roots = [item for item in items if needs_root(item)]
    users = [item for item in items if item not in {*roots}]
    if collected := config.getoption("collected"):
        Path(collected).touch()
    if part := config.getoption("part"):
        items[:], others = (users, roots) if part == "user" else (roots, users)
        config.hook.pytest_deselected(items=others)


def needs_root(item: pytest.Item) -> bool:
    """Return whether a test uses a real scheduler or another thing of root's."""
    used = {*getattr(item, "fixturenames", ())} & OF_ROOT
    return bool(rigs_of(item) or used) or item.get_closest_marker("as_root") is not None


def leave_to_integrations(items: list[pytest.Item]) -> None:
    """Of a test that is marked ``few(n)``, leave n cases to ``make test``.

    From its first case to its last one, at equal distances.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for found in cases.values():
        (most,) = found[0].get_closest_marker("few").args  # type: ignore[union-attr]
        kept = {round(n * (len(found) - 1) / (most - 1)) for n in range(most)}
        for number, item in enumerate(found):
            if number not in kept:
                item.add_marker(pytest.mark.integrations)


def is_alone(item: pytest.Item) -> bool:
    """Return whether a test has a cluster alone."""
    return bool(rigs_of(item)) and item.get_closest_marker("alone") is not None


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_this_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Use no settings of this user, and no store above the tests' folders."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    # the search for a store ends at the root of a repository
    (tmp_path_factory.getbasetemp() / ".hg").mkdir(exist_ok=True)


@pytest.fixture
def shorten(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, float], None]:
    """Return what sets a wait of weigh's: its place below weigh, and the seconds."""
    return lambda place, seconds: monkeypatch.setattr(f"weigh.{place}", seconds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember whether a test failed, for its fixtures."""
    report = yield
    item.stash[FAILED] = report.failed or item.stash.get(FAILED, False)
    return report


@pytest.fixture(autouse=True)
def _failures_leave_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """End what a failed test started: one failure does not fail others."""
    before = children()
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    yield
    if not request.node.stash.get(FAILED, False):
        return
    end = time.monotonic() + 30  # some start others meanwhile
    while (left := started_by(request.node, began)) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    for one in gc.get_objects():
        if isinstance(one, subprocess.Popen) and one.pid not in before:
            with suppress(subprocess.TimeoutExpired):
                one.wait(10)
            for pipe in (one.stdin, one.stdout, one.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def started_by(test: pytest.Item, began: float) -> set[int]:
    """Return the processes that a test started since *began*, whoever is their parent.

    What fixtures of several tests started is older than that.
    """
    mark, found = f"{PYTEST_MARK}{test.nodeid} (".encode(), set()
    oldest = (began - 0.02) * os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # of a zombie nothing can be read
            since = int((path / "stat").read_bytes().rpartition(b")")[2].split()[19])
            if since >= oldest and mark in (path / "environ").read_bytes():
                found.add(int(path.name))
    return found - {os.getpid()}


def children() -> set[int]:
    """Return the ids of the processes that this one started."""
    with suppress(OSError):
        lists = Path("/proc/self/task").glob("*/children")
        return {int(pid) for path in lists for pid in path.read_text().split()}
    return set()


def spread(few: list[pytest.Item], many: list[pytest.Item]) -> list[pytest.Item]:
    """Return both lists as one, *few* at equal distances in its later two thirds."""
    places = [
        (1 / 3 + at / max(len(few), 1) * 2 / 3, 0, item) for at, item in enumerate(few)
    ]
    places += [(at / max(len(many), 1), 1, item) for at, item in enumerate(many)]
    return [item for *_, item in sorted(places, key=lambda place: place[:2])]


def rigs_of(item: pytest.Item) -> list[str]:
    """Return the real schedulers that a test uses."""
    used = {*getattr(item, "fixturenames", ())}
    return [rig for rig in KINDS if rig in used or item.get_closest_marker(rig)]


@contextmanager
def locked(name: str, how: int) -> Iterator[None]:
    """Hold a lock that all test processes on this cluster know."""
    HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
    with open(HOME / f"{name}.lock", "a", encoding="utf-8") as file:
        fcntl.flock(file, how)
        yield


_had_alone: dict[str, ExitStack] = {}  # clusters, with the locks of this process


@pytest.fixture(autouse=True)
def _turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Share a cluster with the tests of other processes, or have it alone.

    Who has it alone keeps it for the next test that wants that: each time the tests of
    all others would have to end first.
    """
    rigs = rigs_of(request.node) if os.geteuid() == 0 else []
    alone = is_alone(request.node)
    for rig in [*_had_alone]:
        if not alone or rig not in rigs:
            _had_alone.pop(rig).close()
    with ExitStack() as shared:
        for rig in rigs:
            if rig in _had_alone:
                continue
            locks = _had_alone.setdefault(rig, ExitStack()) if alone else shared
            # in turn: those who share do not keep out for ever who wants it alone
            with locked(f"{rig}.next", fcntl.LOCK_EX):
                how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
                locks.enter_context(locked(rig, how))
        yield


def bring_up(name: str) -> Iterator[dict[str, str]]:
    """Start a rig, or use that of another process; give the environment that it needs.

    The last process that uses it ends it.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip(f"a real {name} needs root on Debian")
    HOME.mkdir(mode=0o755, parents=True, exist_ok=True)
    kept = HOME / f"{name}.started"
    with open(HOME / f"{name}.users", "a", encoding="utf-8") as users:
        with locked(f"{name}.start", fcntl.LOCK_EX):
            if is_first(users):
                # its daemons serve other tests: none ends them with its own processes
                started = run_captured(
                    ["env", "-u", PYTEST_MARK[:-1], CI / f"{name}-up.sh"]
                )
                result = (started.returncode, started.stdout, started.stderr)
                kept.write_text(json.dumps(result))
            fcntl.flock(users, fcntl.LOCK_SH)
            code, out, err = json.loads(kept.read_text())
        if code == USUALLY_IMPOSSIBLE:
            # open as long as this process: no other one finds the same again
            os.dup(users.fileno())
            pytest.skip(f"no real {name}: {err.strip()}")
        try:
            assert code == 0, err
            lines = [line.removeprefix("export ") for line in out.splitlines()]
            yield dict(line.split("=", 1) for line in lines)
        finally:
            with locked(f"{name}.start", fcntl.LOCK_EX):
                fcntl.flock(users, fcntl.LOCK_UN)
                if is_first(users):
                    subprocess.run([CI / f"{name}-down.sh"], timeout=60, check=False)


def is_first(users: TextIO) -> bool:
    """Return whether no other process uses a rig."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def rig_fixture(name: str) -> object:
    """Return the fixture that brings up a real scheduler, named as in the table."""

    @pytest.fixture(scope="session", name=name)
    def rig() -> Iterator[dict[str, str]]:
        yield from bring_up(name)

    return rig


globals().update({f"rig_{name}": rig_fixture(name) for name in KINDS})


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> CalledWeigh:
    """Return weigh in this process, in an empty folder, with no program on PATH."""
    work_alone_in(tmp_path, monkeypatch)
    return called_here(capsys)
