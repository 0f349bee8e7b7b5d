"""The compute statement that conferences require, in Markdown or LaTeX."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from weigh.render.printable import three
from weigh.render.report_files import escaped as markdown
from weigh.units import HOUR, Seconds, format_duration, format_size

Form: TypeAlias = Literal["md", "latex"]
FORMS: tuple[Form, ...] = get_args(Form)
JOULES_PER_KWH = 3.6e6
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",  # these three are other characters in old fonts
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


class Machines(msgspec.Struct, frozen=True):
    """A kind of machine, and the number of runs on it."""

    what: str
    runs: int


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed on what, for how long. Bytes, seconds, joules, gCO2/kWh.

    ``states`` counts runs by state. ``energy`` is that of the GPUs over the
    ``energy_runs`` runs where it was measured; ``untimed`` runs were killed before
    their time was recorded.
    """

    title: str
    machines: tuple[Machines, ...] = ()
    gpus: tuple[Machines, ...] = ()
    software: tuple[str, ...] = ()
    runs: int = 0
    states: dict[str, int] = {}
    memory_median: int | None = None
    memory_most: int | None = None
    gpu_memory_median: int | None = None
    gpu_memory_most: int | None = None
    time_mean: Seconds | None = None
    time_median: Seconds | None = None
    time_least: Seconds | None = None
    time_most: Seconds | None = None
    time_total: Seconds | None = None
    untimed: int = 0
    cpu_time: Seconds | None = None
    gpu_time: Seconds | None = None
    energy: float | None = None
    energy_runs: int = 0
    parameters: dict[str, str] = {}
    intensity: float | None = None

    @property
    def co2(self) -> float | None:
        """Return grams of CO2, if a grid intensity was given."""
        if self.energy is None or self.intensity is None:
            return None
        return self.energy / JOULES_PER_KWH * self.intensity


def render_paper(statement: Statement, form: Form) -> str:
    """Write the statement as a list, item by item."""
    items = list(_items(statement))
    if form == "md":
        lines = [f"**Compute.** {markdown(statement.title)}", ""]
        return "\n".join(lines + [f"- **{n}:** {markdown(t)}" for n, t in items])
    return "\n".join(_latex(statement.title, items))


def _latex(title: str, items: list[tuple[str, str]]) -> Iterator[str]:
    yield f"\\paragraph{{Compute.}} {latex(title)}"
    yield "\\begin{itemize}"
    yield from (f"  \\item \\textbf{{{n}:}} {latex(t)}" for n, t in items)
    yield "\\end{itemize}"


def latex(text: str) -> str:
    """Escape *text* so that LaTeX shows it unchanged."""
    plain = "".join(_SPECIAL.get(c, c if c.isprintable() else " ") for c in text)
    return plain.replace("--", "-{}-").replace("--", "-{}-")  # else they are a dash


def _items(statement: Statement) -> Iterator[tuple[str, str]]:
    if statement.machines:
        yield "Machines", _listed(statement.machines, statement.runs)
    yield (
        "GPUs",
        _listed(statement.gpus, statement.runs) if statement.gpus else "none were used",
    )
    if statement.software:
        yield "Software", ", ".join(statement.software)
    yield "Runs", _runs(statement)
    yield from _spread("Memory per run", statement.memory_median, statement.memory_most)
    yield from _spread(
        "GPU memory per run", statement.gpu_memory_median, statement.gpu_memory_most
    )
    if statement.time_median is not None and statement.time_total is not None:
        yield "Time per run", _time(statement)
        yield "Total time", _total(statement)
    yield from _energy(statement)
    if statement.parameters:
        pairs = (f"{name} {span}" for name, span in statement.parameters.items())
        yield "Hyper-parameters", "; ".join(pairs)


def _listed(machines: tuple[Machines, ...], runs: int) -> str:
    if len(machines) == 1 and machines[0].runs == runs:
        return machines[0].what
    return "; ".join(f"{one.what} ({_count(one.runs)})" for one in machines)


def _runs(statement: Statement) -> str:
    bad = {state: n for state, n in statement.states.items() if state != "COMPLETED"}
    if not bad:
        return f"{statement.runs:,}, all completed"
    words = (f"{n:,} {state.lower().replace('_', ' ')}" for state, n in bad.items())
    return f"{statement.runs:,} in total, of which {', '.join(words)}"


def _spread(
    name: str, median: int | None, most: int | None
) -> Iterator[tuple[str, str]]:
    if median is not None and most is not None:
        same = median == most
        words = f"median {format_size(median)}, peak {format_size(most)}"
        yield name, format_size(most) if same else words


def _time(statement: Statement) -> str:
    duration: Callable[[Seconds | None], str] = lambda s: format_duration(s or 0.0)  # noqa: E731 - four times below
    if statement.runs == 1:
        return duration(statement.time_median)
    return (
        f"mean {duration(statement.time_mean)}, "
        f"median {duration(statement.time_median)}, "
        f"from {duration(statement.time_least)} to {duration(statement.time_most)}"
    )


def _total(statement: Statement) -> str:
    words = [f"{_hours(statement.time_total)} hours of runs, failed ones included"]
    if statement.cpu_time is not None:
        words.append(f"{_hours(statement.cpu_time)} CPU hours")
    if statement.gpu_time is not None:
        words.append(f"{_hours(statement.gpu_time)} GPU hours")
    if statement.untimed:
        words.append(
            f"and {_count(statement.untimed)} killed before their time was recorded"
        )
    return ", ".join(words)


def _energy(statement: Statement) -> Iterator[tuple[str, str]]:
    if statement.energy is None:
        return
    share = ""
    if statement.energy_runs < statement.runs:
        share = f", measured in {statement.energy_runs:,} of {statement.runs:,} runs"
    yield "Energy of the GPUs", f"{statement.energy / JOULES_PER_KWH:.3g} kWh{share}"
    if statement.co2 is not None:
        stated = f"at the stated {statement.intensity:g} gCO2/kWh"
        yield "CO2 of the GPUs", f"{statement.co2 / 1000:.3g} kg {stated}"


def _hours(seconds: Seconds | None) -> str:
    return three((seconds or 0.0) / HOUR)


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs:,} runs"
