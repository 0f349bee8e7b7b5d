"""What `weigh check` reports of a script is what the real scheduler makes of it."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from rigs import sbatch_and_wait
from run_captured import run_captured

from weigh.flow.check.script import check_here
from weigh.flow.here import here_of


def found(folder: Path, form: str, env: Mapping[str, str]) -> set[str]:
    """Return the rules of the findings on ``job.sh``."""
    checked = check_here(here_of(str(folder), env), "job.sh", form=form)
    return {one.rule for one in checked.findings}


@pytest.mark.slurm
def test_each_element_has_its_log_where_check_finds_none_shared(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    text = "#!/bin/bash\n#SBATCH --array=0-2 --mem=100 --time=5 -o x-%J.out\n"
    (tmp_path / "job.sh").write_text(f"{text}echo $SLURM_ARRAY_TASK_ID\n")

    sbatch_and_wait("job.sh", cwd=tmp_path, env={**os.environ, **slurm})

    assert "log-shared" not in found(tmp_path, "slurm", slurm)
    logs = [path.read_text() for path in tmp_path.glob("x-*.out")]
    assert sorted(logs) == ["0\n", "1\n", "2\n"]


@pytest.mark.gridengine
@pytest.mark.parametrize("cleared", [False, True])
def test_options_of_sge_request_and_variables_count_as_qsub_counts_them(
    gridengine: dict[str, str], tmp_path: Path, *, cleared: bool
) -> None:
    (tmp_path / ".sge_request").write_text("# of this folder\n-cwd\n")
    lines = ["#!/bin/bash", "#$ -clear"] if cleared else ["#!/bin/bash"]
    lines += ["#$ -N asked", "#$ -M $EMAIL", "#$ -v where=$HOME", "true"]
    (tmp_path / "job.sh").write_text("\n".join(lines))

    verify, env = ["qsub", "-verify", "job.sh"], {**os.environ, **gridengine}
    shown = run_captured(verify, cwd=tmp_path, env=env).stdout

    rules = found(tmp_path, "gridengine", {**gridengine, "HOME": "/root"})
    (cwd,) = [row for row in shown.splitlines() if row.startswith("cwd:")] or [""]
    assert ("starts-at-home" in rules, str(tmp_path) in cwd) == (cleared, not cleared)
    assert "literal-dollar" in rules
    assert ("$EMAIL" in shown, "where=$HOME" in shown) == (True, True)
