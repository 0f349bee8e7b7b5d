"""A program that runs to its end, with what it printed."""

import subprocess
from collections.abc import Sequence
from os import PathLike
from typing import Any

CapturedRun = subprocess.CompletedProcess[str]


def run_captured(
    argv: Sequence[str | PathLike[str]], *, check: bool = False, **options: Any
) -> CapturedRun:
    """Run a program; return its exit code and what it printed, as text."""
    options.setdefault("timeout", 600)
    return subprocess.run(argv, check=check, capture_output=True, text=True, **options)
