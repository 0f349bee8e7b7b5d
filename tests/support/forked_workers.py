"""Run the tests in several processes: ``pytest -n 8``.

The tests are collected once. The processes are forks that have all of them, take one
file each, test by test, and help with the files of others when none is left. Tests with
one mark ``together("name")`` run in one process.
"""

import gc
import os
import signal
from collections import defaultdict, deque
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

NUMBER = "PYTEST_FORKED_WORKER"  # the environment variable of the processes


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``-n`` to the options of pytest."""
    group = parser.getgroup("forked workers")
    text = "run the tests in so many processes"
    group._addoption("-n", dest="workers", type=int, default=0, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark."""
    line = "together(name): in one test process with others of that name"
    config.addinivalue_line("markers", line)


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in processes where the command line asks for them."""
    count = session.config.getoption("workers")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None  # pytest's own loop
    print(f"{len(session.items)} tests in {count} processes", flush=True)
    ForkedWorkers(session).run(min(count, len(session.items)))
    return True


class ForkedWorkers:
    """The processes, and the tests that none of them has taken yet."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.left: dict[str, deque[int]] = defaultdict(deque)  # by file or group
        self.groups: set[str] = set()
        for number, item in enumerate(session.items):
            group = item.get_closest_marker("together")
            place = group.args[0] if group else item.nodeid.partition("::")[0]
            self.left[place].append(number)
            if group:
                self.groups.add(place)
        self.not_begun = deque(self.left)
        self.place: dict[Connection, str] = {}  # the file that each process is at
        self.running: dict[Connection, int] = {}  # the test that each one runs
        self.pids: dict[Connection, int] = {}

    def run(self, count: int) -> None:
        """Run all tests; raise what ends pytest's own loop, too."""
        gc.collect()
        gc.freeze()  # what is collected is shared by all processes
        try:
            for number in range(count):
                self.start(number)
            while self.pids:
                for connection in wait([*self.pids]):
                    assert isinstance(connection, Connection)
                    self.read_report(connection)
        finally:
            for connection, pid in [*self.pids.items()]:
                os.kill(pid, signal.SIGINT)  # a child that nobody has waited for
                self.end(connection)

    def start(self, number: int) -> None:
        """Start a process, and hand it its first test."""
        ours, theirs = Pipe()
        if not (pid := os.fork()):
            for other in (ours, *self.pids):
                other.close()
            os.environ[NUMBER] = str(number)
            serve(self.session, theirs)
        theirs.close()
        self.pids[ours] = pid
        self.hand_out(ours)

    def read_report(self, connection: Connection) -> None:
        """Read what a process sends; start another one if it has died."""
        with suppress(EOFError, ConnectionError):
            report = connection.recv()
            if report is None:
                self.hand_out(connection)
            else:
                read = self.session.config.hook.pytest_report_from_serializable
                self.note(read(config=self.session.config, data=report))
            return
        number = self.running.pop(connection, None)
        self.end(connection)
        if number is not None:
            self.note(crash_of(self.session.items[number]))
            self.start(number)

    def note(self, report: pytest.TestReport) -> None:
        """Count a report as pytest's own loop does, and raise what ends that loop."""
        self.session.config.hook.pytest_runtest_logreport(report=report)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def hand_out(self, connection: Connection) -> None:
        """Give a process its next test; without one it ends."""
        number = self.next_test(connection)
        self.running.pop(connection, None)
        if number is not None:
            self.running[connection] = number
        connection.send(number)

    def next_test(self, connection: Connection) -> int | None:
        """Return a test of a process's file, of a new file, or of that of another."""
        place = self.place.get(connection, "")
        if not self.left.get(place):
            if self.not_begun:
                place = self.not_begun.popleft()
            else:
                shared = [name for name in self.left if name not in self.groups]
                place = max(shared, key=lambda name: len(self.left[name]), default="")
            self.place[connection] = place
        return self.left[place].popleft() if self.left.get(place) else None

    def end(self, connection: Connection) -> None:
        """Wait for a process that ends its fixtures, or has died."""
        connection.close()
        os.waitpid(self.pids.pop(connection), 0)


def crash_of(item: pytest.Item) -> pytest.TestReport:
    """Return the report of a test in which its process has died."""
    text = f"the process of {item.nodeid} died"
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")


class _ReportSender:
    """The plugin of a process that sends each report to the first process."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self.config, self.connection = session.config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        self.connection.send(
            self.config.hook.pytest_report_to_serializable(
                config=self.config, report=report
            )
        )


def serve(session: pytest.Session, connection: Connection) -> None:
    """Run the tests that the first process names; never return."""
    try:
        plugins = session.config.pluginmanager
        capture: Any = plugins.getplugin("capturemanager")
        if capture is not None:  # its files are those of the first process
            capture.stop_global_capturing()
            capture.start_global_capturing()
            capture.suspend_global_capture(in_=True)
        for name in ("terminalreporter", "lfplugin", "nfplugin", "stepwiseplugin"):
            if plugins.hasplugin(name):
                plugins.unregister(name=name)
        plugins.register(sender := _ReportSender(session, connection))
        before: pytest.Item | None = None
        while (number := connection.recv()) is not None:
            item = session.items[number]
            end_fixtures(session, before, item, sender)
            # the test that follows is not known yet: fixtures of its file stay
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.parent)
            before = item
            connection.send(None)
        end_fixtures(session, before, None, sender)
    except (EOFError, KeyboardInterrupt, OSError):  # the first process ends
        session._setupstate.teardown_exact(None)
    finally:
        os._exit(0)


def end_fixtures(
    session: pytest.Session,
    before: pytest.Item | None,
    following: pytest.Item | None,
    sender: _ReportSender,
) -> None:
    """End the fixtures that the following test does not need; report what fails."""
    if before is None:
        return
    call = pytest.CallInfo.from_call(
        lambda: session._setupstate.teardown_exact(following), "teardown"
    )
    if call.excinfo is not None:
        sender.pytest_runtest_logreport(
            pytest.TestReport.from_item_and_call(before, call)
        )
