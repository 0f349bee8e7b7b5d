"""Records made up for the tests of the store, and strategies for any record."""

from any_values import PLAIN, values_of
from hypothesis import strategies as st
from some_runs import a_peak, a_run

from weigh.model.record import MeasuringCost, Record, SampleSeries
from weigh.store.identity import MachineIdentity

HERE = MachineIdentity(host="node07", machine_id="0123456789abcdef", boot_id="boot-1")


def some_record(
    record_id: str = "7f3a91c0d2e4",
    *,
    started: str = "2026-11-21T10:00:00.000Z",
    label: str | None = None,
    state: str = "COMPLETED",
    command: tuple[str, ...] = ("python", "tag.py", "50"),
) -> Record:
    peak = a_peak(
        411_041_792,
        low=408_944_640,
        high=420_478_976,
        anonymous=300 << 20,
        shared=50 << 20,
        file=42 << 20,
        source="pagemap",
        time=9.8,
    )
    return a_run(
        id=record_id,
        label=label,
        command=command,
        started=started,
        state=state,
        wall_time=12.4,
        peak_memory=peak,
        series=SampleSeries(
            t=(0.0, 9.8), memory=(1 << 20, 411_041_792), cpu=(None, 0.9)
        ),
        monitor=MeasuringCost(samples=2),
    )


ids = st.text("0123456789abcdef", min_size=12, max_size=12)
records = values_of(
    Record, PLAIN, id=ids, part=st.none(), schema=st.just("weigh.record/1")
)
