"""Array task indices as schedulers write them: ``0-3,7,10-20:5%3``."""

from collections.abc import Sequence
from functools import lru_cache

from weigh.model.job import Submitted
from weigh.schedulers import find_kind
from weigh.schedulers.words import parse_ranges


def indices_of(job: Submitted) -> Sequence[int]:
    """Return the array indices of a job's elements as its user writes them.

    The elements of a job that weigh wrote count from 0, and so does a plain job.
    """
    if job.own is None or not job.own.indices:
        return range(job.elements)
    return _indices(job.own.indices)


def numbers_of(job: Submitted) -> Sequence[int]:
    """Return the numbers of a job's elements in the answers of its scheduler."""
    if job.own is None or not job.own.indices:
        return range(job.elements)
    kind = find_kind(job.scheduler)
    return _numbers_from(job.own.indices, kind.traits.first_element if kind else 0)


@lru_cache(maxsize=64)
def _indices(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(parse_ranges(text))))


@lru_cache(maxsize=64)
def _numbers_from(text: str, first: int) -> tuple[int, ...]:
    return tuple(index - first for index in _indices(text))
