"""A program that runs to its end, with what it printed."""

import os
import subprocess
from collections.abc import Sequence
from os import PathLike
from typing import Any

from forked_weigh import WeighCall, weigh_server
from processes import HASTY_WEIGH, WEIGH

CapturedRun = subprocess.CompletedProcess[str]


def run_captured(
    argv: Sequence[str | PathLike[str]],
    *,
    check: bool = False,
    merged: bool = False,
    **options: Any,
) -> CapturedRun:
    """Run a program; return its exit code and what it printed, as text.

    *merged* is stderr in stdout. weigh is forked from a process that has imported it,
    unless there are further options.
    """
    options.setdefault("timeout", 600)
    call = (
        None if {*options} - {"cwd", "env", "timeout"} else _weigh_call(argv, options)
    )
    if call is None or call.needs_own_process():
        err = subprocess.STDOUT if merged else subprocess.PIPE
        options = {"stdout": subprocess.PIPE, "stderr": err} | options
        done = subprocess.run(argv, check=False, text=True, **options)
    else:
        done = weigh_server().captured(call, options["timeout"], merged=merged)
    if check:
        done.check_returncode()
    return done


def _weigh_call(
    argv: Sequence[str | PathLike[str]], options: dict[str, Any]
) -> WeighCall | None:
    words = [os.fspath(word) for word in argv]
    folder = os.path.abspath(options.get("cwd", "."))
    for program in (WEIGH, HASTY_WEIGH):
        if tuple(words[: len(program)]) == program:
            env = {**options.get("env", os.environ)}
            rest = words[len(program) :]
            return WeighCall(rest, env, folder, program == HASTY_WEIGH)
    return None
