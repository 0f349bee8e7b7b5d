"""Jobs and records for the shell's <TAB>, newest first."""

from collections.abc import Iterator, Mapping

from weigh.store import jobs, location
from weigh.store.index import read_index


def job_names(cwd: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (id, name of the plan) of the jobs submitted from here, the newest first.

    Raises:
        StoreError: they cannot be read.
    """
    for job in reversed(jobs.read_jobs(location.locate_store(cwd, env))):
        yield job.id, job.name


def record_names(cwd: str, env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (word, what it calls) for the newest records: labels and ids.

    Raises:
        StoreError: they cannot be read.
    """
    yield "last", "the newest record"
    for entry in read_index(location.locate_store(cwd, env)).entries:
        head = entry.head
        if head.label:
            yield head.label, "label"
        yield head.id, " ".join(head.command)[:40]
