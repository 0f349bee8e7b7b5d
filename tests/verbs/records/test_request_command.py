import re
import shutil
from pathlib import Path

import msgspec
import pytest
from called_weigh import CalledWeigh
from msgspec.structs import replace
from some_runs import a_peak, a_run, a_usage, keep_runs
from transcript import check_transcript, file_writer, with_compact_documents

from weigh.model.record import Record, RecordedJob, SampleSeries
from weigh.units import MIB

PEAK = a_peak(392 * MIB, low=390 * MIB, high=401 * MIB)
TAG = a_run(
    label="tag",
    wall_time=12.4,
    cpus_used=0.96,
    peak_memory=PEAK,
    virtual_memory=970 * MIB,
)
LARGEST = a_usage(wall_time=4000.0, max_process_memory=4000 * MIB)
OTHERS = (
    a_run(
        "docker run img",
        id="0000d0c4e500",
        label="docker",
        wall_time=60.0,
        cpu_time=0.2,
    ),
    replace(TAG, id="abad1deacafe", label="big", usage=LARGEST),
    replace(TAG, id="bbad1deacafe", label="bare", usage=a_usage(wall_time=1.0)),
)


def rising(name: str) -> Record:
    """Give a run of 100 s that held 100 MiB and 1 MiB a second more."""
    times = tuple(float(second) for second in range(101))
    memory = tuple(round((100 + time) * MIB) for time in times)
    return a_run(
        id="8a3a91c0ffee",
        label=name,
        wall_time=100.0,
        peak_memory=a_peak(memory[-1]),
        growing=True,
        series=SampleSeries(t=times, memory=memory),
    )


@pytest.fixture(autouse=True)
def records(tmp_path: Path, weigh: CalledWeigh) -> None:
    del weigh
    keep_runs(tmp_path, *OTHERS, rising("leak"), TAG)


def test_requests_and_mistakes_print_what_was_reviewed(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    (tmp_path / "tag.json").write_bytes(msgspec.json.encode(TAG))
    path = Path(__file__).with_name("request.transcript")
    masks = {str(tmp_path): "FOLDER"}
    called = with_compact_documents(weigh)
    check_transcript(path, called, masks, file_writer(tmp_path))

    shutil.rmtree(".weigh")
    code, _, err = weigh("request")
    assert (code, "(weigh run makes one)" in err) == (2, True)
    Path(".weigh/records/2026-11").mkdir(parents=True)
    newer = '{"schema":"weigh.record/99","id":"ffff00001111"}\n'
    Path(".weigh/records/2026-11/a.jsonl").write_text(newer)
    code, _, err = weigh("request")
    assert (code, "that this weigh can read" in err) == (2, True)


def test_the_runs_that_last_stands_for_are_named(
    weigh: CalledWeigh, tmp_path: Path
) -> None:
    names = [f"{number}{number}0000000000" for number in range(1, 6)]
    for name in names:
        its = RecordedJob(id="e1", task=int(name[0]))
        late = "2030-01-01T00:00:00Z"
        keep_runs(tmp_path, replace(TAG, id=name, label=None, job=its, started=late))

        _, out, err = weigh("request", "last")

        (named,) = re.findall(r"# the runs are (.*)", out + err) or [""]
        shown, _, more = named.partition(" and ")
        ids = {*shown.split(", ")} - {""}
        assert ids <= {name[:6] for name in names}
        # a single one needs no name; three of more have one
        count = int(name[0])
        assert len(ids) == (min(count, 3) if count > 1 else 0)
        assert more == (f"{count - 3} more" if count > 3 else "")
