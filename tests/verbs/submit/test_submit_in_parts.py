"""One call that submits several jobs: all of it fits, or what is there is said."""

import json
from pathlib import Path

import pytest
from following import Weigh
from written_programs import write_program

from weigh.schedulers.kind import known_answer


@pytest.fixture
def faked(here: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm of a few lines, whose arrays have two elements at most."""
    folder = tmp_path / "bin"
    for name in ("scontrol", "squeue", "sacct", "scancel", "sinfo"):
        write_program(folder / name, ":")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(
        "weigh.schedulers.slurm.scheduler.SlurmCommands.array_limit",
        lambda *_: known_answer(2),
    )
    here.scheduler = "slurm"
    return folder


def test_what_was_submitted_before_a_part_was_refused_is_reported(
    here: Weigh, faked: Path
) -> None:
    write_program(
        faked / "sbatch",
        f"[ $1 = --parsable ] || exit 0\ncd {faked}\n"
        "[ ! -e one ] || { echo full >&2; exit 1; }\ntouch one; echo 7",
    )

    code, _, err = here("submit", here.plan(*["true"] * 5), "--on", "slurm")

    assert code == 125
    assert "only 2 of 5 elements were submitted, as job 7" in err
    assert "weigh resume 7 submits the rest" in err
    write_program(faked / "sbatch", "[ $1 = --parsable ] || exit 0\necho 8")
    assert here.resume("7")["again"][0]["tasks"] == [3, 4, 5]


def test_a_first_part_that_is_refused_leaves_nothing(here: Weigh, faked: Path) -> None:
    write_program(faked / "sbatch", "echo full >&2; exit 1")

    code, _, err = here("submit", here.plan(*["true"] * 5), "--on", "slurm")

    assert (code, "only" in err) == (125, False)
    assert not Path(".weigh/jobs.jsonl").exists()


def test_what_is_resumed_is_cut_as_well(here: Weigh, faked: Path) -> None:
    write_program(
        faked / "sbatch",
        f"[ $1 != --parsable ] || {{ echo >>{faked}/n; wc -l <{faked}/n; }}",
    )
    write_program(
        faked / "sacct",
        'end="CANCELLED|0:0|0:0|1|2|cn1|None"\n'
        'for j in 1_0 1_1 2_0 2_1 3; do echo "$j|$end"; done',
    )
    job = here.submit(here.plan(*["true"] * 5))

    again = here.resume(job)["again"]

    assert [one["tasks"] for one in again] == [[1, 2, 3, 4, 5]]
    assert [again[0]["job"]["id"], *(job["id"] for job in again[0]["more"])] == [
        "4",
        "5",
        "6",
    ]
    lines = Path(".weigh/jobs.jsonl").read_text().splitlines()
    assert [json.loads(line)["elements"] for line in lines[3:]] == [2, 2, 1]
