"""The kernel's own account of each thread that ends: taskstats, for root only.

Documentation/accounting/taskstats.rst of the kernel. Offsets are those of struct
taskstats, whose fields never move.
"""

import os
import socket
import struct
import threading
from collections.abc import Iterator

_GENERIC, _CONTROL = 16, 16  # NETLINK_GENERIC, GENL_ID_CTRL
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_GET, _REGISTER_CPUMASK, _STATS, _AGGREGATE_PID = 1, 3, 3, 4
_REQUEST, _ACK, _ERROR = 1, 4, 2
_DELAY, _RUN, _PID, _PARENT = 24, 64, 128, 132  # cpu_delay_total, cpu_run_real_total


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def _attribute(kind: int, value: bytes) -> bytes:
    text = struct.pack("HH", 4 + len(value), kind) + value
    return text.ljust((len(text) + 3) & ~3, b"\0")


class Exits(threading.Thread):
    """Collects the CPU time and the wait for a CPU of each thread that ends."""

    def __init__(self) -> None:
        """Begin to listen. Raises OSError where the kernel refuses."""
        super().__init__(daemon=True)
        self.ended: dict[int, tuple[float, float]] = {}
        self.parents: dict[int, int] = {}
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC)
        self._socket.bind((0, 0))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        name = _attribute(_FAMILY_NAME, b"TASKSTATS\0")
        self._send(_CONTROL, _GET_FAMILY, name)
        found = dict(_attributes(self._socket.recv(65536)[20:]))
        if _FAMILY_ID not in found:
            raise OSError("no TASKSTATS in this network namespace")
        (self._family,) = struct.unpack_from("H", found[_FAMILY_ID])
        cpus = f"0-{(os.cpu_count() or 1) - 1}\0".encode()
        self._send(self._family, _GET, _attribute(_REGISTER_CPUMASK, cpus), _ACK)
        answer = self._socket.recv(65536)
        kind, (number,) = answer[4:6], struct.unpack_from("i", answer, 16)
        if struct.unpack("H", kind) == (_ERROR,) and number:
            raise OSError(-number, "not for this user")
        self._socket.settimeout(0.2)
        self.over = False
        self.start()

    def wait_below(self, pid: int) -> float:
        """Stop; give the wait in seconds of all that ended below a process."""
        self.over = True
        self.join()
        below, size = {pid}, 0
        while len(below) > size:
            size = len(below)
            below |= {one for one, parent in self.parents.items() if parent in below}
        return sum(self.ended[one][1] for one in below - {pid} if one in self.ended)

    def _send(self, kind: int, command: int, body: bytes, flags: int = 0) -> None:
        head = struct.pack("IHHII", 20 + len(body), kind, _REQUEST | flags, 1, 0)
        self._socket.send(head + struct.pack("BBH", command, 1, 0) + body)

    def run(self) -> None:
        while True:
            try:
                text = self._socket.recv(1 << 20)
            except TimeoutError:
                if self.over:
                    return
                continue
            for kind, value in _attributes(text[20:]):
                if kind == _AGGREGATE_PID:
                    self._take(dict(_attributes(value)).get(_STATS, b""))

    def _take(self, stats: bytes) -> None:
        if len(stats) > _PARENT + 4:
            (pid,) = struct.unpack_from("I", stats, _PID)
            wait, run = (struct.unpack_from("Q", stats, at)[0] for at in (_DELAY, _RUN))
            (self.parents[pid],) = struct.unpack_from("I", stats, _PARENT)
            self.ended[pid] = run / 1e9, wait / 1e9
