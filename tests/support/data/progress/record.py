"""Record what a tool prints as it runs, with the time of every piece.

``python record.py DIRECTORY NAME 'COMMAND'`` plays a command in a terminal of its own,
or into a pipe with ``--pipe``, and writes ``NAME.jsonl.gz``: lines of ``[seconds since
the run began, text]``, the text one character a byte.

The recordings of this folder are of loops whose steps take a drawn time, with a spread
of 10 % around a mean, in tqdm, rich, keras, transformers and lightning; ``cmake`` was
written in the format of the tool. ``tools/`` (74 tools) was recorded on a busy machine:
downloads from a server on loopback whose rate varies (wget, curl, axel, aria2c),
``rsync --bwlimit``, and real work of 4 to 160 s, of which some is uneven on purpose.
The reader was developed on it. ``kept_back/`` holds 24 other tools, recorded the same
way and read only once the reader was committed; what they print had been seen. It has
been used for repairs since. ``recent/`` holds 20 more,
recorded on a crowded machine and read before any change: 16 understood, 78 % of 65
intervals held, 44 % off at 20 %. Those from q to z were then used for repairs, those
from a to p were not; but which ones was decided after the results of all 20 had been
seen, so these are no independent test. Left out for want of a figure of how far they
are: joblib, scikit-learn's grid search, rav1e and duplicity. Folder, host and kernel
names are replaced.
"""

import fcntl
import gzip
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

ROWS, COLUMNS = 40, 100
FOLDERS = re.compile(rb"(?:/[\w.-]+)+/(?=[\w.-]+\.py)")  # of this machine only


def record(directory: Path, name: str, command: str, *, in_pipe: bool) -> None:
    """Run a command, and write what it printed, and when."""
    ours, theirs = os.pipe() if in_pipe else terminal()
    began = time.monotonic()
    child = subprocess.Popen(
        ["sh", "-c", command],
        stdout=theirs,
        stderr=theirs,
        stdin=subprocess.DEVNULL,
        env={
            **os.environ,
            "COLUMNS": str(COLUMNS),
            "TERM": "xterm",
            "PYTHONUNBUFFERED": "",
        },
    )
    os.close(theirs)
    with gzip.open(directory / f"{name}.jsonl.gz", "wt") as file:
        for moment, chunk in pieces(ours, began):
            shown = FOLDERS.sub(b"", chunk)
            row = [round(moment, 3), shown.decode("latin-1")]
            file.write(json.dumps(row) + "\n")
    print(name, child.wait(), f"{time.monotonic() - began:.1f} s")


def terminal() -> tuple[int, int]:
    """Open a terminal with a size: without one tqdm draws nothing."""
    ours, theirs = pty.openpty()
    size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs


def pieces(descriptor: int, began: float) -> Iterator[tuple[float, bytes]]:
    """Yield what can be read, with its time, up to the end."""
    while True:
        select.select([descriptor], [], [])
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # a terminal's other end is closed
            return
        if not chunk:
            return
        yield time.monotonic() - began, chunk


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--pipe"]
    record(Path(given[0]), given[1], given[2], in_pipe="--pipe" in sys.argv)
