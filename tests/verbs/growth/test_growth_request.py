from typing import Any

import msgspec
import pytest

from weigh.errors import FormatError, UsageError
from weigh.flow.request.growth import carry_on, parse_job_steps
from weigh.model.record import (
    BatchTimes,
    PeakMemory,
    ProgramEvent,
    Record,
    SampleSeries,
    Usage,
)
from weigh.request import from_usages
from weigh.units import MIB

SAMPLES = 200


def record(rate: float = MIB, seconds: float = 100.0, **changes: Any) -> Record:
    """Give a run that held 100 MiB and *rate* bytes a second more."""
    times = tuple(seconds * n / (SAMPLES - 1) for n in range(SAMPLES))
    memory = tuple(round(100 * MIB + rate * time) for time in times)
    top = memory[-1]
    peak = PeakMemory(top, top, top, None, None, None, "test")
    plain = Record(
        id="7f3a91c0ffee",
        command=("train",),
        started="2026-11-21T10:00:00Z",
        state="COMPLETED",
        usage=Usage(wall_time=seconds, peak_memory=peak, growing=rate > 0),
        series=SampleSeries(t=times, memory=memory),
    )
    return msgspec.structs.replace(plain, **changes)


def carried(one: Record, steps: str | None = None) -> tuple[int, int, str]:
    length = None if steps is None else parse_job_steps(steps)
    asked = carry_on(from_usages([one]), [one], length)
    assert asked.memory is not None
    assert asked.time_limit is not None
    return asked.memory, asked.time_limit, " ".join(asked.notes)


def test_memory_and_time_are_those_of_all_the_steps_and_notes_state_the_rate() -> None:
    memory, time, notes = carried(record(), "100/1000")
    truth = 100 * MIB + 1000 * MIB
    assert truth * 1.2 <= memory <= truth * 1.35
    assert 1000 * 1.2 <= time <= 1000 * 1.5
    assert "100 of 1000 steps were measured (as given)" in notes
    assert "memory rises by 1.00 MiB/s: at the end" in notes
    assert "10 times as long as was measured" in notes
    assert "measure a longer run" not in notes.replace("a longer run would", "")


@pytest.mark.parametrize(
    ("steps", "way_out"),
    [("1000", "write DONE/TOTAL"), ("10samples", r"only weigh\.batches does")],
)
def test_steps_that_nobody_counted_are_refused_with_the_way_out(
    steps: str, way_out: str
) -> None:
    with pytest.raises(UsageError, match=way_out):
        carried(record(), steps)


def test_flat_memory_stays_as_it_is_and_only_time_grows() -> None:
    flat = record(0)
    memory, time, notes = carried(flat, "100/1000")
    assert memory == from_usages([flat]).memory
    assert time >= 1200
    assert "had levelled out" in notes


@pytest.mark.parametrize(
    ("changes", "source"),
    [
        (
            {"batches": BatchTimes(size=1, count=100, samples=None, time_mean=1.0)},
            "by the timed loop",
        ),
        (
            {"events": tuple(ProgramEvent("step", float(n), n) for n in range(1, 101))},
            "by the events 'step'",
        ),
        ({"parameters": {"steps": 100}}, "by the parameter steps"),
    ],
)
def test_steps_done_are_those_the_record_counted(
    changes: dict[str, object], source: str
) -> None:
    given = carried(record(), "100/1000")
    memory, time, notes = carried(msgspec.structs.replace(record(), **changes), "1000")
    assert (memory, time) == given[:2]
    assert source in notes


def test_start_up_is_not_counted_into_the_steps_of_a_timed_loop() -> None:
    loop = BatchTimes(size=1, count=100, samples=None, time_mean=0.5)
    _, time, _ = carried(record(batches=loop), "1000")
    assert time <= (100 + 450) * 1.2 + 300


def test_a_loop_that_stopped_early_reports_the_total_itself() -> None:
    loop = BatchTimes(size=1, count=100, samples=None, time_mean=1.0, total=1000)
    told = carried(record(batches=loop))
    assert told[0] >= 1.2 * 1100 * MIB


def test_without_a_total_the_rate_is_reported_and_how_to_give_it() -> None:
    rising = record()
    memory, _, notes = carried(rising)
    assert memory == from_usages([rising]).memory
    assert "by 1.00 MiB/s" in notes
    assert "weigh request --target DONE/TOTAL" in notes


NO_LENGTHS = "|x|0|-1|nan|inf|100/10|0/10|/10|1/9samples|0samples"


@pytest.mark.parametrize("steps", NO_LENGTHS.split("|"))
def test_lengths_that_will_not_do_are_refused(steps: str) -> None:
    with pytest.raises(FormatError, match="write it like 10000, 500/10000"):
        parse_job_steps(steps)


def of_batches(size: int | None = 50, samples: int | None = 5000) -> Record:
    loop = BatchTimes(size=size, count=100, samples=samples, time_mean=1.0)
    return record(batches=loop)


def test_a_length_in_samples_is_as_many_batches() -> None:
    expected = carried(of_batches(), "1000")[:2]

    assert carried(of_batches(), "50000samples")[:2] == expected
    # the samples that were counted count, not the size that was given
    assert carried(of_batches(size=64), "50000samples")[:2] == expected
    assert carried(of_batches(samples=None), "5e4samples")[:2] == expected


def test_that_steps_are_batches_is_in_the_notes() -> None:
    _, _, notes = carried(of_batches(), "50000")

    assert (
        "100 of 50000 batches of 50 samples (--target Nsamples counts these)" in notes
    )
    assert "batches of" not in carried(of_batches(1, 100), "200")[2]
