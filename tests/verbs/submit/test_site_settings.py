"""What a site's settings add to each request, on a real Slurm."""

import subprocess

import pytest
from following import Weigh

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
    here: Weigh, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in slurm.items():
        monkeypatch.setenv(key, value)
    here.scheduler = "slurm"
    (here.folder / "weigh.toml").write_text(SITE)

    code, out, err = here(
        *("submit", "--on", "slurm", "--memory", "900M", "--cpus", "3"),
        *("--time", "5m", "--", "env"),
    )

    assert code == 0, err
    assert "recorded" not in err  # Slurm understood all of the request
    job = out.split(" as job ")[1].split()[0].strip(";,")
    shown = subprocess.run(
        ["scontrol", "-o", "show", "job", job],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    ).stdout
    assert "MinMemoryCPU=300M" in shown
    assert "Features=v100" in shown
    assert "OverSubscribe=NO" in shown
    here.finish(job)
