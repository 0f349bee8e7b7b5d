import csv
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import CalledWeigh
from hypothesis import given
from hypothesis import strategies as st
from some_runs import a_peak, a_run, a_usage
from transcript import check_answers, check_transcript

from weigh.flow.records.record_lookup import records_by_ids, whole_records_by_ids
from weigh.flow.records.records import open_store, runs_of_last
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    CodeProvenance,
    MeasuringCost,
    ProgramPhase,
    Record,
    RecordedHost,
    RecordedRank,
    SampleSeries,
)
from weigh.render.printable import csv_cell
from weigh.render.record_list import commands_within
from weigh.store.checkpoint import RunCheckpoint, save_checkpoint
from weigh.store.identity import (
    MachineIdentity,
    ProcessIdentity,
    process_identity,
    this_machine,
)
from weigh.store.index import RecordHead
from weigh.store.past_calls import StoredScan, append_call
from weigh.store.shards import append_line, append_record

HERE = this_machine()


@pytest.fixture(autouse=True)
def root(tmp_path: Path, weigh: CalledWeigh) -> str:
    del weigh
    return str(tmp_path / ".weigh")


def keep(root: str, record_id: str, **changes: Any) -> Record:
    parts = {"anonymous": 300 << 20, "shared": 50 << 20, "file": 42 << 20}
    bounds = {"low": 390 << 20, "high": 401 << 20}
    usual: dict[str, Any] = {
        "id": record_id,
        "command": ("python", "tag.py", "a file.txt"),
        "ended": "2026-11-21T10:00:12.400Z",
        "host": RecordedHost(name="node07", system="Linux", cpus=4, memory=16 << 30),
        "parameters": {"lr": 0.1},
        "usage": a_usage(
            wall_time=12.4,
            cpu_time=11.9,
            peak_memory=a_peak(
                392 << 20, **bounds, **parts, source="pages of the tree", time=9.8
            ),
        ),
        "series": SampleSeries(t=(0.0, 5.0, 12.4), memory=(0, 100 << 20, 392 << 20)),
        "monitor": MeasuringCost(warnings=("perf refused",)),
    }
    record = a_run(**usual | changes)
    append_record(root, record, HERE)
    return record


def several(root: str) -> None:
    """Leave records of each kind."""
    usage = keep(root, "aaaaaaaa0001", label="x" * 70).usage
    assert usage is not None
    gpu = GpuUsage(uuid="u", name="V100", peak_memory=2 << 30, source="NVML")
    usage = msgspec.structs.replace(usage, gpus=(gpu,))
    code = CodeProvenance("0123456789abcdef", "3.11.7", "1.0")
    ended = {"state": "FAILED", "signal": 9, "exit_code": None}
    keep(root, "aaaaaaaa1001", label="gpu", usage=usage, provenance=code, **ended)
    train = ProgramPhase("train", 0, calls=3, start=0.0, end=3.0, wall_time=2.5)
    ranks = tuple(RecordedRank(rank=n, peak_memory=(2 + n) << 30) for n in (0, 1))
    newer = {"started": "2026-11-22T10:00:00Z", "phases": (train,), "ranks": ranks}
    keep(root, "bbbb11112222", label="parts", **newer)
    keep(root, "cccc11112222", label="a", state="FAILED", exit_code=3)
    alone = a_usage(max_process_memory=7 << 20)
    keep(root, "dddd11112222", usage=alone, state="TIMEOUT", exit_code=124)


def lines_that_are_none(root: str) -> None:
    path = append_record(root, keep(root, "aaaa11112222"), HERE)
    append_line(path, b"{torn")
    append_line(path, b'{"schema":"weigh.record/2","id":"ffff00001111"}')


def running(root: str, machine: MachineIdentity, process: ProcessIdentity) -> None:
    """Leave a record, and another of a run that has not ended."""
    record = msgspec.structs.replace(
        keep(root, "aaaa11112222"), id="bbbb11112222", state="RUNNING"
    )
    run = RunCheckpoint(machine=machine, weigh=process, record=record)
    save_checkpoint(root, run)


def silent_elsewhere(root: str) -> None:
    running(root, MachineIdentity("node99", "another", "boot"), ProcessIdentity(1))
    os.utime(os.path.join(root, "running", "bbbb11112222.json"), (0, 0))


def from_another_machine(root: str) -> None:
    """Copy the store of another machine over that of this one."""
    record = keep(root, "aaaa11112222")
    theirs = msgspec.structs.replace(record, id="bbbb11112222")
    append_record(f"{root}-there", theirs, MachineIdentity("there", "boot"))
    shutil.copytree(f"{root}-there", root, dirs_exist_ok=True)


SITUATIONS: dict[str, Callable[[str], object]] = {
    "several records": several,
    "lines that are no records": lines_that_are_none,
    "a command that would steer the terminal": lambda root: keep(
        root, "aaaa11112222", command=("\x1b[2J", "x\ny"), label="\x07"
    ),
    "a run whose weigh was killed": lambda root: running(
        root, HERE, ProcessIdentity(2**22 + 1, 1)
    ),
    "a run of this machine": lambda root: running(
        root, HERE, process_identity(os.getpid())
    ),
    "a run of another machine that has been silent": silent_elsewhere,
    "records copied from another machine": from_another_machine,
}


def test_records_print_what_was_reviewed(
    root: str, weigh: CalledWeigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()

    def given(situation: str) -> None:
        shutil.rmtree(root, ignore_errors=True)
        SITUATIONS[situation](root)

    transcript = Path(__file__).with_name("records.transcript")
    times = {r"(?<=last seen at\n) +20\S+Z": "             NOW"}
    check_transcript(transcript, weigh, times, given)


def test_the_newest_are_listed_and_how_many_there_are(
    root: str, weigh: CalledWeigh
) -> None:
    for number in range(25):
        keep(root, f"{number:012x}")
    for words, shown in (((), 20), (("-n", "3"), 3), (("-n", "0"), 25)):
        _, *lines = weigh("records", *words)[1].splitlines()
        newest_first = [f"{number:012x}" for number in range(24, 24 - shown, -1)]
        assert [line.split()[0] for line in lines[:shown]] == newest_first
        rest = f"{shown} of 25; -n 0 lists all"
        assert lines[shown:] == ([rest] if shown < 25 else [])
    document = json.loads(weigh("records", "--json")[1])
    assert (document["schema"], document["total"]) == ("weigh.records/1", 25)
    assert len(document["records"]) == 25
    assert document["records"][0]["usage"]["peak_memory"]["value"] == 392 << 20


def test_show_and_export_give_records_as_they_were_stored_the_oldest_first(
    root: str, weigh: CalledWeigh
) -> None:
    newer = keep(root, "aaaa11112222")
    older = keep(root, "bbbb11112222", started="2026-11-20T10:00:00Z")
    lines = weigh("records", "export")[1].splitlines()
    lines += [weigh("records", "show", "aaaa", "--json")[1]]
    read = [msgspec.json.decode(line, type=Record) for line in lines]
    assert read == [older, newer, newer]


def test_the_last_run_of_a_scan_stands_for_all_of_them(root: str) -> None:
    append_call(root, StoredScan("size", ("tag",), "/"))
    found = []
    for number, label in enumerate(("size", "size", "other")):
        began = f"2026-11-21T10:00:0{number}Z"
        keep(root, f"{number:012x}", label=label, started=began)
        found.append(len(runs_of_last(open_store("/", {"WEIGH_DIR": root}))))
    assert found == [1, 2, 1]


def test_export_csv_is_a_table_of_plain_numbers(root: str, weigh: CalledWeigh) -> None:
    gpus = [GpuUsage(f"{n}", "V100", peak_memory=n, energy=n) for n in (1, 2)]
    keep(root, "aaaa11112222", label='a,"b"')
    keep(root, "aaaa22221111", usage=a_usage(gpus=tuple(gpus)))
    formula = {"label": "=1\r2", "command": ("=1",)}
    keep(root, "bbbb11112222", parameters={"seed": 1}, usage=None, **formula)
    weigh("records", "export", "-o", "runs.csv")
    exported = Path("runs.csv").read_bytes()
    table = list(csv.DictReader(io.StringIO(exported.decode())))
    gpu_names = ("gpus", "gpu_peak_memory", "gpu_energy")
    on_gpus = table.pop(1)  # the fullest, and the sum of energies
    assert [on_gpus[name] for name in gpu_names] == ["2", "2", "3.0"]
    assert [row["param:lr"] + row["param:seed"] for row in table] == ["0.1", "1"]
    assert [row["peak_memory"] for row in table] == [str(392 << 20), ""]
    assert [row["label"] for row in table] == ['a,"b"', "'=1\\r2"]
    assert table[1]["command"] == "'=1"
    # a name that is not there leaves the file alone
    assert weigh("records", "export", "-o", "runs.csv", "nope")[0] == 2
    assert Path("runs.csv").read_bytes() == exported


def test_no_cell_of_a_csv_file_is_a_formula() -> None:
    def cell(text: str) -> object:
        return csv_cell(text.encode().decode("unicode_escape"))

    path = Path(__file__).with_name("csv.texts")
    check_answers(path, {"a cell": cell, "a number": lambda text: csv_cell(int(text))})


@given(
    st.lists(
        st.lists(
            st.text("abcdef-", min_size=1, max_size=20), min_size=3, max_size=12
        ).map(tuple),
        min_size=1,
        max_size=6,
    ),
    st.integers(20, 60),
)
def test_no_command_of_a_list_is_wider_than_its_room(
    commands: list[tuple[str, ...]], room: int
) -> None:
    heads = [RecordHead(id="0", command=("run", *words)) for words in commands]
    assert max(map(len, commands_within(heads, room))) <= room


@pytest.mark.parametrize(
    ("room", "label", "has_parameters", "shown"),
    [
        (34, None, True, "... --layers 12 --seed {0} lr=0.{0}"),
        (21, "check-53e5f2", False, "...layers 12 --seed {0}"),
        (28, "check-53e5f2", True, "...layers 12 --seed {0} lr=0.{0}"),
        (29, "check-53e5f2", True, "check-53e5f2: ...eed {0} lr=0.{0}"),
    ],
)
def test_a_list_keeps_the_end_of_a_long_command_and_parameters_that_differ(
    room: int, label: str | None, shown: str, *, has_parameters: bool
) -> None:
    words = ("python3", "train.py", "--layers", "12", "--seed")
    heads = [
        RecordHead(
            id="0",
            label=label,
            command=(*words, seed),
            parameters={"lr": float(f"0.{seed}"), "batch": 32}
            if has_parameters
            else {},
        )
        for seed in "12"
    ]
    assert commands_within(heads, room) == [shown.format(seed) for seed in "12"]


def test_records_are_read_by_their_ids_and_only_whole_ones_have_their_series(
    root: str,
) -> None:
    series = SampleSeries(t=(0.0, 9.8), memory=(1 << 20, 392 << 20), cpu=(None, 0.9))
    kept = keep(root, "aaaaaaaaaaaa", series=series)
    keep(root, "bbbbbbbbbbbb")
    light = records_by_ids(root, ["aaaaaaaaaaaa", "cccccccccccc"])
    assert light == {kept.id: msgspec.structs.replace(kept, series=None)}
    assert whole_records_by_ids(root, ["aaaaaaaaaaaa"]) == {kept.id: kept}
