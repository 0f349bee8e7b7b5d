"""State what runs took for a paper: machines, software, run times, energy."""

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from weigh.model.record import Host
from weigh.render.printable import printable
from weigh.render.report_paper import Machines, Statement
from weigh.render.words import short_name
from weigh.review.gpu_energy import gpu_totals, held_gpus
from weigh.review.runs import Run
from weigh.units import format_size

_MOST_VALUES = 8  # of a parameter that is not a number


def state(
    title: str,
    runs: Sequence[Run],
    *,
    this_machine: tuple[str, str] | None = None,
) -> Statement:
    """Return the statement of runs: all attempts, failed ones included.

    *this_machine* is its id and its CPU model, which records do not have.
    """
    ran = [run for run in runs if run.row.started is not None]
    times = [run.row.wall_time for run in ran if run.row.wall_time is not None]
    memory = [run.row.memory for run in ran if run.row.memory is not None]
    held = [run.row.gpu_memory for run in ran if run.row.gpu_memory is not None]
    on_gpus = gpu_totals(ran)
    cpu = [run.row.cpu_time for run in ran if run.row.cpu_time is not None]
    return Statement(
        title=printable(title),
        machines=tuple(_machines(ran, this_machine)),
        gpus=tuple(_gpus(ran)),
        software=tuple(_software(ran)),
        runs=len(ran),
        states=dict(Counter(run.row.state for run in ran)),
        memory_median=_middle(memory),
        memory_most=max(memory, default=None),
        gpu_memory_median=_middle(held),
        gpu_memory_most=max(held, default=None),
        time_mean=statistics.fmean(times) if times else None,
        time_median=statistics.median(times) if times else None,
        time_least=min(times, default=None),
        time_most=max(times, default=None),
        time_total=sum(times) if times else None,
        untimed=len(ran) - len(times),
        cpu_time=sum(cpu) if cpu else None,
        gpu_time=on_gpus.time,
        energy=on_gpus.energy,
        energy_runs=on_gpus.measured,
        parameters=dict(_parameters(ran)),
    )


def _middle(sizes: Sequence[int]) -> int | None:
    return round(statistics.median(sizes)) if sizes else None


def _machines(
    runs: Sequence[Run], this_machine: tuple[str, str] | None
) -> Iterator[Machines]:
    here, model = this_machine or (None, None)
    kinds: Counter[str] = Counter()
    for run in runs:
        host = run.record.host if run.record else None
        if host is not None:
            is_here = here is not None and host.machine_id == here
            kinds[_machine(host, model if is_here else None)] += 1
    yield from (Machines(what, number) for what, number in kinds.most_common())


def _machine(host: Host, model: str | None) -> str:
    words = [model] if model else []
    words.append("" if host.cpus is None else f"{host.cpus} CPUs")
    words.append("" if host.memory is None else f"{format_size(host.memory)} of memory")
    words.append(host.system)
    return ", ".join(word for word in words if word)


def _gpus(runs: Sequence[Run]) -> Iterator[Machines]:
    kinds: Counter[str] = Counter()
    for run in runs:
        kinds_held = Counter((gpu.name, gpu.memory_total) for gpu in held_gpus(run))
        for (name, total), number in kinds_held.items():
            size = "" if total is None else f", {format_size(total)}"
            times = f"{number} x " if number > 1 else ""
            kinds[f"{times}{short_name(name)}{size}"] += 1
    yield from (Machines(what, number) for what, number in kinds.most_common())


def _software(runs: Sequence[Run]) -> Iterator[str]:
    provenances = [
        run.record.provenance
        for run in runs
        if run.record and run.record.provenance is not None
    ]
    for name, field in (("Python", "python"), ("weigh", "weigh")):
        found = sorted({one for t in provenances if (one := getattr(t, field))})
        if found:
            yield f"{name} {' and '.join(found)}"
    commits = dict.fromkeys(
        t.git_commit[:12] + (" with changes" if t.git_dirty else "")
        for t in provenances
        if t.git_commit
    )
    if commits:
        noun = "commit" if len(commits) == 1 else "commits"
        some = list(commits)[:_MOST_VALUES]
        more = ", ..." if len(commits) > len(some) else ""
        yield f"{noun} {', '.join(some)}{more}"


def _parameters(runs: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield the range of values of each parameter."""
    values: dict[str, dict[object, None]] = {}
    for run in runs:
        for name, value in run.row.parameters.items():
            values.setdefault(name, {})[value] = None
    for name, found in values.items():
        yield name, _span(list(found))


def _span(values: Sequence[object]) -> str:
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) == len(values) > _MOST_VALUES:
        span = f"from {min(numbers):g} to {max(numbers):g}"
        return f"{span} ({len(numbers)} values)"
    if len(numbers) == len(values):
        return "{" + ", ".join(f"{v:g}" for v in sorted(numbers)) + "}"
    some = ", ".join(map(str, values[:_MOST_VALUES]))
    return "{" + some + (", ..." if len(values) > _MOST_VALUES else "") + "}"
