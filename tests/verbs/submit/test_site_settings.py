"""What a site's settings add to each request, and ask of each script."""

from pathlib import Path

import pytest
from following import Weigh
from run_captured import run_captured
from some_requests import some_job_script

from weigh.errors import UsageError
from weigh.flow.here import here_of
from weigh.flow.submit import checks
from weigh.model.cluster import ClusterLimits, QueueLimits
from weigh.model.job import JobRequest
from weigh.schedulers.kind import LiveAnswers

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


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    ("directives", "rules"),
    [
        (("--mem=4G",), {"site-requires", "site-memory"}),
        (("--mem=4G", "--account=lab"), {"site-memory"}),
        (("--mem-per-cpu=4G", "-A lab"), set()),
        ((), {"site-requires"}),
    ],
)
def test_a_site_asks_the_same_of_users_scripts_and_of_ours(
    *,
    written: bool,
    directives: tuple[str, ...],
    rules: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "weigh.toml").write_text(
        '[cluster]\nmemory = "per-cpu"\nrequire = ["account"]\n'
    )
    limits = ClusterLimits(queues=(QueueLimits(name="short"),))
    monkeypatch.setattr(
        checks, "live_limits", lambda *_, **__: LiveAnswers(limits=limits)
    )
    lines = (f"#SBATCH {one}" for one in directives)
    text = "\n".join(("#!/bin/bash", *lines, "date", ""))
    script = some_job_script(cwd=str(tmp_path))
    found = ""
    try:
        checks.check_request(
            here_of(str(tmp_path), {}),
            checks.ScriptToCheck(
                text=text,
                request=JobRequest(),
                scheduler="slurm",
                written=script if written else None,
            ),
        )
    except UsageError as error:
        found = str(error)

    assert {rule for rule in ("site-requires", "site-memory") if rule in found} == rules


def test_a_key_of_the_settings_that_nobody_reads_is_named(here: Weigh) -> None:
    (here.folder / "weigh.toml").write_text(
        '[cluster]\nacount = "physics"\n[cluster.gridengin]\ngpus = "gpu"\n'
    )

    code, _, err = here("submit", "--on", "local", "--dry-run", "--", "true")

    said = " ".join(err.split())
    assert code == 0
    assert "unknown key cluster.acount (did you mean account?); ignored" in said
    assert "unknown key cluster.gridengin (did you mean gridengine?)" in said
