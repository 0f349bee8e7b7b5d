"""Start weigh: fork the processes that launch jobs, then import everything else."""

import _signal  # type: ignore[import-not-found]
import sys

# before any other import: Ctrl-C must not print a traceback of one
if sys.platform != "win32" and _signal.getsignal(_signal.SIGINT) is not _signal.SIG_IGN:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import atexit
import gc
import os

from weigh.import_path import put_own_packages_first

put_own_packages_first()  # before anything of another Python can be imported

from types import SimpleNamespace  # noqa: E402
from typing import NoReturn  # noqa: E402

from weigh.errors import WeighError  # noqa: E402
from weigh.measure.launcher import (  # noqa: E402
    JobLauncher,
    exec_command,
    has_child_ended,
    prepare,
)

_RARELY = 100_000  # new objects between collections: imports leave no garbage


def main() -> NoReturn:
    """Run the command line, and end with its exit code."""
    try:
        launchers = prepare(sys.argv[1:])
    except OSError as error:
        # pythonw and some daemons have no stderr
        if sys.stderr is not None:
            sys.stderr.write(f"weigh: cannot start a process: {error.strerror}\n")
        sys.exit(WeighError.exit_code)
    _fill_closed_streams()
    gc.set_threshold(_RARELY)
    try:
        code = _run_command_line(sys.argv[1:], launchers)
    except Exception as error:  # noqa: BLE001 - a broken installation, or a bug
        code = _report_broken(error, sys.argv[1:], launchers)
    _exit_with_code(code)


def _run_command_line(argv: list[str], launchers: list[JobLauncher]) -> int:
    # imported only now, after the launchers' fork
    _import_msgspec_alone()
    if argv[:1] == ["run"]:
        from weigh.cli.plain_run import run_plain  # noqa: PLC0415

        code = run_plain(argv, launchers)
        if code is not None:
            return code
    from weigh.cli.main import run_cli  # noqa: PLC0415

    return run_cli(argv, launchers)


class _TypeOfOthers:
    """Stands for a type that msgspec can encode, and that no struct of weigh's has."""


def _import_msgspec_alone() -> None:
    """Import msgspec without the modules of types that weigh has none of.

    They cost a quarter of our start. What msgspec takes from typing_extensions, where
    it can be imported, typing has since Python 3.11.
    """
    safety = SimpleNamespace(unknown=None)
    of_types = SimpleNamespace(
        UUID=_TypeOfOthers, SafeUUID=safety, Decimal=_TypeOfOthers
    )
    # from here an import of the first fails
    stand_ins = {"typing_extensions": None, "uuid": of_types, "decimal": of_types}
    added = {name: one for name, one in stand_ins.items() if name not in sys.modules}
    sys.modules.update(added)  # type: ignore[arg-type]
    try:
        import msgspec  # noqa: F401, PLC0415
    except AttributeError:  # another version takes more from them: later, whole
        pass
    finally:
        for name in added:
            del sys.modules[name]


def _report_broken(
    error: Exception, argv: list[str], launchers: list[JobLauncher]
) -> int:
    """Report that weigh is broken, and run the command of `weigh run` unmeasured.

    The command replaces this process, so its exit code and signals are its own. It does
    not run a second time if it was already started.
    """
    if os.environ.get("WEIGH_DEBUG"):
        raise error
    command = argv[argv.index("--") + 1 :] if "--" in argv else []
    runs = bool(command and launchers) and not any(
        has_child_ended(one.pid) for one in launchers
    )
    what = "the command runs unmeasured" if runs else "please report it"
    cause = " ".join(f"{type(error).__name__}: {error}".split())
    line = f"weigh: internal error: {cause} (WEIGH_DEBUG=1 shows where); {what}"
    if isinstance(error, OverflowError) and "PyTime" in cause:
        line = "weigh: this machine's clock is set beyond the year 2262: set it right"
        line += f"; {what}" if runs else ""
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - prints nothing where closed
    if runs:
        for launcher in launchers:
            launcher.discard()
        try:
            exec_command(command)
        except WeighError as reason:
            print(f"weigh: {reason}", file=sys.stderr)  # noqa: T201
            return reason.exit_code
    return WeighError.exit_code


def _exit_with_code(exit_code: int) -> NoReturn:
    """End with *exit_code*, all output written, without taking the interpreter down.

    That would be a tenth of the CPU time of a short command.
    """
    import threading  # noqa: PLC0415 - by now it is there

    # output may still be written by them; daemons are cut off, as at a normal end
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - no public name runs them
    os._exit(exit_code)


def _fill_closed_streams() -> None:
    """Open /dev/null on closed descriptors 0 to 2, to keep weigh's files off them.

    The job was forked before, and still finds them closed.
    """
    # a closed 0 to 2 would be the number of the next file that weigh opens
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main()
