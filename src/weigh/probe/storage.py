"""Read the storage traffic of a process's ended descendants.

When a process is reaped the kernel adds its counts to its parent's, so what weigh's
own /proc/self/io shows beyond weigh's own threads is exactly what the job did.
"""

import os

import msgspec

from weigh.units import Bytes


class IoReading(msgspec.Struct, frozen=True):
    """Bytes that reached storage, as the kernel counts them."""

    read_bytes: Bytes
    write_bytes: Bytes

    def since(self, before: "IoReading") -> "IoReading":
        """Return the traffic between two readings."""
        return IoReading(
            self.read_bytes - before.read_bytes, self.write_bytes - before.write_bytes
        )


def parse_io(text: bytes) -> IoReading:
    """Read /proc/PID/io. Raises ValueError or KeyError when it is something else."""
    fields = dict(line.split(b":") for line in text.splitlines())
    return IoReading(int(fields[b"read_bytes"]), int(fields[b"write_bytes"]))


def read_reaped_io(proc: str = "/proc") -> IoReading | None:
    """Read the traffic of reaped descendants; None if the kernel does not count it."""
    try:
        total = _read(f"{proc}/self/io")
        for tid in os.listdir(f"{proc}/self/task"):
            total = total.since(_read(f"{proc}/self/task/{tid}/io"))
    except (OSError, ValueError, KeyError):
        return None
    return total


def _read(path: str) -> IoReading:
    with open(path, "rb") as file:
        return parse_io(file.read())
