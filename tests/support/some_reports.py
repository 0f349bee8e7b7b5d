"""Any report there could be, for properties of what is written of it."""

from hypothesis import strategies as st

from weigh.model.report import (
    JobReport,
    OtherFigure,
    ReportMeasure,
    ReportNote,
    ReportRow,
)

_TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
_BYTES = st.integers(0, 1 << 50)
_SECONDS = st.floats(0, 1e7)
_TIMES = st.floats(0, 4e9) | st.floats(-1e18, 1e18)
_NAMES = st.from_regex("[a-z]{1,12}", fullmatch=True)
_VALUES = st.one_of(st.integers(-(1 << 40), 1 << 40), st.floats(-1e9, 1e9), _TEXT)
_STATES = st.sampled_from(["COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT"])


def _maybe(one: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | one


def rows() -> st.SearchStrategy[ReportRow]:
    """Give any row."""
    return st.builds(
        ReportRow,
        task=_maybe(st.integers(1, 10**6)),
        element=_maybe(st.integers(0, 10**6)),
        record=_maybe(st.from_regex("[0-9a-f]{12}", fullmatch=True)),
        label=_TEXT,
        state=_STATES,
        node=_maybe(_TEXT),
        reason=_maybe(_TEXT),
        error=_maybe(_TEXT),
        started=_maybe(st.floats(0, 4e9)),
        wall_time=_maybe(_SECONDS),
        cpu_time=_maybe(_SECONDS),
        cpus=_maybe(st.floats(0, 1e4)),
        memory=_maybe(_BYTES),
        gpu_memory=_maybe(_BYTES),
        gpu_utilization=_maybe(st.floats(0, 1)),
        energy=_maybe(_SECONDS),
        parameters=st.dictionaries(_NAMES, _VALUES, max_size=3),
        command=_TEXT,
    )


def _measure(name: str, unit: str) -> st.SearchStrategy[ReportMeasure]:
    amount = {"bytes": _BYTES, "seconds": _SECONDS, "cpus": st.floats(0, 1e4)}.get(
        unit, st.floats(0, 1)
    )
    figures = st.builds(OtherFigure, source=_TEXT, value=amount, word=_maybe(_TEXT))
    return st.builds(
        ReportMeasure,
        name=st.just(name),
        unit=st.just(unit),
        requested=_maybe(amount),
        median=_maybe(amount),
        most=_maybe(amount),
        efficiency=_maybe(st.floats(0, 1e6)),
        others=st.lists(figures, max_size=2).map(tuple),
        values=st.lists(amount, max_size=12).map(tuple),
    )


def reports() -> st.SearchStrategy[JobReport]:
    """Give any report."""
    measures = st.tuples(
        _measure("memory", "bytes"),
        _measure("gpu_memory", "bytes"),
        _measure("cpus", "cpus"),
        _measure("time", "seconds"),
        _measure("gpu_utilization", "share"),
    )
    note = st.builds(ReportNote, about=_TEXT, words=_TEXT, flag=_maybe(_TEXT))
    hours = _maybe(st.just(0.0) | st.floats(1e-6, 1e7))
    return st.builds(
        JobReport,
        title=_TEXT,
        job=_maybe(st.from_regex("[0-9]{1,9}", fullmatch=True)),
        scheduler=_maybe(_TEXT),
        started=_maybe(_TIMES),
        ended=_maybe(_TIMES),
        states=st.dictionaries(_STATES, st.integers(1, 10**6), max_size=4),
        measures=measures,
        rows=st.lists(rows(), max_size=4).map(tuple),
        notes=st.lists(note, max_size=3).map(tuple),
        gpu_hours=hours,
        cpu_hours=hours,
    )
