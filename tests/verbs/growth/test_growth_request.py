from pathlib import Path
from typing import Any

from sessions import check_session
from some_runs import a_run

from weigh.flow.request.growth import carry_on, parse_job_steps
from weigh.model.record import Record, SampleSeries
from weigh.request import from_usages
from weigh.units import MIB

SAMPLES = 200


def record(rate: float = MIB, seconds: float = 100.0, **changes: Any) -> Record:
    """Give a run that held 100 MiB and *rate* bytes a second more."""
    times = tuple(seconds * n / (SAMPLES - 1) for n in range(SAMPLES))
    memory = tuple(round(100 * MIB + rate * time) for time in times)
    known: dict[str, Any] = {
        "wall_time": seconds,
        "growing": rate > 0,
        "series": SampleSeries(t=times, memory=memory),
    }
    return a_run("train", memory[-1], **known | changes)


def carried(
    one: Record, steps: str | None = None
) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Return its memory, its time, and the notes after the one on the run."""
    length = None if steps is None else parse_job_steps(steps)
    asked = carry_on(from_usages([one]), [one], length)
    return asked.memory, asked.time_limit, asked.notes[1:]


def test_worked_examples_of_longer_runs() -> None:
    names = {"record": record, "carried": carried}
    check_session(Path(__file__).with_name("growth.session"), names)
