"""``weigh report --since``: the unused resources of all runs of a time."""

import time
from collections.abc import Iterator, Mapping

from weigh.flow.follow.view import look
from weigh.flow.records.records import Store, open_store
from weigh.flow.report import joined_records as report_records
from weigh.flow.report.report import of_job, plan_of
from weigh.planning.record_match import kind_of
from weigh.render.report_waste import Waste
from weigh.review.elements import Element, single
from weigh.review.requested import requested_by_records
from weigh.review.runs import Run, run_of, seconds_of
from weigh.review.waste import Kind, rank
from weigh.store import jobs as jobs_file
from weigh.store.checkpoint import finalise_interrupted
from weigh.store.index import read_index
from weigh.units import Seconds, parse_duration


def since(text: str, *, cwd: str, env: Mapping[str, str]) -> Waste:
    """Rank the resources held and not used in the last *text*, such as ``30d``.

    Raises:
        FormatError: *text* is not a time.
        StoreError: the store cannot be read.
    """
    store = open_store(cwd, env)
    finalise_interrupted(store.root, store.machine)
    begin = _begin(store, text)
    kinds = list(_kinds(store, begin, env))
    day = time.strftime("%Y-%m-%d", time.localtime(begin))
    return rank(kinds, since=day)


def runs_since(text: str, *, cwd: str, env: Mapping[str, str]) -> list[Run]:
    """Return all attempts of the last *text*, in jobs and outside of them."""
    store = open_store(cwd, env)
    begin = _begin(store, text)
    return [run for kind in _kinds(store, begin, env) for run in kind.runs]


def _begin(store: Store, text: str) -> Seconds:
    """Return the time *text* ago, or the epoch if that is earlier."""
    return max(0.0, store.now - parse_duration(text))


def _kinds(store: Store, begin: Seconds, env: Mapping[str, str]) -> Iterator[Kind]:
    known = jobs_file.read_jobs(store.root)
    jobs = [job for job in known if job.submitted >= begin]
    by_name: dict[str, list[tuple[tuple[Element, ...], tuple[Run, ...]]]] = {}
    counted: set[str | None] = set()
    for view in look(jobs, known, root=store.root, env=env):
        runs, elements = of_job(view, store, plan_of(view.job))
        counted |= {run.row.record for run in runs}
        by_name.setdefault(view.job.name, []).append((tuple(elements), tuple(runs)))
    for name, parts in by_name.items():
        yield Kind(
            name,
            tuple(element for elements, _ in parts for element in elements),
            tuple(run for _, runs in parts for run in runs if _ran(run)),
        )
    yield from _outside(store, begin, counted)


def _outside(store: Store, begin: Seconds, counted: set[str | None]) -> Iterator[Kind]:
    """Group the records outside submitted jobs, by label or command."""
    ids = [
        entry.head.id
        for entry in read_index(store.root).entries
        if entry.head.id not in counted
        and (seconds_of(entry.head.started) or 0.0) >= begin
    ]
    groups: dict[str, list[tuple[Run, Element]]] = {}
    for record in report_records.by_ids(store.root, ids).values():
        words = kind_of(record.command, record.parameters)
        run = run_of(record)
        pair = run, single(run, requested_by_records([record]))
        groups.setdefault(record.label or " ".join(words), []).append(pair)
    for name, pairs in groups.items():
        runs, elements = zip(*pairs, strict=True)
        yield Kind(name, elements, runs)


def _ran(run: Run) -> bool:
    return run.row.started is not None
