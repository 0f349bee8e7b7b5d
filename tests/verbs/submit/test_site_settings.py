"""What a site's settings add to each request, and ask of each script."""

import pytest
from following import Weigh
from run_captured import run_captured

SITE = """\
[cluster]
memory = "per-cpu"
exclusive = true
constraint = "v100"
account = "lab"
require = ["account"]
"""


@pytest.mark.slurm
def test_slurm_takes_a_job_as_the_site_wants_it(
    real: Weigh,
) -> None:
    (real.folder / "weigh.toml").write_text(SITE)

    code, out, err = real(
        *("submit", "--on", "slurm", "--memory", "900M", "--cpus", "3"),
        *("--time", "5m", "--", "env"),
    )

    assert code == 0, err
    assert "recorded" not in err  # Slurm understood all of the request
    job = out.split(" as job ")[1].split()[0].strip(";,")
    shown = run_captured(["scontrol", "-o", "show", "job", job], check=True).stdout
    assert "MinMemoryCPU=300M" in shown
    assert "Features=v100" in shown
    assert "OverSubscribe=NO" in shown
    real.finish(job)
