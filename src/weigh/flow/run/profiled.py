"""Run a Python program inside Scalene without visible differences.

weigh does not import this file: Scalene runs it in the user's Python, which may be
older and lack weigh. Its one argument is the program and its arguments as JSON, because
Scalene reorders arguments after ``--``. It ends with the program's own exit code,
because Scalene turns ``sys.exit(None)`` into 1.
"""

from __future__ import annotations  # also for a Python older than weigh's

import builtins
import json
import os
import runpy
import sys
import traceback
import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

_INTERRUPTED = 130


def run_script(path: str, words: list[str]) -> None:
    """Run a file in a ``__main__`` module of its own, where pickle looks."""
    path = os.path.abspath(path)
    sys.argv = words
    sys.path.insert(0, os.path.dirname(path))
    program = sys.modules["__main__"] = types.ModuleType("__main__")
    program.__dict__.update(__file__=path, __builtins__=builtins)
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, program.__dict__)  # noqa: S102 - the user's program


def run_module(name: str, words: list[str]) -> None:
    """Run a module as ``python -m`` does."""
    sys.argv = words
    sys.path.insert(0, os.getcwd())
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def exit_code(end: object) -> int:
    """Return Python's exit code for this SystemExit."""
    if end is None:
        return 0
    if isinstance(end, int):
        return end
    print(end, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def forget_profiler() -> None:
    """Remove the folders that Scalene's start added to sys.path."""
    for folder in (os.path.dirname(os.path.abspath(__file__)), os.getcwd()):
        if folder in sys.path:
            sys.path.remove(folder)


def main() -> int:
    """Run what the first argument says; return its exit code."""
    kind, name, *rest = json.loads(sys.argv[1])
    forget_profiler()
    try:
        {"script": run_script, "module": run_module}[kind](name, [name, *rest])
    except SystemExit as end:
        return exit_code(end.code)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - any exception ends a program
        error.__traceback__ = own_frames(error.__traceback__)
        traceback.print_exception(type(error), error, error.__traceback__)
        return 1
    return 0


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Drop the leading frames of this file and of Scalene from a traceback."""
    above = {__file__, runpy.__file__, "<frozen runpy>"}
    start = trace
    while start is not None:
        name = start.tb_frame.f_code.co_filename
        if name not in above and os.path.basename(os.path.dirname(name)) != "scalene":
            break
        start = start.tb_next
    return start


if __name__ == "__main__":
    sys.exit(main())
