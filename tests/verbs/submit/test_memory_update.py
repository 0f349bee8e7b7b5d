"""``weigh submit --mem-update``: worked out from measured runs, checked against them.

A cluster that has all it needs is played by scripts, with the text of a real 26.05.5;
what sbatch takes is asked of the real one. The rig's control groups are of version 1,
with which a real limit never falls.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from following import Weigh
from memory_runs import Curve, loads_then_level, run

from weigh.model.record import Record
from weigh.store import identity, shards
from weigh.units import Seconds

CAPTURED = Path(__file__).parents[2] / "unit/schedulers/captured"
CONFIG = """\
ClusterName             = rig
EnforcePartLimits       = ALL
JobAcctGatherType       = jobacct_gather/cgroup
MaxArraySize            = 1001
PrologFlags             = Alloc,Contain
SlurmctldParameters     = enable_stepmgr
SLURM_VERSION           = 26.05.5
Cgroup Support Configuration:
CgroupPlugin            = cgroup/v2
"""


def peaks_late(at: Seconds) -> float:
    """Return 1.2 GiB, and 3 GiB from 25 minutes on."""
    return 3.0 if at >= 1500 else 1.2


@pytest.fixture
def ready(here: Weigh, monkeypatch: pytest.MonkeyPatch) -> Weigh:
    """``weigh`` at a Slurm 26.05 that can lower the memory of a running job."""
    set_up(here, monkeypatch, CONFIG)
    return here


def set_up(here: Weigh, monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    folder = here.folder.parent / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "config").write_text(config)
    shows = {
        "node": CAPTURED / "slurm-22.05-node.txt",
        "partition": CAPTURED / "slurm-22.05-partition.txt",
        "config": folder / "config",
    }
    cases = "".join(f'*{what}*) cat "{path}" ;;\n' for what, path in shows.items())
    programs = {"scontrol": f'case "$*" in\n{cases}*) exit 1 ;;\nesac\n'}
    for name in ("sacct", "sacctmgr", "sbatch", "scancel", "sinfo", "squeue", "srun"):
        programs[name] = "exit 1\n"
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    here.scheduler = "slurm"


def measured(here: Weigh, name: str, curve: Curve, *, runs: int = 3) -> None:
    """Keep the records of runs of ``python3 NAME.py --seed N``."""
    for seed in range(runs):
        keep(
            here,
            msgspec.structs.replace(
                run(curve, name=name, minutes=20 if name == "quick" else 60),
                id=f"{name[:4]}{seed:04}",
                command=("python3", f"{name}.py", "--seed", str(seed)),
            ),
        )


def keep(here: Weigh, record: Record) -> None:
    shards.append(str(here.folder / ".weigh"), record, identity.this_machine())


def planned(here: Weigh, *names: str, words: tuple[str, ...] = ()) -> str:
    """Plan a task of each name, with the needs that were measured."""
    lines = [f"python3 {name}.py --seed 9\n" for name in names]
    (here.folder / "p.txt").write_text("".join(lines))
    code, _, err = here("plan", "p.txt", *words)
    assert code == 0, err
    return "plan/p"


def dry(here: Weigh, *words: str) -> tuple[str, str]:
    """Return the directives of the script that would be sent, and the notes."""
    code, out, err = here("submit", "--on", "slurm", "--dry-run", *words)
    assert code == 0, err
    return out, " ".join(err.split())


def test_a_limit_falls_where_the_runs_were_level(ready: Weigh) -> None:
    measured(ready, "align", loads_then_level)

    out, notes = dry(ready, planned(ready, "align"), "--mem-update=auto")

    assert "#SBATCH --mem-update=20@5\n" in out
    assert "memory is level in 3 runs; 5 min after the start" in notes
    assert "at most 1.20 GiB of 3.61 GiB" in notes


def test_without_the_word_nothing_falls(ready: Weigh) -> None:
    measured(ready, "align", loads_then_level)

    out, notes = dry(ready, planned(ready, "align"))

    assert "mem-update" not in out + notes


@pytest.mark.parametrize(
    ("before", "after", "lacks"),
    [
        ("26.05.5", "24.11.5", "it needs Slurm 26.05, which the cluster has not"),
        ("cgroup/v2", "cgroup/v1", "it needs CgroupPlugin=cgroup/v2"),
        ("enable_stepmgr", "(null)", "it needs SlurmctldParameters=enable_stepmgr"),
    ],
)
def test_a_cluster_that_cannot_is_named(
    before: str,
    after: str,
    lacks: str,
    here: Weigh,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_up(here, monkeypatch, CONFIG.replace(before, after))
    measured(here, "align", loads_then_level)

    out, notes = dry(here, planned(here, "align"), "--mem-update=auto")

    assert "mem-update" not in out
    assert f"--mem-update is left out: {lacks}" in notes


def test_a_kind_of_task_that_peaks_late_keeps_the_memory_of_all(ready: Weigh) -> None:
    measured(ready, "align", loads_then_level)
    measured(ready, "late", peaks_late)

    out, notes = dry(ready, planned(ready, "align", "late"), "--mem-update=auto")

    assert "mem-update" not in out
    assert "--mem-update is left out: " in notes


def test_tasks_in_turn_keep_it(ready: Weigh) -> None:
    measured(ready, "quick", loads_then_level)
    plan = planned(ready, *("quick",) * 40, words=("--hours", "2"))

    out, notes = dry(ready, plan, "--mem-update=auto")

    assert "--pull" in out
    assert "mem-update" not in out
    assert "left out: tasks run in turn" in notes


@pytest.mark.parametrize(
    ("runs", "words", "why"),
    [
        (2, (), "2 completed runs of it are known"),
        (0, ("--memory", "4G"), "0 completed runs of it are known"),
        (3, ("--memory", "1300M"), "there is little to release"),
        (3, ("--container", "docker://python"), "image is fetched"),
        (3, ("--stage-in", "p.txt"), "files are staged"),
    ],
)
def test_what_is_not_known_keeps_it(
    runs: int, words: tuple[str, ...], why: str, ready: Weigh
) -> None:
    measured(ready, "align", loads_then_level, runs=runs)
    plan = planned(ready, "align")

    out, notes = dry(ready, plan, "--mem-update=auto", *words)

    assert "mem-update" not in out
    assert why in notes


def test_a_size_that_no_run_had_keeps_it(ready: Weigh) -> None:
    for seed in range(3):
        record = msgspec.structs.replace(
            run(loads_then_level, name="sized"),
            id=f"sized{seed}",
            command=("python3", "sized.py", "--rows", "100", "--seed", str(seed)),
        )
        keep(ready, record)
    for rows, is_set in ((100, True), (900, False)):
        line = f"python3 sized.py --rows {rows} --seed 9\n"
        (ready.folder / f"r{rows}.txt").write_text(line)
        assert ready("plan", f"r{rows}.txt")[0] == 0

        out, notes = dry(ready, f"plan/r{rows}", "--mem-update=auto")

        assert ("--mem-update=20@5" in out) == is_set
        assert ("rows 900 was not measured, all runs had 100" in notes) != is_set


def test_a_command_is_judged_as_a_plan_of_it(ready: Weigh) -> None:
    measured(ready, "align", loads_then_level)
    words = ("--mem-update=auto", "--", "python3", "align.py", "--seed", "9")

    out, _ = dry(ready, *words)

    assert "--mem-update=20@5" in out


def test_a_value_that_would_kill_a_measured_run_is_not_submitted(ready: Weigh) -> None:
    measured(ready, "late", peaks_late)
    plan = planned(ready, "late")

    code, _, err = ready("submit", plan, "--on", "slurm", "--mem-update=20@10")

    assert code == 2
    said = " ".join(err.split())
    assert "at 10 m 00 s run late used 1.20 GiB" in said
    assert "at 25 m 00 s it needs 3.00 GiB: killed" in said


def test_another_scheduler_has_no_such_option(here: Weigh) -> None:
    code, _, err = here("submit", "--on", "local", "--mem-update=auto", "--", "true")

    assert code == 2
    assert err == "weigh: --mem-update is not an option of local: omit it\n"


def test_a_shell_on_a_node_has_no_measured_runs(ready: Weigh) -> None:
    words = ("--interactive", "--on", "slurm", "--mem-update=auto", "--dry-run")
    code, _, err = ready("submit", *words)

    assert code == 2
    assert "needs measured runs of a job: omit it" in " ".join(err.split())


SCRIPT = "#!/bin/bash\n#SBATCH --mem=4G --time=20\npython3 late.py --seed 1\n"


def test_weigh_check_knows_the_runs_of_a_script_s_commands(ready: Weigh) -> None:
    measured(ready, "late", peaks_late)
    text = SCRIPT.replace("--time=20", "--time=2:00:00 -p long --mem-update=20@10")
    (ready.folder / "job.sh").write_text(text)

    code, out, _ = ready("check", "job.sh")

    assert code == 1
    assert "run late used 1.20 GiB" in " ".join(out.split())


def test_a_script_is_judged_by_its_own_measured_runs(ready: Weigh) -> None:
    from weigh.flow.submit.memory_update import digest_of  # noqa: PLC0415

    (ready.folder / "job.sh").write_text(SCRIPT)
    copy = f"/store/scripts/copies/{digest_of(SCRIPT)}/job.sh"
    words = ("submit", "job.sh", "--mem-update", "auto", "--no-checks", "--dry-run")

    code, _, err = ready(*words)
    assert code == 0
    assert "no run of the whole script was measured" in " ".join(err.split())

    for number in range(3):
        record = run(loads_then_level, name="job")
        keep(
            ready,
            msgspec.structs.replace(record, id=f"r{number}", command=("bash", copy)),
        )
    code, _, err = ready(*words)
    assert code == 0
    assert "--mem-update=20@5: memory is level in 3 runs" in " ".join(err.split())
    assert re.search(r"would run sbatch .*--mem-update=20@5", " ".join(err.split()))


VALUES = [
    *("20@10", "30@0:20", "20@1-0", "500@00:01:00", "65535@10"),
    *("20", "20%", "20@", "@10", "0@10", "20@0", "20%@10", "20@10m", "1.5@10"),
    *("70000@1", "20@unlimited", "20@-1", "-5@5", "1G@60", "20@1h", "20@65536"),
    "auto",
]


@pytest.mark.slurm
@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_refused_where_the_real_sbatch_refuses_it(
    value: str, here: Weigh, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, setting in slurm.items():
        monkeypatch.setenv(key, setting)
    (here.folder / "job.sh").write_text(
        f"#!/bin/bash\n#SBATCH --mem=100M --time=2 --mem-update={value}\ntrue\n"
    )

    trial = ("sbatch", "--test-only", "job.sh")
    ran = subprocess.run(trial, capture_output=True, text=True, check=False)
    _, out, _ = here("check", "job.sh", "--json")

    findings = json.loads(out)["findings"]
    is_refused = any(not one["accepted"] for one in findings)
    assert is_refused == (ran.returncode != 0), ran.stderr


@pytest.mark.slurm
def test_the_real_slurm_keeps_what_it_was_given(
    here: Weigh, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, setting in slurm.items():
        monkeypatch.setenv(key, setting)
    here.scheduler = "slurm"
    if not _has_it():
        pytest.skip("Slurm before 26.05 has no --mem-update")

    words = ("--memory", "200M", "--time", "2m", "--mem-update=30@0:20")
    job = here.submit(*words, "--", "true")

    shown = subprocess.run(
        ("scontrol", "show", "job", job), capture_output=True, text=True, check=True
    )
    assert "MemUpdate=30%@1min" in shown.stdout
    _, _, err = here("submit", *words[:4], "--mem-update=auto", "--", "true")
    assert "--mem-update is left out: it needs" in " ".join(err.split())


def _has_it() -> bool:
    ran = subprocess.run(
        ("sbatch", "--version"), capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+)\.(\d+)", ran.stdout)
    return found is not None and (int(found[1]), int(found[2])) >= (26, 5)
