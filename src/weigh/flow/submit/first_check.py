"""Check at the end of an element of `--first N` whether its request was sufficient.

    python -m weigh.flow.submit.first_check --memory BYTES --together N JOBLOG

Exit code 0 if every task succeeded, its memory stopped growing and stayed within the
request. The result is printed to the element's log.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from weigh.errors import WeighError
from weigh.flow.records.records import find_record, open_store
from weigh.model.record import Record
from weigh.runner import events
from weigh.store.lines import UNREADABLE
from weigh.units import Bytes, format_size

_ENDED = b'{"event":"ended"'
_NOT = 1


class Measured(msgspec.Struct, frozen=True):
    """What the tasks of an element used: the peak of each, and which still grew.

    A peak is None where it was below that of weigh, which started the task; ``failed``
    are the numbers of the tasks that did not succeed.
    """

    peaks: tuple[Bytes | None, ...]
    failed: tuple[int, ...] = ()
    growing: tuple[int, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """Whether the request was sufficient, and why."""

    holds: bool
    words: str


def judge(shown: Measured, *, memory: Bytes | None, together: int) -> Verdict:
    """Return whether the request was sufficient.

    *together* tasks at a time share *memory*: the sum of the largest peaks counts.
    """
    known = sorted((peak for peak in shown.peaks if peak is not None), reverse=True)
    used = sum(known[:together])
    against = (
        (not shown.peaks, "no task was measured"),
        (shown.failed, f"{_tasks(shown.failed)} failed"),
        (shown.growing, f"the memory of {_tasks(shown.growing)} still rose at the end"),
        (
            memory is not None and used > memory,
            f"{format_size(memory or 0)} requested, {format_size(used)} used",
        ),
    )
    for is_so, words in against:
        if is_so:
            return Verdict(holds=False, words=words)
    if memory is None:
        return Verdict(holds=True, words="memory stopped growing")
    words = f"memory stopped growing at {format_size(used)} of {format_size(memory)}"
    return Verdict(holds=True, words=words if known else "usage too small to measure")


def read_measured(joblog: str, *, cwd: str, env: Mapping[str, str]) -> Measured:
    """Read what the tasks of *joblog* used in their last attempts.

    Raises:
        WeighError: the store cannot be read.
    """
    last: dict[int, events.Ended] = {}
    for line in _lines(joblog + events.SUFFIX):
        if line.startswith(_ENDED):
            try:
                event = msgspec.json.decode(line, type=events.Ended)
            except UNREADABLE:
                continue
            last[event.seq] = event
    ended = [last[seq] for seq in sorted(last)]
    store = open_store(cwd, env)
    return Measured(
        peaks=tuple(one.peak_memory for one in ended),
        failed=tuple(one.seq for one in ended if one.state != "COMPLETED"),
        growing=tuple(
            one.seq
            for one in ended
            if one.state == "COMPLETED" and _grew(find_record(store, one.record))
        ),
    )


def _grew(record: Record) -> bool:
    return record.usage is not None and bool(record.usage.growing)


def main(words: Sequence[str], env: Mapping[str, str]) -> int:
    """Check one element; return the exit code."""
    parser = argparse.ArgumentParser(prog="weigh.flow.submit.first_check")
    parser.add_argument("joblog")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--together", type=int, default=1)
    options = parser.parse_args(words)
    try:
        shown = read_measured(options.joblog, cwd=os.getcwd(), env=env)
    except WeighError as error:
        sys.stderr.write(f"weigh: the rest is held: {error}\n")
        return _NOT
    verdict = judge(shown, memory=options.memory, together=options.together)
    what = "the rest may start" if verdict.holds else "the rest is held"
    sys.stderr.write(f"weigh: {what}: {verdict.words}\n")
    return 0 if verdict.holds else _NOT


def _tasks(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"task{'' if len(numbers) == 1 else 's'} {listed}"


def _lines(path: str) -> Iterable[bytes]:
    try:
        with open(path, "rb") as file:
            return file.read().splitlines(keepends=True)
    except OSError:
        return ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
