"""Run steps one after the other and report the time of each; started by its path.

This program runs next to each step and so is part of what is measured: it imports
nothing of weigh and no more of Python than it must, and starts with ``-I -S``.

    python -I -S steps.py SOURCE SHELL NAME LINE AGAIN [NAME LINE AGAIN]...

Each NAME is JSON already; AGAIN is the command line to go on with if the step fails.
Each step is a phase in the file that WEIGH_CHANNEL names. It stops at the first that
fails, and ends as that one did.
"""

import _signal  # type: ignore[import-not-found]  # signal itself imports enum
import os
import sys
import time

# Linux counts ru_maxrss in KiB
_KIB = 1024
_FAILED_BY_SIGNAL = 128
_NOT_STARTED = 126  # as env(1) ends where a command cannot be executed
_CHILD = _signal.SIGCHLD
# Python ignores these, and a step would inherit that
_IGNORED_BY_PYTHON = (_signal.SIGPIPE, _signal.SIGXFSZ)
_ENDING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)
# signals that batch systems send to a job's first process
_PASSED_ON = (*_ENDING, _signal.SIGUSR1, _signal.SIGUSR2)


def run_sweep_steps(source: str, shell: str, *steps: str) -> int:
    """Run the steps; give the exit code of the first that fails, or 0."""
    # an ignored SIGCHLD would let the kernel discard the step's exit status
    _signal.signal(_CHILD, _signal.SIG_DFL)
    # a signal that was ignored at the start, as by nohup, stays ignored
    awaited = {n for n in _PASSED_ON if _signal.getsignal(n) != _signal.SIG_IGN}
    # blocked, so that none is lost before sigwaitinfo() looks
    mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, {*awaited, _CHILD})
    names, lines, again = steps[::3], steps[1::3], steps[2::3]
    for at, (name, line) in enumerate(zip(names, lines, strict=True)):
        phase = _StepPhase(name, at, source)
        code, sent = _run_sweep_step(
            (shell, "-c", line), phase, {*awaited, _CHILD}, mask
        )
        # the step ended well, but whoever sent the signal meant all of them
        if code == 0 and sent and at + 1 < len(names):
            code = _FAILED_BY_SIGNAL + sent
        if code:
            _print_error(again[at], names, at, code)
            return code
    return 0


class _StepPhase:
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
        return f'{{"process":"{self._process}","phases":[[[{name}],{phase}]]}}\n'


def _run_sweep_step(
    argv: tuple[str, ...], phase: _StepPhase, awaited: set[int], mask: set[int]
) -> tuple[int, int]:
    """Run one step; give its exit code, and the last signal to end that came.

    What a process sends here is passed on; what a terminal sends reaches the step by
    itself. The code is 128+n where signal n ended the step.
    """
    _report_phase(phase.line())
    try:
        pid = os.posix_spawn(
            *(argv[0], argv, os.environ), setsigmask=mask, setsigdef=_IGNORED_BY_PYTHON
        )
    except OSError as error:
        sys.stderr.write(f"weigh: {argv[0]}: {error.strerror}\n")
        return _NOT_STARTED, 0
    sent = 0
    while True:
        info = _signal.sigwaitinfo(awaited)
        if info.si_signo in _ENDING:
            sent = info.si_signo
        # what the terminal sends has reached the step, too, as it is in the same group
        if info.si_signo != _CHILD and info.si_code <= 0:  # not from the kernel
            os.kill(pid, info.si_signo)
        ended, status, used = os.wait4(pid, os.WNOHANG)
        if ended:
            break
    cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * _KIB
    _report_phase(phase.line(f',"cpu_time":{cpu!r},"peak_memory":{peak}'))
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else _FAILED_BY_SIGNAL - code, sent


def _report_phase(line: str) -> None:
    """Append a line; where that fails the steps go on, and their phases are lost."""
    try:
        # O_APPEND: several processes write lines into the same file
        channel = os.open(os.environ["WEIGH_CHANNEL"], os.O_WRONLY | os.O_APPEND)
        os.write(channel, os.fsencode(line))
        os.close(channel)
    except (KeyError, OSError):
        return


def _print_error(again: str, names: tuple[str, ...], at: int, code: int) -> None:
    rest = len(names) - at - 1
    left = "" if not rest else f"; not run: {', '.join(names[at + 1 :])}"
    sys.stderr.write(
        f"weigh: step {names[at]} ended with exit code {code}{left}\n"
        f"weigh: go on with: {again}\n"
    )


if __name__ == "__main__":
    sys.exit(run_sweep_steps(*sys.argv[1:]))
