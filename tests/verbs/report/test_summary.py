"""The summary of a run and all of a record: golden text, and laws over any record."""

from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

import msgspec
import pytest
from any_values import PLAIN, values_of
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from some_requests import REQUESTS, a_request
from some_runs import a_peak, a_run
from transcript import check_texts

from weigh.model.record import (
    Record,
    RepeatedRun,
    Request,
    RunOutcome,
    Usage,
)
from weigh.render.record_lines import render_record, render_summary
from weigh.units import MIB

PEAK = a_peak(
    392 * MIB,
    anonymous=380 * MIB,
    shared=0,
    file=12 * MIB,
    source="kernel high-water mark of the one process",
    time=9.8,
)
USAGE = Usage(
    wall_time=12.4,
    cpu_time=11.9,
    cpus_used=0.96,
    peak_memory=PEAK,
    virtual_memory=970 * MIB,
    read_bytes=1258291,
    write_bytes=65536,
    processes=1,
    growing=False,
)
RECORD = a_run(usage=USAGE, started="2026-11-21T10:00:00")  # in each zone
REQUEST = a_request()


def _written(writer: Callable[..., str], **changes: Any) -> str:
    """Return what a writer makes of a record; ``peak`` and ``usage`` change it."""
    peak = msgspec.structs.replace(PEAK, **changes.pop("peak", {}))
    of_usage = {"peak_memory": peak, **changes.pop("usage", {})}
    usage = msgspec.structs.replace(USAGE, **of_usage)
    request = changes.pop("request", None)
    record = msgspec.structs.replace(RECORD, usage=usage, **changes)
    return writer(record, *([request] if writer is render_summary else []))


def differing_lines(text: str, plain: str) -> list[str]:
    """Return the lines of a text that stand in place of some of the plain one's."""
    before, after = plain.splitlines(), text.splitlines()
    rows = [*unified_diff(before, after, n=0, lineterm="")][2:]
    fewer = len(before) - len(after)
    words = [f"({fewer} fewer)"] if fewer > 0 else []
    return [row[1:] for row in rows if row.startswith("+")] + words


def test_a_plain_run_is_written_as_it_was_reviewed() -> None:
    texts = {
        "in its summary": _written(render_summary, request=REQUEST),
        "all of its record": f"{_written(render_record).rstrip()}\n",
    }
    check_texts(Path(__file__).with_name("plain_run.texts"), texts)


def test_worked_examples_of_records() -> None:
    def differs(**changes: Any) -> None:
        for writer in (render_summary, render_record):
            lines = differing_lines(_written(writer, **changes), _written(writer))
            print(*lines, sep="\n", end="\n" if lines else "")

    names = {"differs": differs, "PEAK": PEAK, "USAGE": USAGE}
    check_session(Path(__file__).with_name("records.session"), names)


@pytest.mark.parametrize("scheduler", ["slurm", "gridengine", "htcondor", None])
def test_a_plain_run_takes_five_lines_each_of_which_is_a_thing_to_do(
    scheduler: str | None,
) -> None:
    lines = render_summary(RECORD, REQUEST, scheduler=scheduler).splitlines()
    names = [line[2:11].strip() for line in lines[1:]]
    if scheduler != "htcondor":  # whose directives stand on a line each
        assert names == ["memory", "cpu", "request", "next"]
    is_address_space = scheduler == "gridengine"
    assert ("virtual size 970 MiB" in "".join(lines)) == is_address_space


def test_the_virtual_size_goes_where_it_does_not_fit() -> None:
    long = msgspec.structs.replace(REQUEST, cpus=128, gpus=8)
    written = render_summary(RECORD, long, scheduler="gridengine")
    assert "virtual size" not in written


@pytest.mark.parametrize("state", ["COMPLETED", "FAILED"])
def test_colour_changes_nothing_else(state: str) -> None:
    record = msgspec.structs.replace(RECORD, state=state)
    coloured = render_summary(record, REQUEST, colour=True)
    plain = coloured
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[0m"):
        plain = plain.replace(code, "")
    assert coloured != plain == render_summary(record, REQUEST)


# Every screen

MEASURED = {**PLAIN, float: st.floats(0, 1e9)}
OTHERS = {
    name: st.none() for name in ("cpu_wait", "file_calls", "jvm", "sign", "cache")
}
USAGES = values_of(Usage, MEASURED, gpus=st.just(()), **OTHERS)
REPEATS = values_of(RepeatedRun, MEASURED, usage=USAGES)


@given(
    st.builds(
        Record,
        id=st.just("7f3a91c0ffee"),
        command=st.just(("x",)),
        started=st.just(""),
        state=st.sampled_from(["OUT_OF_MEMORY", "COMPLETED"]),
        exit_code=st.none() | st.integers(0, 255),
        signal=st.none() | st.integers(1, 64),
        outcome=st.none() | values_of(RunOutcome, PLAIN),
        usage=st.none() | USAGES,
        repeats=st.lists(REPEATS, max_size=4).map(tuple),
    ),
    st.none() | REQUESTS,
)
def test_no_line_is_longer_than_80_columns(
    record: Record, request: Request | None
) -> None:
    text = render_summary(record, request)
    assert text.endswith("\n")
    assert all(0 < len(line) <= 80 for line in text.splitlines())
    assert "\x1b" not in text


@given(USAGES)
def test_what_was_not_measured_is_not_a_zero(usage: Usage) -> None:
    record = msgspec.structs.replace(RECORD, usage=usage)
    lines = render_summary(record).splitlines()
    said = {line[2:8].strip() for line in lines[1:]}
    assert ("cpu" in said) == (usage.cpu_time is not None)
    assert "memory" in said
