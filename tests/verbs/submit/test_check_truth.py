"""What `weigh check` reports of a script is what the real scheduler makes of it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from rigs import sbatch_and_wait
from run_captured import CapturedRun, run_captured

from weigh.flow.check.script import check_here
from weigh.flow.here import here_of
from weigh.model.lint import LintFinding

HEAD = "#!/bin/bash\n"


def found(folder: Path, form: str, env: Mapping[str, str]) -> dict[str, LintFinding]:
    """Return the first finding of each rule on ``job.sh``."""
    checked = check_here(here_of(str(folder), env), "job.sh", form=form)
    return {one.rule: one for one in reversed(checked.findings)}


def submitted(*argv: str, folder: Path, env: Mapping[str, str]) -> CapturedRun:
    return run_captured([*argv, "job.sh"], cwd=folder, env={**os.environ, **env})


@pytest.mark.slurm
@pytest.mark.parametrize(
    "flag",
    [
        "--mem=",
        "--cpus-per-task=",
        "--account=<budget code>",
        "--time=1:30h",
        "--mem=4G",
        "--time=30:00",
    ],
)
def test_a_script_that_check_calls_refused_is_refused(
    slurm: dict[str, str], tmp_path: Path, flag: str
) -> None:
    (tmp_path / "job.sh").write_text(f"{HEAD}#SBATCH {flag}\ntrue\n")

    ran = submitted("sbatch", "--test-only", folder=tmp_path, env=slurm)

    findings = found(tmp_path, "slurm", slurm).values()
    assert any(not one.accepted for one in findings) == (ran.returncode != 0)


@pytest.mark.slurm
def test_each_element_has_its_log_where_check_finds_none_shared(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    text = f"{HEAD}#SBATCH --array=0-2 --mem=100 --time=5 -o x-%J.out\n"
    (tmp_path / "job.sh").write_text(f"{text}echo $SLURM_ARRAY_TASK_ID\n")

    sbatch_and_wait("job.sh", cwd=tmp_path, env={**os.environ, **slurm})

    assert "log-shared" not in found(tmp_path, "slurm", slurm)
    logs = [path.read_text() for path in tmp_path.glob("x-*.out")]
    assert sorted(logs) == ["0\n", "1\n", "2\n"]


@pytest.mark.gridengine
@pytest.mark.parametrize("cleared", [False, True])
def test_the_options_of_sge_request_count_as_qsub_counts_them(
    gridengine: dict[str, str], tmp_path: Path, *, cleared: bool
) -> None:
    (tmp_path / ".sge_request").write_text("# of this folder\n-cwd\n")
    more = "#$ -clear\n" if cleared else ""
    (tmp_path / "job.sh").write_text(f"{HEAD}{more}#$ -N asked\ntrue\n")

    ran = submitted("qsub", "-verify", folder=tmp_path, env=gridengine)

    env = {**gridengine, "HOME": "/root"}
    starts_at_home = "starts-at-home" in found(tmp_path, "gridengine", env)
    assert starts_at_home == cleared
    assert (str(tmp_path) in _value(ran.stdout, "cwd:")) != cleared


@pytest.mark.gridengine
def test_a_variable_that_check_calls_literal_stays_one(
    gridengine: dict[str, str], tmp_path: Path
) -> None:
    text = f"{HEAD}#$ -M $EMAIL\n#$ -v where=$HOME\ntrue\n"
    (tmp_path / "job.sh").write_text(text)

    ran = submitted("qsub", "-verify", folder=tmp_path, env=gridengine)

    assert "literal-dollar" in found(tmp_path, "gridengine", gridengine)
    assert "$EMAIL" in ran.stdout
    assert "where=$HOME" in ran.stdout


def _value(text: str, name: str) -> str:
    rows = (row for row in text.splitlines() if row.startswith(name))
    return next(rows, "")
