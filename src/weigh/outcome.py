"""Say why a run ended as it did, from how it ended and what the kernel counted."""

from weigh.model.record import Measurement, Outcome, State

_SIGNAL_NAMES = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
}
_KILL, _XCPU = 9, 24
_STATES_BY_SIGNAL: dict[int, State] = {
    1: "CANCELLED",
    2: "CANCELLED",
    3: "CANCELLED",
    15: "CANCELLED",
    _XCPU: "TIMEOUT",
}
_SHELL_SIGNAL_BASE = 128


def judge(measured: Measurement) -> tuple[State, Outcome | None]:
    """Give the state of a run that ended, and why where there is more to say.

    A shell reports a child killed by signal n as exit code 128 + n, so both count.
    """
    number = measured.signal or _signal_in(measured.exit_code)
    if measured.oom_kills is not None and measured.oom_kills > 0:
        return _killed_for_memory(measured)
    if measured.exit_code == 0:
        return "COMPLETED", None
    if measured.told_to_end is not None:
        name = signal_name(measured.told_to_end)
        return "CANCELLED", Outcome(f"weigh was sent {name} and passed it on")
    if number is None:
        return "FAILED", Outcome(f"exit code {measured.exit_code}")
    state = _STATES_BY_SIGNAL.get(number, "FAILED")
    return state, Outcome(
        f"ended by {signal_name(number)}", _hints(number, measured.oom_kills)
    )


def _killed_for_memory(measured: Measurement) -> tuple[State, Outcome]:
    evidence = (f"the kernel's oom_kill count rose by {measured.oom_kills}",)
    if measured.exit_code == 0:
        return "COMPLETED", Outcome("a process was killed for memory", evidence)
    return "OUT_OF_MEMORY", Outcome("killed for memory", evidence)


def signal_name(number: int) -> str:
    """Write a signal as people know it."""
    return _SIGNAL_NAMES.get(number, f"signal {number}")


def _signal_in(exit_code: int | None) -> int | None:
    if exit_code is None or exit_code - _SHELL_SIGNAL_BASE not in _SIGNAL_NAMES:
        return None
    return exit_code - _SHELL_SIGNAL_BASE


def _hints(number: int, oom_kills: int | None) -> tuple[str, ...]:
    if number == _XCPU:
        return ("the limit on CPU time was used up",)
    if number != _KILL:
        return ()
    if oom_kills is None:
        return ("whether for memory is not known: the control group cannot be read",)
    return ("no oom_kill was counted in this control group",)
