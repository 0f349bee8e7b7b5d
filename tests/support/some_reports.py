"""Any report there could be, for properties of what is written of it."""

from any_values import PLAIN, Strategy, values_of
from hypothesis import strategies as st

from weigh.model.report import JobReport, ReportMeasure, ReportNote, ReportRow

_TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
_VALUES = PLAIN | {str: _TEXT, int: st.integers(0, 1 << 50), float: st.floats(0, 1e7)}
_TIMES = st.none() | st.floats(0, 4e9) | st.floats(-1e18, 1e18)
_HOURS = st.none() | st.just(0.0) | st.floats(1e-6, 1e7)
_STATES = st.sampled_from(["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"])
_MEASURES: dict[str, tuple[str, Strategy]] = {
    "memory": ("bytes", st.integers(0, 1 << 50)),
    "gpu_memory": ("bytes", st.integers(0, 1 << 50)),
    "cpus": ("cpus", st.floats(0, 1e4)),
    "time": ("seconds", st.floats(0, 1e7)),
    "gpu_utilization": ("share", st.floats(0, 1)),
}


def _measure(name: str) -> Strategy:
    unit, amounts = _MEASURES[name]
    return values_of(
        ReportMeasure,
        _VALUES | {float: amounts},
        name=st.just(name),
        unit=st.just(unit),
        efficiency=st.none() | st.floats(0, 1e6),
        bound=st.none(),
    )


def reports() -> st.SearchStrategy[JobReport]:
    """Return a strategy for any report."""
    return st.builds(
        JobReport,
        title=_TEXT,
        job=st.none() | st.from_regex("[0-9]{1,9}", fullmatch=True),
        scheduler=st.none() | _TEXT,
        started=_TIMES,
        ended=_TIMES,
        states=st.dictionaries(_STATES, st.integers(1, 10**6), max_size=4),
        measures=st.tuples(*map(_measure, _MEASURES)),
        rows=st.lists(values_of(ReportRow, _VALUES), max_size=4).map(tuple),
        notes=st.lists(values_of(ReportNote, _VALUES), max_size=3).map(tuple),
        gpu_hours=_HOURS,
        cpu_hours=_HOURS,
    )
