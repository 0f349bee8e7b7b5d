"""Run steps one after the other and report the time of each; started by its path.

This program runs next to each step and so is part of what is measured: it imports
nothing of weigh and no more of Python than it must, and starts with ``-I -S``.

    python -I -S steps.py AGAIN SOURCE SHELL NAME LINE [NAME LINE]...

AGAIN is the command line to go on with after a failure; each NAME is JSON already.
Each step is a phase in the file that WEIGH_CHANNEL names. It stops at the first that
fails, and ends as that one did.
"""

import _signal  # type: ignore[import-not-found]  # signal itself imports enum
import os
import sys
import time

_KIB = 1024
_FAILED_BY_SIGNAL = 128
_NOT_STARTED = 126
_CHILD = _signal.SIGCHLD
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)
_ENDING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)
_PASSED_ON = (*_ENDING, _signal.SIGUSR1, _signal.SIGUSR2)


def main(again: str, source: str, shell: str, *steps: str) -> int:
    """Run the steps; give the exit code of the first that fails, or 0."""
    signals = _Signals()
    names, lines = steps[::2], steps[1::2]
    for at, (name, line) in enumerate(zip(names, lines, strict=True)):
        code = _run((shell, "-c", line), _Phase(name, at, source), signals)
        if code == 0 and signals.number and at + 1 < len(names):
            code = _FAILED_BY_SIGNAL + signals.number
        if code:
            _print_error(again, names, at, code)
            return code
    return 0


class _Phase:
    """A step as a line of the event file; each is a process there, to have its say."""

    def __init__(self, name: str, at: int, source: str) -> None:
        self._name, self._source = name, source
        self._process = f"steps-{os.getpid()}-{at}"
        self._began = time.monotonic()

    def line(self, used: str = "") -> str:
        """Write it as it is now: open, or with what it *used*."""
        name, began, now = self._name, self._began, time.monotonic()
        phase = (
            f'{{"name":{name},"depth":0,"calls":{int(bool(used))},"start":{began!r},'
            f'"end":{now!r},"wall_time":{now - began!r}{used},'
            f'"source":"{self._source}"}}'
        )
        return (
            f'{{"line":"phase","process":"{self._process}","path":[{name}],'
            f'"phase":{phase}}}\n'
        )


class _Signals:
    """What this program was sent: passed on to the step that runs."""

    def __init__(self) -> None:
        self.number = 0
        _signal.signal(_CHILD, _signal.SIG_DFL)
        heeded = {n for n in _PASSED_ON if _signal.getsignal(n) != _signal.SIG_IGN}
        self._awaited = heeded | {_CHILD}
        self.first_mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, self._awaited)

    def wait(self, pid: int) -> None:
        """Wait until something happened to a child; pass on what was sent here.

        What a terminal sends has reached the step by itself.
        """
        info = _signal.sigwaitinfo(self._awaited)
        if info.si_signo == _CHILD:
            return
        if info.si_signo in _ENDING:
            self.number = info.si_signo
        if info.si_code <= 0:  # from a process, not from the kernel
            os.kill(pid, info.si_signo)


def _run(argv: tuple[str, ...], phase: _Phase, signals: _Signals) -> int:
    """Run one step; give its exit code, or 128+n where signal n ended it."""
    _report_phase(phase.line())
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            os.environ,
            setsigmask=signals.first_mask,
            setsigdef=_IGNORED_BY_PYTHON,
        )
    except OSError as error:
        sys.stderr.write(f"weigh: {argv[0]}: {error.strerror}\n")
        return _NOT_STARTED
    while True:
        signals.wait(pid)
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            break
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * _KIB
    _report_phase(phase.line(f',"cpu_time":{cpu!r},"peak_memory":{peak}'))
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _FAILED_BY_SIGNAL - code


def _report_phase(line: str) -> None:
    """Append a line; where that fails the steps go on, and their phases are lost."""
    try:
        channel = os.open(os.environ["WEIGH_CHANNEL"], os.O_WRONLY | os.O_APPEND)
    except (KeyError, OSError):
        return
    try:
        os.write(channel, os.fsencode(line))
    except OSError:
        return
    finally:
        os.close(channel)


def _print_error(again: str, names: tuple[str, ...], at: int, code: int) -> None:
    rest = len(names) - at - 1
    left = "" if not rest else f"; not run: {', '.join(names[at + 1 :])}"
    sys.stderr.write(
        f"weigh: step {names[at]} ended with exit code {code}{left}\n"
        f"weigh: go on with: {again} --from {names[at]}\n"
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
