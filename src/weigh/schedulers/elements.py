"""Array task indices as schedulers write them: ``0-3,7,10-20:5%3``."""

from collections.abc import Sequence
from functools import lru_cache

from weigh.model.job import SubmittedJob
from weigh.schedulers import find_kind
from weigh.schedulers.words import parse_ranges


def indices_of(submitted_job: SubmittedJob) -> Sequence[int]:
    """Return the array indices of a job's elements as its user writes them.

    The elements of a job that weigh wrote count from 0, and so does a plain job.
    """
    if submitted_job.own is None or not submitted_job.own.indices:
        return range(submitted_job.elements)
    return _indices_of_ranges(submitted_job.own.indices)


def element_numbers_of(submitted_job: SubmittedJob) -> Sequence[int]:
    """Return the numbers of a job's elements in the answers of its scheduler."""
    if submitted_job.own is None or not submitted_job.own.indices:
        return range(submitted_job.elements)
    kind = find_kind(submitted_job.scheduler)
    return _numbers_from(
        submitted_job.own.indices, kind.traits.first_element if kind else 0
    )


@lru_cache(maxsize=64)
def _indices_of_ranges(text: str) -> tuple[int, ...]:
    return tuple(sorted(set(parse_ranges(text))))


@lru_cache(maxsize=64)
def _numbers_from(text: str, first: int) -> tuple[int, ...]:
    return tuple(index - first for index in _indices_of_ranges(text))
