"""Records written in the columns of workflow tools are read back as they were."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.model.record import PeakMemory, Record, Usage
from weigh.store import traces
from weigh.units import MIB

NAMES = st.text("abc/ .\t\né", min_size=1, max_size=8)


def nextflow(records: list[Record]) -> Iterator[traces.Trace]:
    return traces.read_nextflow(_text(traces.write_nextflow(records)))


def snakemake(records: list[Record]) -> Iterator[traces.Trace]:
    return traces.read_snakemake(_text(traces.write_snakemake(records)), "rule")


def _text(lines: Iterator[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@st.composite
def a_record(draw: st.DrawFn) -> Record:
    memory = draw(st.integers(1 * MIB, 1 << 45))
    peak = PeakMemory(memory, memory, memory, None, None, None, "status")
    wall = draw(st.floats(0.001, 1e7))
    cpus = draw(st.none() | st.floats(0, 500))
    usage = Usage(
        wall_time=wall,
        cpus_used=cpus,
        cpu_time=None if cpus is None else wall * cpus,
        peak_memory=draw(st.none() | st.just(peak)),
        virtual_memory=draw(st.none() | st.integers(0, 1 << 50)),
    )
    failed = draw(st.booleans())
    return Record(
        id="0123456789ab",
        label=draw(st.none() | NAMES),
        command=(draw(NAMES),),
        started="2026-11-23T15:57:33+00:00",
        state="FAILED" if failed else "COMPLETED",
        exit_code=3 if failed else 0,
        usage=usage,
    )


@pytest.mark.parametrize("read", [nextflow, snakemake])
@given(records=st.lists(a_record(), max_size=4))
def test_written_figures_are_read_back(read: object, records: list[Record]) -> None:
    assert callable(read)
    found = list(read(records))
    assert [one.problem for one in found] == [None] * len(records)
    for trace, record in zip(found, records, strict=True):
        usage = record.usage
        assert usage is not None
        assert trace.wall_time == pytest.approx(usage.wall_time, abs=1e-3)
        assert (trace.memory is None) == (record.peak_memory is None)
        if trace.memory is not None:
            assert trace.memory == pytest.approx(record.peak_memory, abs=0.01 * MIB)


@given(records=st.lists(a_record(), max_size=4))
def test_a_trace_also_has_the_ends_of_tasks(records: list[Record]) -> None:
    found = list(nextflow(records))
    assert [one.exit_code for one in found] == [one.exit_code for one in records]
    assert [one.state for one in found] == [one.state for one in records]
