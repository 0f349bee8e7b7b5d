"""Start weigh: fork the processes that launch jobs, then import everything else."""

import atexit
import gc
import os
import sys
from typing import NoReturn

from weigh.errors import WeighError
from weigh.measure.launcher import interrupt_quietly, prepare

_RARELY = 100_000  # new objects between collections: imports leave no garbage


def main() -> NoReturn:
    """Run the command line, and end with its exit code."""
    interrupt_quietly()
    try:
        launchers = prepare(sys.argv[1:])
    except OSError as error:
        if sys.stderr is not None:
            sys.stderr.write(f"weigh: cannot start a process: {error.strerror}\n")
        sys.exit(WeighError.exit_code)
    _fill_closed_streams()
    gc.set_threshold(_RARELY)
    # imported only now, after the launchers' fork
    if sys.argv[1:2] == ["run"]:
        from weigh.cli.plain_run import run_plain  # noqa: PLC0415

        code = run_plain(sys.argv[1:], launchers)
        if code is not None:
            _leave(code)
    from weigh.cli.main import run_cli  # noqa: PLC0415

    _leave(run_cli(sys.argv[1:], launchers))


def _leave(code: int) -> NoReturn:
    """End with *code*, all output being written, without taking the interpreter down.

    That would be a tenth of the CPU time of a short command.
    """
    import threading  # noqa: PLC0415 - by now it is there

    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - no public name runs them
    os._exit(code)


def _fill_closed_streams() -> None:
    """Open /dev/null on closed descriptors 0 to 2, to keep weigh's files off them.

    The job was forked before, and still finds them closed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    main()
