"""weigh without its start: each call is a fork of a process that has imported it.

Python's start and the imports are nine tenths of the CPU time of most calls.
"""

import gc
import os
import pickle
import pkgutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from selectors import EVENT_READ, DefaultSelector
from typing import Any, NamedTuple, NoReturn

from hasty_weigh import shorten_waits

import weigh
from weigh.__main__ import main

# what programs and interpreters read when they start
_AT_START = ("PYTHON", "COVERAGE", "LC_", "LANG", "LD_")
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_LONGEST_MESSAGE = 100_000
_ANOTHER = b"another server"  # the message that comes with its connection


def _start_variables(env: Mapping[str, str]) -> dict[str, str]:
    # whether bytecode is written changes nothing, and conftest.py takes that one away
    names = {name for name in env if name.startswith(_AT_START)} - {_NO_BYTECODE}
    return {name: env[name] for name in names}


# a test that sets one may be the first to need a server, which then serves others
_START_ENV = _start_variables(os.environ)


class WeighCall(NamedTuple):
    """The words behind ``weigh``, and where they are typed."""

    words: list[str]
    env: dict[str, str]
    folder: str
    is_hasty: bool

    def needs_own_process(self) -> bool:
        """Return whether the start of weigh is a part of what happens.

        `weigh run` starts jobs from a small process; some variables are Python's own.
        """
        is_other_python = _start_variables(self.env) != _START_ENV
        return self.words[:1] == ["run"] or is_other_python

    def run(self) -> NoReturn:
        """Be weigh in this process."""
        os.chdir(self.folder)
        os.environ.clear()
        os.environ.update(self.env)
        time.tzset()
        sys.stdin, sys.stdout, sys.stderr = map(
            reopened, (sys.stdin, sys.stdout, sys.stderr)
        )
        sys.path[0] = self.folder
        sys.argv[1:] = self.words
        if self.is_hasty:
            shorten_waits()
        main()


def reopened(stream: Any) -> Any:
    """Return a stream like this one: what it had open was no pipe."""
    options = {"encoding": stream.encoding, "errors": stream.errors}
    return open(stream.fileno(), stream.mode, closefd=False, **options)


class WeighServer:
    """A process with weigh imported that runs each call in a fork of its own.

    It is a fork of the *first* one, that of an earlier process, if there is one.
    """

    def __init__(self, first: "WeighServer | None") -> None:
        self.test_process = os.getpid()
        self._connection, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        if first is not None:
            socket.send_fds(first._connection, [_ANOTHER], [theirs.fileno()])
            for unused in (theirs, first._connection):
                unused.close()
            return
        theirs.set_inheritable(True)
        argv = [sys.executable, __file__, str(theirs.fileno())]
        # without the name of a test: it serves others, too, and no test may end it
        left_out = {"PYTEST_CURRENT_TEST", *_start_variables(os.environ)}
        env = {k: v for k, v in os.environ.items() if k not in left_out} | _START_ENV
        # it forks and exits: no test finds a process of weigh's below its own
        os.waitpid(os.posix_spawn(sys.executable, argv, env), 0)
        theirs.close()

    def captured(
        self, call: WeighCall, timeout: float, *, merged: bool
    ) -> "subprocess.CompletedProcess[str]":
        """Run a call to its end; *merged* is stderr in stdout."""
        (out, to_out), (err, to_err) = os.pipe(), os.pipe()
        null = os.open(os.devnull, os.O_RDONLY)
        streams = [null, to_out, to_out if merged else to_err]
        socket.send_fds(self._connection, [pickle.dumps(tuple(call))], streams)
        for descriptor in (null, to_out, to_err):
            os.close(descriptor)
        pid, deadline = int(self._connection.recv(100)), time.monotonic() + timeout
        printed = {out: b"", err: b""}
        with DefaultSelector() as selector:
            for descriptor in printed:
                selector.register(descriptor, EVENT_READ)
            while selector.get_map():
                if time.monotonic() > deadline:
                    os.kill(pid, 9)
                for key, _ in selector.select(1.0):
                    text = os.read(key.fd, 1 << 16)
                    printed[key.fd] += text
                    if not text:
                        selector.unregister(key.fd)
                        os.close(key.fd)
        code = os.waitstatus_to_exitcode(int(self._connection.recv(100)))
        if time.monotonic() > deadline:
            raise subprocess.TimeoutExpired(call.words, timeout)
        texts = [text.decode().replace("\r\n", "\n") for text in printed.values()]
        return subprocess.CompletedProcess(call.words, code, *texts)


_SERVERS: dict[int, WeighServer] = {}  # by user


def weigh_server() -> WeighServer:
    """Return the server of this process, as the user that it acts for."""
    server = _SERVERS.get(os.geteuid())
    if server is None or server.test_process != os.getpid():
        server = _SERVERS[os.geteuid()] = WeighServer(server)
    return server


def serve(connection: socket.socket) -> NoReturn:
    """Run calls until the other end is closed."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, _LONGEST_MESSAGE, 3)
        if not message:
            sys.exit()
        if not (pid := os.fork()):
            connection.close()
            if message == _ANOTHER:
                if os.fork():  # nobody waits for that one
                    os._exit(0)
                serve(socket.socket(fileno=streams[0]))
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            WeighCall(*pickle.loads(message)).run()
        for stream in streams:
            os.close(stream)
        if message == _ANOTHER:
            os.waitpid(pid, 0)
            continue
        connection.send(str(pid).encode())
        connection.send(str(os.waitpid(pid, 0)[1]).encode())


if __name__ == "__main__":
    if os.fork():  # nobody waits for what goes on
        os._exit(0)
    for module in pkgutil.walk_packages(weigh.__path__, "weigh."):
        if not module.name.startswith("weigh.hooks."):  # of frameworks
            import_module(module.name)
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
