"""The compute statement that venues ask for, in Markdown or LaTeX."""

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias, get_args

import msgspec

from weigh.render.report_files import escaped as markdown
from weigh.render.words import three
from weigh.units import HOUR, Seconds, format_duration, format_size

Form: TypeAlias = Literal["md", "latex"]
FORMS: tuple[Form, ...] = get_args(Form)
JOULES_A_KWH = 3.6e6
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
    "<": r"\textless{}",  # these three are other signs in its oldest fonts
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}


class Machines(msgspec.Struct, frozen=True):
    """A kind of machine, and how many runs were made on it."""

    what: str
    runs: int


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """What was computed on what, for how long. Bytes, seconds, joules, gCO2/kWh.

    ``runs`` are all, ``states`` those that did not complete among them. ``energy`` is
    of the GPUs over the ``energy_runs`` runs where it was measured; ``untimed`` runs
    were killed with all around them.
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
        """Give grams of CO2, where a grid intensity was stated."""
        if self.energy is None or self.intensity is None:
            return None
        return self.energy / JOULES_A_KWH * self.intensity


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
    """Write *text* so that LaTeX shows it as it is."""
    plain = "".join(_SPECIAL.get(c, c if c.isprintable() else " ") for c in text)
    return plain.replace("--", "-{}-").replace("--", "-{}-")  # else they are a dash


def _items(told: Statement) -> Iterator[tuple[str, str]]:
    if told.machines:
        yield "Machines", _listed(told.machines, told.runs)
    yield "GPUs", _listed(told.gpus, told.runs) if told.gpus else "none were used"
    if told.software:
        yield "Software", ", ".join(told.software)
    yield "Runs", _runs(told)
    yield from _spread("Memory a run", told.memory_median, told.memory_most)
    yield from _spread("GPU memory a run", told.gpu_memory_median, told.gpu_memory_most)
    if told.time_median is not None and told.time_total is not None:
        yield "Time a run", _time(told)
        yield "Time in total", _total(told)
    yield from _energy(told)
    if told.parameters:
        pairs = (f"{name} {span}" for name, span in told.parameters.items())
        yield "Hyper-parameters", "; ".join(pairs)


def _listed(machines: tuple[Machines, ...], runs: int) -> str:
    if len(machines) == 1 and machines[0].runs == runs:
        return machines[0].what
    return "; ".join(f"{one.what} ({_count(one.runs)})" for one in machines)


def _runs(told: Statement) -> str:
    bad = {state: n for state, n in told.states.items() if state != "COMPLETED"}
    if not bad:
        return f"{told.runs:,}, all completed"
    words = (f"{n:,} {state.lower().replace('_', ' ')}" for state, n in bad.items())
    return f"{told.runs:,} in all, of which {', '.join(words)}"


def _spread(
    name: str, median: int | None, most: int | None
) -> Iterator[tuple[str, str]]:
    if median is not None and most is not None:
        same = median == most
        words = f"median {format_size(median)}, at most {format_size(most)}"
        yield name, format_size(most) if same else words


def _time(told: Statement) -> str:
    duration: Callable[[Seconds | None], str] = lambda s: format_duration(s or 0.0)  # noqa: E731 - four times below
    if told.runs == 1:
        return duration(told.time_median)
    return (
        f"mean {duration(told.time_mean)}, median {duration(told.time_median)}, from "
        f"{duration(told.time_least)} to {duration(told.time_most)}"
    )


def _total(told: Statement) -> str:
    words = [f"{_hours(told.time_total)} hours of runs, failed ones included"]
    if told.cpu_time is not None:
        words.append(f"{_hours(told.cpu_time)} CPU hours")
    if told.gpu_time is not None:
        words.append(f"{_hours(told.gpu_time)} GPU hours")
    if told.untimed:
        words.append(f"and {_count(told.untimed)} killed before the time was taken")
    return ", ".join(words)


def _energy(told: Statement) -> Iterator[tuple[str, str]]:
    if told.energy is None:
        return
    share = ""
    if told.energy_runs < told.runs:
        share = f", measured in {told.energy_runs:,} of {told.runs:,} runs"
    yield "Energy of the GPUs", f"{told.energy / JOULES_A_KWH:.3g} kWh{share}"
    if told.co2 is not None:
        stated = f"at the stated {told.intensity:g} gCO2/kWh"
        yield "CO2 of the GPUs", f"{told.co2 / 1000:.3g} kg {stated}"


def _hours(seconds: Seconds | None) -> str:
    return three((seconds or 0.0) / HOUR)


def _count(runs: int) -> str:
    return "1 run" if runs == 1 else f"{runs:,} runs"
