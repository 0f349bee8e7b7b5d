"""What one node reports of a job, and the lines that carry it.

The lines of several nodes arrive on one stream, in any order, and a scheduler may cut
and mix longer ones. A part is therefore compressed and sent in pieces of some 700
characters, each one line and one write: ``node number piece pieces text``.
"""

import binascii
import os
import zlib
from collections.abc import Iterator

import msgspec

from weigh.model.gpu import GpuUsage
from weigh.model.record import PeakMemory, RecordedRank, SampleSeries
from weigh.units import Bytes, Seconds

_PIECE = 700  # characters of a line, which stays below the smallest buffer on the way
_MOST_PIECES = 10_000  # of a part: more are a damaged line
_MOST_WAITING = 3  # unfinished parts of one node: an older one lost a line


class NodePart(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a job on one node, as seen for ``elapsed`` seconds.

    ``final`` is set on the last part of a node. ``largest`` is the peak of its largest
    process, ``virtual`` the largest address space mapped at once. ``agent_time`` and
    ``agent_memory`` are the cost of watching, in CPU seconds and bytes.
    """

    node: str
    elapsed: Seconds
    final: bool = False
    peak: PeakMemory | None = None
    series: SampleSeries = SampleSeries()
    ranks: tuple[RecordedRank, ...] = ()
    gpus: tuple[GpuUsage, ...] = ()
    largest: Bytes | None = None
    virtual: Bytes | None = None
    looks: int = 0
    processes: int = 0
    agent_time: Seconds = 0.0
    agent_memory: Bytes | None = None


_DECODER = msgspec.json.Decoder(NodePart)


def part_lines(node_part: NodePart, number: int) -> Iterator[bytes]:
    """Return the lines of a node's part; *number* grows with each part."""
    packed = binascii.b2a_base64(
        zlib.compress(msgspec.json.encode(node_part)), newline=False
    )
    pieces = -(-len(packed) // _PIECE)
    name = node_part.node.encode()
    for turn in range(pieces):
        piece = packed[turn * _PIECE : (turn + 1) * _PIECE]
        yield b"%s %d %d %d %s\n" % (name, number, turn, pieces, piece)


class PartReader:
    """Puts parts together from the lines of all nodes; damaged ones are skipped."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, dict[int, dict[int, bytes]]] = {}
        self._rest = b""

    def feed(self, text: bytes) -> list[NodePart]:
        """Return the parts that *text* completes."""
        *lines, self._rest = (self._rest + text).split(b"\n")
        # the last piece is not a whole line yet
        found = (self._take(line) for line in lines)
        return [part for part in found if part is not None]

    def _take(self, line: bytes) -> NodePart | None:
        words = line.split(b" ")
        # a line that a scheduler wrote, or a damaged one
        if len(words) != 5 or not all(word.isdigit() for word in words[1:4]):  # noqa: PLR2004 - see part_lines
            return None
        node, piece = words[0], words[4]
        number, turn, pieces = map(int, words[1:4])
        # a number that was damaged must not take memory without end
        if not turn < pieces <= _MOST_PIECES:
            return None
        waiting = self._waiting.setdefault(node, {})
        got = waiting.setdefault(number, {})
        got[turn] = piece
        if len(got) < pieces:
            # a part that lost a line will never be complete
            for old in sorted(waiting)[:-_MOST_WAITING]:
                del waiting[old]
            return None
        del waiting[number]
        try:
            packed = binascii.a2b_base64(b"".join(got[i] for i in range(pieces)))
            return _DECODER.decode(zlib.decompress(packed))
        except (ValueError, KeyError, zlib.error, msgspec.MsgspecError):
            return None


def is_own_machine(node: str) -> bool:
    """Return whether a node is a machine of its own, with a tmpfs of its own.

    Several nodes on one machine, as for tests, have names that are not the machine's.
    """
    return os.uname().nodename.partition(".")[0] == node.partition(".")[0]
