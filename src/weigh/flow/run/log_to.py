"""``weigh run --log-to``: send the record of a run to MLflow or W&B, after the job."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import weigh
from weigh.model.record import Record
from weigh.render.printable import last_line_of
from weigh.store.lines import encode

DONE = "logged to"  # begins a line on success
_MISSING = 3  # exit code: the package is not there
_LONGEST = 300  # characters of a message of the tool's
_PATIENCE = 60.0  # seconds; the job has ended, and waits for this


def log_to(tool: str, record: Record) -> str:
    """Send *record* to *tool*; return one line on what became of it.

    The package is looked for in weigh's own Python, then in those on PATH: the
    environment of the project. The job's exit code does not depend on it.
    """
    program = os.path.join(os.path.dirname(weigh.__file__), "hooks", "log_record.py")
    for python in _pythons():
        try:
            done = subprocess.run(
                [python, program, tool],
                input=encode(record),
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"--log-to {tool}: no answer after {_PATIENCE:.0f} s"
        except OSError:
            continue
        if done.returncode == 0:
            return f"{DONE} {tool}: {_last(done.stdout)}"
        if done.returncode != _MISSING:
            return f"--log-to {tool}: {_last(done.stderr) or 'it failed'}"
    return f"--log-to {tool}: no Python here has it (pip install {tool})"


def _pythons() -> Iterator[str]:
    found = (sys.executable, shutil.which("python"), shutil.which("python3"))
    yield from dict.fromkeys(path for path in found if path)


def _last(output: bytes) -> str:
    return last_line_of(output.decode(errors="replace"))[:_LONGEST]
