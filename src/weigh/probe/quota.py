"""Read what ``quota -w`` and ``lfs quota`` print: they share one table."""

import re
from collections.abc import Iterator

from weigh.model.doctor import Quota
from weigh.units import KIB

_NUMBER = re.compile(r"\[?(\d{1,18}(?:\.\d{1,9})?)([kKMGTP]?)\*?\]?\*?")
_POWERS = {"": 0, "k": 0, "K": 0, "M": 1, "G": 2, "T": 3, "P": 4}
_THOUSANDS = {"": 1, "k": 1000, "K": 1000, "M": 10**6, "G": 10**9}
_COLUMNS = 6  # used, quota, limit; files, quota, limit: what is left without grace


def parse_quota(text: str) -> tuple[Quota, ...]:
    """Read the rows under a head line with "Filesystem"; other lines are passed over.

    Bare sizes are in KiB, file counts in ones. A grace time may be left blank.
    """
    return tuple(quota for row in _rows(text) if (quota := _quota(row)) is not None)


def _rows(text: str) -> Iterator[list[str]]:
    """Yield the words of each row; a long name may stand on a line of its own."""
    is_table = False
    name: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["Filesystem"]:
            is_table, name = True, []
        elif not is_table or not words or words[0] in {"Disk", "uid", "gid"}:
            name = []
        elif len(words) == 1:
            name = words
        else:
            yield [*name, *words]
            name = []


def _quota(row: list[str]) -> Quota | None:
    found = [match for word in row[1:] if (match := _NUMBER.fullmatch(word))]
    if len(found) < _COLUMNS:
        return None
    used, soft, hard = (_size(match) for match in found[:3])
    files, soft_files, hard_files = (_count(match) for match in found[3:6])
    return Quota(
        file_system=row[0],
        used=used,
        limit=_lower(soft, hard),
        files=files,
        files_limit=_lower(soft_files, hard_files),
    )


def _lower(soft: int, hard: int) -> int | None:
    """Give the lower limit; zero is none."""
    return min((one for one in (soft, hard) if one), default=None)


def _size(match: re.Match[str]) -> int:
    return int(float(match[1]) * KIB * 1024 ** _POWERS[match[2]])


def _count(match: re.Match[str]) -> int:
    return int(float(match[1]) * _THOUSANDS.get(match[2], 1))
