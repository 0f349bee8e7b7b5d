"""GNU parallel's joblog: nine tab-separated columns, a header, one line a task.

A line is written when its task ends, so lines stand in order of completion. The
command comes last and raw: it may hold tabs, and its newlines are written as NUL.
"""

from collections.abc import Iterable, Iterator

import msgspec

from weigh.errors import FormatError
from weigh.units import Seconds

COLUMNS = (
    "Seq",
    "Host",
    "Starttime",
    "JobRuntime",
    "Send",
    "Receive",
    "Exitval",
    "Signal",
    "Command",
)
HEADER = "\t".join(COLUMNS)
_NEWLINE, _NUL = "\n", "\0"
TIMED_OUT = -1  # an exit code, as in GNU parallel
SKIPPED = -2  # an exit code: the task was never started
_LATEST = 253_402_300_800  # the year 10000: no calendar writes it


class JoblogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One task that ended or was skipped.

    ``started`` is seconds since the epoch; ``host`` is ``:`` for the local one;
    ``exit_code`` is 0 when a signal ended it, -1 after a time-out, -2 when skipped.
    """

    seq: int
    host: str
    started: Seconds
    wall_time: Seconds
    sent: int  # bytes copied to the host; weigh copies none
    received: int
    exit_code: int
    signal: int
    command: str

    @property
    def succeeded(self) -> bool:
        """Return whether it ended without a signal and with exit code 0."""
        return self.exit_code == 0 and self.signal == 0


def parse_line(joblog_line: str) -> JoblogEntry:
    """Read one line, without its newline.

    Raises:
        FormatError: a column is missing or invalid.
    """
    fields = joblog_line.split("\t", len(COLUMNS) - 1)
    try:
        entry = JoblogEntry(
            seq=int(fields[0]),
            host=fields[1],
            started=float(fields[2]),
            wall_time=float(fields[3]),
            sent=int(fields[4]),
            received=int(fields[5]),
            exit_code=int(fields[6]),
            signal=int(fields[7]),
            command=fields[8].replace(_NUL, _NEWLINE),
        )
    except (IndexError, ValueError) as error:
        raise FormatError("not a line of a joblog") from error
    # a comparison with NaN is false
    if not (
        entry.seq > 0
        and entry.exit_code >= SKIPPED
        and 0 <= entry.started < _LATEST
        and 0 <= entry.wall_time < _LATEST
    ):
        raise FormatError("not a line of a joblog")
    return entry


def format_entry(entry: JoblogEntry) -> bytes:
    """Return *entry* as GNU parallel writes it, with a newline at its end.

    The command keeps its tabs; its newlines become NUL.
    """
    return (
        f"{entry.seq}\t{entry.host}\t{entry.started:.3f}\t{entry.wall_time:10.3f}\t"
        f"{entry.sent}\t{entry.received}\t{entry.exit_code}\t{entry.signal}\t"
        f"{entry.command.replace(_NEWLINE, _NUL)}\n"
    ).encode("utf-8", "surrogateescape")


def read_task_ends(
    joblog_lines: Iterable[bytes],
) -> Iterator[tuple[int, bool, bytes]]:
    """Yield (seq, whether it succeeded, command) of each complete line that parses.

    This is the fast way to read a long joblog; the command is not decoded.
    """
    for line in joblog_lines:
        fields = line.split(b"\t", 8)
        try:
            seq, code, number = int(fields[0]), int(fields[6]), int(fields[7])
            command = fields[8]
        except (IndexError, ValueError):
            continue
        if command[-1:] == b"\n":
            yield seq, code == number == 0, command[:-1]


def output_folder(joblog_path: str) -> str:
    """Return the folder of the tasks' output that belongs to *joblog_path*."""
    return f"{joblog_path.removesuffix('.joblog')}.out"


def output_name(task: int, attempt: int) -> str:
    """Return the name of the output file of an attempt at a task."""
    return f"{task}.out" if attempt == 1 else f"{task}.{attempt}.out"
