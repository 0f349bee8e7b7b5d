"""Each benchmark still starts: what it imports is there. mypy checks what it calls."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = {"resource_tracker_run.py"}  # run by the Python that has this peer

# each in a fork, or it would find what another one added to the path
START_EACH = """
import os, runpy, sys, weigh.runner.shared_queue
for file in sys.argv[1:]:
    if not (child := os.fork()):
        sys.path.insert(0, os.path.dirname(file))
        runpy.run_path(file, run_name="imported")
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(file)
"""


def test_every_benchmark_imports_what_is_there() -> None:
    files = [path for path in BENCHMARKS.glob("*.py") if path.name not in PEERS]
    assert files
    ended = subprocess.run(
        [sys.executable, "-c", START_EACH, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ended.returncode, ended.stderr
