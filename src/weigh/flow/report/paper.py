"""``weigh report --paper``: the compute statement of a publication, in Markdown."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from weigh.errors import UsageError
from weigh.flow.here import Here
from weigh.flow.report.report import gather_report_material, open_store_of
from weigh.flow.report.since import runs_since
from weigh.model.record import Record, RecordedHost
from weigh.render.printable import printable_text, three_digit_text
from weigh.render.words import STATE_WORDS, short_name
from weigh.review.runs import ReviewedRun, gpu_time_and_energy, held_gpus
from weigh.units import HOUR, count_with_noun, format_duration, format_size

_JOULES_PER_KWH = 3.6e6
_MOST_VALUES = 8  # of a parameter that are listed; of more the range is stated
# characters that Markdown may read as markup
_SPECIAL = frozenset("\\`*_{}[]<>()#+!|~&$")


def compute_statement(here: Here, name: str, *, since: str | None = None) -> str:
    """State what the runs called *name*, or all of the last *since*, took.

    Every attempt counts, failed ones included.

    Raises:
        UsageError: nothing was measured.
        RecordNotFoundError: nothing answers to that name.
        StoreError: the store cannot be read.
    """
    if since is not None:
        title, every = f"the last {since}", runs_since(here, since)
    else:
        found = gather_report_material(here, name, open_store_of(here, name))
        title, every = found.title, list(found.runs)
    # a task that did not start took nothing
    runs = [run for run in every if run.row.started is not None]
    if not runs:
        raise UsageError("no run was measured in that time: there is nothing to state")
    items = (
        f"- **{item}:** {escaped_markdown(text)}" for item, text in _paper_items(runs)
    )
    return "\n".join((f"**Compute.** {escaped_markdown(title)}", "", *items))


def escaped_markdown(text: str) -> str:
    """Escape *text* so that Markdown shows it unchanged."""
    return "".join(f"\\{c}" if c in _SPECIAL else c for c in printable_text(text))


def _paper_items(runs: Sequence[ReviewedRun]) -> Iterator[tuple[str, str]]:
    records = [run.record for run in runs if run.record is not None]
    machines = [_machine_text(one.host) for one in records if one.host]
    if machines:
        yield "Machines", _kinds_text(machines, len(runs))
    gpus = [text for run in runs if (text := _gpus_text(run))]
    yield "GPUs", _kinds_text(gpus, len(runs)) if gpus else "none were used"
    software = ", ".join(_software_words(records))
    if software:
        yield "Software", software
    yield "Runs", _states_text(runs)
    for name, sizes in (
        ("Memory per run", [run.row.memory for run in runs]),
        ("GPU memory per run", [run.row.gpu_memory for run in runs]),
    ):
        known = [size for size in sizes if size is not None]
        if known:
            yield (
                name,
                _spread_of_values_text(known, lambda size: format_size(round(size))),
            )
    times = [run.row.wall_time for run in runs if run.row.wall_time is not None]
    if times:
        yield "Time per run", _spread_of_values_text(times, format_duration)
        yield "Total time", _total_text(runs, times)
    energy = gpu_time_and_energy(runs)
    if energy.energy is not None:
        of = f", measured in {energy.measured:,} of {count_with_noun(len(runs), 'run')}"
        yield "Energy of the GPUs", f"{energy.energy / _JOULES_PER_KWH:.3g} kWh{of}"
    parameters = "; ".join(_parameter_words(runs))
    if parameters:
        yield "Hyper-parameters", parameters


def _kinds_text(kinds: Iterable[str], runs: int) -> str:
    """List kinds of machines or GPUs, with the runs on each if there are several."""
    found = Counter(kinds).most_common()
    # the same everywhere: no counts needed
    if len(found) == 1 and found[0][1] == runs:
        return found[0][0]
    return "; ".join(
        f"{kind} ({count_with_noun(number, 'run')})" for kind, number in found
    )


def _machine_text(recorded_host: RecordedHost) -> str:
    cpus = "" if recorded_host.cpus is None else f"{recorded_host.cpus} CPUs"
    memory = (
        ""
        if recorded_host.memory is None
        else f"{format_size(recorded_host.memory)} of memory"
    )
    return ", ".join(word for word in (cpus, memory, recorded_host.system) if word)


def _gpus_text(reviewed_run: ReviewedRun) -> str:
    kinds = Counter(
        short_name(gpu.name)
        + ("" if gpu.memory_total is None else f", {format_size(gpu.memory_total)}")
        for gpu in held_gpus(reviewed_run)
    )
    words = (f"{n} x {kind}" if n > 1 else kind for kind, n in kinds.items())
    return " and ".join(words)


def _software_words(records: Sequence[Record]) -> Iterator[str]:
    known = [one.provenance for one in records if one.provenance is not None]
    for name, versions in (
        ("Python", {one.python for one in known}),
        ("weigh", {one.weigh for one in known}),
        ("commit", {(one.git_commit or "")[:12] for one in known}),
    ):
        found = sorted(version for version in versions if version)
        if found:
            yield f"{name} {' and '.join(found)}"


def _states_text(runs: Sequence[ReviewedRun]) -> str:
    states = Counter(run.row.state for run in runs if run.row.state != "COMPLETED")
    if not states:
        return f"{len(runs):,}, all completed"
    words = (f"{number:,} {STATE_WORDS[state]}" for state, number in states.items())
    return f"{len(runs):,} in total, of which {', '.join(words)}"


def _spread_of_values_text(
    values: Sequence[float], text_of: Callable[[float], str]
) -> str:
    if min(values) == max(values):
        return text_of(values[0])
    middle, least, most = statistics.median(values), min(values), max(values)
    return f"median {text_of(middle)}, from {text_of(least)} to {text_of(most)}"


def _total_text(runs: Sequence[ReviewedRun], times: Sequence[float]) -> str:
    words = [
        f"{three_digit_text(sum(times) / HOUR)} hours of runs, failed ones included"
    ]
    cpu = [run.row.cpu_time for run in runs if run.row.cpu_time is not None]
    if cpu:
        words.append(f"{three_digit_text(sum(cpu) / HOUR)} CPU hours")
    gpu = gpu_time_and_energy(runs).time
    if gpu is not None:
        words.append(f"{three_digit_text(gpu / HOUR)} GPU hours")
    return ", ".join(words)


def _parameter_words(runs: Sequence[ReviewedRun]) -> Iterator[str]:
    # a dict as an ordered set
    values: dict[str, dict[int | float | str, None]] = {}
    for run in runs:
        for name, value in run.row.parameters.items():
            values.setdefault(name, {})[value] = None
    for name, found in values.items():
        numbers = sorted(v for v in found if not isinstance(v, str))
        if len(numbers) == len(found) > _MOST_VALUES:
            low, high = numbers[0], numbers[-1]
            yield f"{name} from {low:g} to {high:g} ({len(numbers)} values)"
            continue
        words = [f"{v:g}" for v in numbers]
        words += [v for v in found if isinstance(v, str)]
        more = ", ..." if len(words) > _MOST_VALUES else ""
        yield f"{name} {{{', '.join(words[:_MOST_VALUES])}{more}}}"
