import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from called_weigh import called_here, work_alone_in

from weigh.cli.main import run_cli
from weigh.model.record import (
    Allocation,
    MeasuringCost,
    PeakMemory,
    Record,
    RecordedHost,
    RecordedJob,
    Usage,
)
from weigh.store import identity, shards
from weigh.units import GIB, MIB

Weigh = Callable[..., tuple[int, str, str]]
Keep = Callable[..., Record]


def a_peak(value: int) -> PeakMemory:
    return PeakMemory(
        value=value,
        low=value,
        high=value,
        anonymous=None,
        shared=None,
        file=None,
        source="test",
    )


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Keep one run more: a tagger whose memory is a line in its batch size."""
    kept: list[Record] = []

    def keep_it(batch: int = 50, memory: int | None = None, **other: object) -> Record:
        peak = (900 + 5 * batch) * MIB if memory is None else memory
        record = Record(
            id=f"{len(kept) + 1:012x}",
            label="tag",
            command=("python", "tag.py", "alice.txt", str(batch)),
            parameters={"batch_size": batch},
            host=RecordedHost(name="node07", system="Linux"),
            started=f"2026-11-21T10:{len(kept) // 60:02d}:{len(kept) % 60:02d}Z",
            state="COMPLETED",
            exit_code=0,
            usage=Usage(wall_time=600.0, cpus_used=1.0, peak_memory=a_peak(peak)),
        )
        record = msgspec.structs.replace(record, **other)
        shards.append_record(str(tmp_path / ".weigh"), record, identity.this_machine())
        kept.append(record)
        return record

    return keep_it


@pytest.fixture
def weigh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Weigh:
    """``weigh request --from history``; its notes with their folds taken out."""
    work_alone_in(tmp_path, monkeypatch)

    def call(*argv: str) -> tuple[int, str, str]:
        code, out, err = called_here(capsys, "request", "--from", "history")(*argv)
        return code, out, err.replace("\n#   ", " ")

    return call


def memory_of(out: str) -> int:
    return int(json.loads(out)["memory"])


def test_low_risk_is_the_default_and_requests_the_most_seen(
    weigh: Weigh, keep: Keep
) -> None:
    for batch in (50, 300, 100):
        keep(batch)

    code, out, err = weigh()

    assert (code, out.splitlines()[0]) == (0, "#SBATCH --mem=3050M")
    assert "memory 2.98 GiB for batch_size=100: the most seen + 27 %" in err


def test_the_answer_states_how_many_runs_and_the_share_killed(
    weigh: Weigh, keep: Keep
) -> None:
    for batch in (50, 300, 100, 200, 150):
        keep(batch)

    err = weigh()[2]

    assert "from 5 runs of tag: python tag.py {file} {batch_size}" in err
    assert "would have killed 0 of the last 2 runs" in err
    assert "expect 17 % killed" in err  # one in six, as of any five


def test_normal_risk_requests_what_the_size_needs(weigh: Weigh, keep: Keep) -> None:
    for batch in (50, 300, 100, 200, 150, 250, 75, 125, 175, 225):
        keep(batch)

    out = weigh("--risk", "normal", "--param", "batch_size=100", "--for", "json")[1]

    assert 1400 * MIB <= memory_of(out) <= 1600 * MIB


def test_each_run_that_ends_sharpens_the_next(weigh: Weigh, keep: Keep) -> None:
    for batch in (50, 100, 75):
        keep(batch)
    before = memory_of(weigh("--for", "json")[1])
    keep(100, memory=3 * GIB)

    assert memory_of(weigh("--for", "json")[1]) > max(before, 3 * GIB)


@pytest.mark.parametrize("runs", [1, 2])
def test_before_three_runs_the_answer_is_to_run_three_first(
    weigh: Weigh, keep: Keep, runs: int
) -> None:
    for batch in (50, 60)[:runs]:
        keep(batch)

    code, out, err = weigh()

    assert code == 0
    assert out.startswith("#SBATCH --mem=")
    assert err.startswith(f"# {runs} completed run")


def test_with_no_run_at_all_the_way_out_is_named(weigh: Weigh) -> None:
    code, _, err = weigh()

    assert code == 2
    assert "weigh run" in err


def test_an_oom_doubles_what_the_run_was_stopped_at(weigh: Weigh, keep: Keep) -> None:
    for _ in range(3):
        keep()
    granted = Allocation(scheduler="slurm", memory=4 * GIB)
    keep(state="OUT_OF_MEMORY", exit_code=137, allocation=granted)

    _, out, err = weigh("--for", "json")
    document = json.loads(out)

    assert err == ""
    assert document["memory"] == 8 * GIB
    assert document["history"]["memory"]["after_kill"] == 8 * GIB
    assert document["time_limit"] == 900


def test_a_timeout_doubles_the_time_and_nothing_else(weigh: Weigh, keep: Keep) -> None:
    for _ in range(3):
        keep()
    stopped = Usage(wall_time=3600.0, peak_memory=a_peak(GIB))
    keep(state="TIMEOUT", usage=stopped)

    document = json.loads(weigh("--for", "json")[1])

    assert document["time_limit"] == 7200
    assert document["memory"] < 1.5 * GIB


def test_no_more_is_requested_than_a_node_has(weigh: Weigh, keep: Keep) -> None:
    node = RecordedHost(name="node07", system="Linux", memory=6 * GIB)
    for _ in range(3):
        keep(host=node, allocation=Allocation(scheduler="slurm"))
    keep(state="OUT_OF_MEMORY", memory=4 * GIB)

    _, out, err = weigh()

    assert out.startswith("#SBATCH --mem=6G\n")
    assert "limited to 6.00 GiB, the memory of a node" in err


def test_another_command_under_the_label_is_kept_apart(
    weigh: Weigh, keep: Keep
) -> None:
    keep(300, command=("python", "train.py", "300"))
    for batch in (50, 50, 50):
        keep(batch)

    assert weigh("tag")[1].startswith("#SBATCH --mem=1240M\n")


def test_a_parameter_that_is_a_word_keeps_to_its_runs(weigh: Weigh, keep: Keep) -> None:
    for model in ("small", "large", "small", "large", "small", "large"):
        memory = (1 if model == "small" else 8) * GIB
        keep(memory=memory, parameters={"model": model})

    assert "several kinds of model mixed" in weigh()[2]
    assert weigh("--param", "model=small")[1].startswith("#SBATCH --mem=1100M\n")


def test_a_parameter_missing_from_half_of_the_records_is_reported(
    weigh: Weigh, keep: Keep
) -> None:
    for batch in (50, 100, 150, 200):
        keep(batch)
        keep(batch, parameters={})

    code, _, err = weigh()

    assert code == 0
    assert "batch_size went from 50 to 200 and the next run's value is unknown" in err


def test_runs_that_failed_do_not_count_and_are_reported(
    weigh: Weigh, keep: Keep
) -> None:
    keep(memory=30 * GIB, state="FAILED", exit_code=1)
    for _ in range(3):
        keep()

    _, out, err = weigh()

    assert out.startswith("#SBATCH --mem=1240M\n")
    assert "not counted: 1 FAILED" in err


def test_the_next_of_whole_sizes_is_whole(keep: Keep, weigh: Weigh) -> None:
    for batch in (2, 3, 5):
        keep(batch=batch)

    err = weigh("--param", "batch_size=10")[2]

    assert "measure batch_size=7 first" in " ".join(err.replace("#", "").split())


def test_a_size_far_beyond_what_was_measured_names_the_next_to_measure(
    weigh: Weigh, keep: Keep
) -> None:
    for batch in (50, 100, 75, 60, 90):
        keep(batch)

    err = weigh("--param", "batch_size=900")[2]

    assert "no run of that size was measured" in err
    assert "batch_size=900 is 9 x the largest measured" in err
    assert "measure batch_size=300 first" in err


@pytest.mark.parametrize("memory", [0, -5])
def test_a_record_whose_memory_cannot_be_is_refused_by_name(
    weigh: Weigh, keep: Keep, memory: int
) -> None:
    for _ in range(3):
        keep()
    keep(memory=memory)

    code, out, err = weigh()

    assert (code, out) == (2, "")
    assert "record 000000000004 has a memory of" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--risk", "none"], "low"),
        (["--param", "colour=red"], "no record has the parameter colour=red"),
        (["--param", "batch"], "NAME=VALUE"),
        (["--param", "batchsize=3"], "(batch_size)"),
        (["--param", "batch_size=nan"], "is no size"),
        (["--headroom", "20%"], "--headroom has no effect here"),
        (["tag", "last"], "one job at a time"),
        (["nosuch"], "no record called 'nosuch'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    weigh: Weigh, keep: Keep, argv: list[str], says: str
) -> None:
    for _ in range(3):
        keep()

    code, out, err = weigh(*argv)

    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_what_belongs_to_history_is_refused_without_it(
    weigh: Weigh, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    keep()
    assert weigh()[0] == 0

    code = run_cli(["request", "--risk", "high"], [])

    assert code == 2
    assert "--risk has no effect here: add --from history" in (capsys.readouterr().err)


def test_every_line_fits_a_terminal(
    weigh: Weigh, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    for batch in (50, 300, 100, 200, 150):
        keep(batch, host=RecordedHost(name=f"node{batch}", system="Linux"))
    assert weigh()[0] == 0

    run_cli(["request", "--from", "history", "--param", "batch_size=2000"], [])

    assert max(map(len, capsys.readouterr().err.splitlines())) <= 80


def imported(
    looks: int = 20, requested: int | None = None, **other: object
) -> dict[str, Any]:
    """What a record of a scheduler's accounting has besides a run of weigh."""
    return {
        "parameters": {},
        "command": ("tag",),
        "monitor": MeasuringCost(samples=looks, interval=30.0, source="accounting"),
        "allocation": Allocation(scheduler="slurm", cpus=2, memory=requested),
        **other,
    }


def test_a_sampled_figure_is_raised_and_a_request_that_was_enough_is_the_most(
    weigh: Weigh, keep: Keep
) -> None:
    for size in (1000, 1010, 1020, 1000):
        keep(memory=size * MIB, **imported(looks=2, requested=4 * GIB))
    assert 1020 * 1.1 * MIB < memory_of(weigh("--for", "json")[1]) < 1400 * MIB

    for size in (1000, 1010, 1020, 1000):
        keep(
            memory=size * MIB,
            **imported(looks=2, requested=1030 * MIB, label="tight"),
        )
    _, out, err = weigh("--for", "json", "tight")
    assert memory_of(out) == 1030 * MIB
    out, err = weigh("tight")[1:]
    assert "the most that a completed job requested" in err


def test_jobs_that_nobody_sampled_keep_their_request(weigh: Weigh, keep: Keep) -> None:
    for _ in range(5):
        keep(memory=3 * MIB, **imported(looks=0, requested=2 * GIB))

    out = weigh("--for", "json")[1]

    assert memory_of(out) == 2 * GIB
    assert "memory as requested: 2.00 GiB was enough" in weigh()[2]


def test_a_kill_above_all_that_was_sampled_doubles_its_request(
    weigh: Weigh, keep: Keep
) -> None:
    for _ in range(4):
        keep(memory=900 * MIB, **imported(requested=GIB))
    keep(memory=950 * MIB, **imported(requested=GIB, state="OUT_OF_MEMORY"))

    assert memory_of(weigh("--for", "json")[1]) == 2 * GIB


def test_enough_exact_runs_of_weigh_outweigh_imported_ones(
    weigh: Weigh, keep: Keep
) -> None:
    for _ in range(5):
        keep(memory=3 * GIB, **imported(requested=8 * GIB))
    for _ in range(3):
        keep(memory=GIB, parameters={}, command=("tag",))

    out = weigh("--for", "json")[1]

    assert memory_of(out) < 1.2 * GIB


def test_a_job_that_weigh_measured_too_counts_once(weigh: Weigh, keep: Keep) -> None:
    for number in range(4):
        job = RecordedJob(id=str(number), element=0)
        keep(memory=5 * GIB, **imported(requested=8 * GIB, job=job))
    keep(memory=GIB, parameters={}, command=("tag",), job=RecordedJob(id="2"))

    assert "from 4 runs" in weigh()[2]


def test_jobs_of_another_number_of_cpus_are_another_kind(
    weigh: Weigh, keep: Keep
) -> None:
    wide = Allocation(scheduler="slurm", cpus=16, memory=64 * GIB)
    for _ in range(4):
        keep(memory=40 * GIB, **imported(allocation=wide))
    for _ in range(4):
        keep(memory=GIB, **imported(requested=4 * GIB))

    assert memory_of(weigh("--for", "json")[1]) < 2 * GIB
