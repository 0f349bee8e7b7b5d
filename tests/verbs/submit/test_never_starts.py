"""The rigs take what a university's guide has its readers submit."""

import os
import subprocess
from pathlib import Path

import pytest
from following import Weigh
from rigs import sbatch_and_wait

ELSEWHERE = pytest.mark.integrations
GUIDE = """\
#$ -S /bin/bash
#$ -q short
#$ -l ngpus=1
#$ -l ncpus=2
#$ -l h_vmem=8G
#$ -l h_rt=00:10:00
#$ -N tagging

source /etc/profile
module add anaconda3/2021
source activate nlp
echo done
"""


@pytest.mark.gridengine
@pytest.mark.parametrize("more", ["", "#$ -t 1-2:1\n"])
def test_a_guide_s_script_is_taken_as_it_is(
    gridengine: dict[str, str], tmp_path: Path, more: str
) -> None:
    (tmp_path / "job.sh").write_text(more + GUIDE)

    ran = subprocess.run(
        ["qsub", "-cwd", "-terse", "-sync", "y", "job.sh"],
        cwd=tmp_path,
        env={**os.environ, **gridengine},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert "done\n" in next(tmp_path.glob("tagging.o*")).read_text()


@pytest.mark.gridengine
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-l", "h_vmem=64G"), "has 32.0 GiB"),
        (("--gpus", "9"), "9 GPUs on one node; the cluster has 4 on one"),
        pytest.param(("--cpus", "20"), "20 CPUs on one node", marks=ELSEWHERE),
        (("--queue", "short", "--time", "20h"), "short allows 12 h 00 m"),
        pytest.param(("--l=arch=vax",), "would never start", marks=ELSEWHERE),
    ],
)
def test_what_grid_engine_would_keep_for_ever_is_refused(
    gridengine: dict[str, str],
    here: Weigh,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    reason: str,
) -> None:
    for key, value in gridengine.items():
        monkeypatch.setenv(key, value)

    code, _, err = here("submit", here.plan("true"), "--on", "gridengine", *words)

    assert code == 2
    assert reason in err


@pytest.mark.slurm
def test_sacct_knows_a_job_that_has_ended(
    slurm: dict[str, str], tmp_path: Path
) -> None:
    script = "#!/bin/bash\n#SBATCH --gres=gpu:v100:1\necho $CUDA_VISIBLE_DEVICES\n"
    (tmp_path / "job.sh").write_text(script)

    env = {**os.environ, **slurm}
    ran = sbatch_and_wait("--output=out", "job.sh", cwd=tmp_path, env=env)

    assert ran.returncode == 0
    assert (tmp_path / "out").read_text() == "0\n"
