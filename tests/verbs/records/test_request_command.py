import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from called_weigh import called_here, work_alone_in
from transcript import check_transcript, file_writer

from weigh.model.record import PeakMemory, Record, RecordedJob, SampleSeries, Usage
from weigh.store import identity, shards
from weigh.units import MIB

Weigh = Callable[..., tuple[int, str, str]]

LINES = "#SBATCH --mem=480M\n#SBATCH --cpus-per-task=1\n#SBATCH --time=00:05:00\n"
PEAK = PeakMemory(
    value=392 * MIB,
    low=390 * MIB,
    high=401 * MIB,
    anonymous=None,
    shared=None,
    file=None,
    source="test",
)
TAG = Record(
    id="7f3a91c0ffee",
    label="tag",
    command=("python", "tag.py"),
    started="2026-11-21T10:00:00Z",
    state="COMPLETED",
    usage=Usage(
        wall_time=12.4, cpus_used=0.96, peak_memory=PEAK, virtual_memory=970 * MIB
    ),
)


DOCKER = msgspec.structs.replace(
    TAG,
    id="0000d0c4e500",
    label="docker",
    command=("docker", "run", "img"),
    usage=Usage(wall_time=60.0, cpu_time=0.2),
)
BIG = msgspec.structs.replace(
    TAG,
    id="abad1deacafe",
    label="big",
    usage=Usage(wall_time=4000.0, max_process_memory=4000 * MIB),
)
BARE = msgspec.structs.replace(
    TAG, id="bbad1deacafe", label="bare", usage=Usage(wall_time=1.0)
)


def rising(name: str) -> Record:
    """Give a run of 100 s that held 100 MiB and 1 MiB a second more."""
    times = tuple(float(second) for second in range(101))
    memory = tuple(round((100 + time) * MIB) for time in times)
    peak = PeakMemory(memory[-1], memory[-1], memory[-1], None, None, None, "test")
    return msgspec.structs.replace(
        TAG,
        id="8a3a91c0ffee",
        label=name,
        usage=Usage(wall_time=100.0, peak_memory=peak, growing=True),
        series=SampleSeries(t=times, memory=memory),
    )


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    """``weigh`` in a folder with records, no scheduler and no settings."""
    for record in (DOCKER, BIG, BARE, rising("leak"), TAG):
        shards.append_record(str(tmp_path / ".weigh"), record, identity.this_machine())
    work_alone_in(tmp_path, monkeypatch)

    return called_here(capsys)


def test_requests_and_mistakes_print_what_was_reviewed(
    weigh: Weigh, tmp_path: Path
) -> None:
    (tmp_path / "tag.json").write_bytes(msgspec.json.encode(TAG))
    transcript = Path(__file__).with_name("request.transcript")

    check_transcript(
        transcript, weigh, {str(tmp_path): "FOLDER"}, file_writer(tmp_path)
    )


def test_json_has_the_figures_and_the_flags_of_each_scheduler(weigh: Weigh) -> None:
    document = json.loads(weigh("request", "--json")[1])
    figures = ("cpus", "memory", "virtual_memory", "time_limit", "headroom", "runs")
    assert document["schema"] == "weigh.request/1"
    assert [document[name] for name in figures] == [
        1,
        480 << 20,
        1180 << 20,
        300,
        0.2,
        1,
    ]
    assert document["records"] == ["7f3a91c0ffee"]
    assert document["slurm"] == ["--mem=480M", "--cpus-per-task=1", "--time=00:05:00"]
    assert document["gridengine"] == ["-l h_vmem=1180M", "-l h_rt=00:05:00"]
    duration = "allowed_job_duration = 300"
    assert document["htcondor"] == [
        "request_cpus = 1",
        "request_memory = 480M",
        duration,
    ]


def test_with_no_record_at_all_the_way_out_is_named(
    weigh: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / "empty"))

    code, _, err = weigh("request")

    assert code == 2
    assert "weigh run" in err


def test_the_runs_that_last_stands_for_are_named(weigh: Weigh, tmp_path: Path) -> None:
    names = [f"{number}{number}0000000000" for number in range(1, 6)]
    for name in names:
        its = RecordedJob(id="e1", task=int(name[0]))
        one = msgspec.structs.replace(
            TAG, id=name, label=None, job=its, started="2030-01-01T00:00:00Z"
        )
        shards.append_record(f"{tmp_path}/.weigh", one, identity.this_machine())

    _, out, err = weigh("request", "last")

    named = re.search(r"# the runs are (\w+), (\w+), (\w+) and 2 more", out + err)
    assert named is not None, out + err
    assert {*named.groups()} < {name[:6] for name in names}
