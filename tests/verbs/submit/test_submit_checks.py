"""Before and after ``weigh submit``: what would go wrong is refused, with its cure."""

import os
import subprocess
from pathlib import Path

import pytest
from following import Weigh
from sessions import check_session
from written_programs import write_program

from weigh.flow.submit import checks
from weigh.model.cluster import ClusterLimits, QueueLimits
from weigh.schedulers.kind import LiveAnswers


def attempt(weigh: Weigh, *words: str) -> tuple[int, str, str]:
    plan = weigh.plan(*["true"] * 3)
    return weigh("submit", plan, "--on", weigh.scheduler, *words)


@pytest.mark.slurm
@pytest.mark.parametrize("no_checks", [(), ("--no-checks",)])
def test_a_dry_run_shows_the_script_and_why_it_would_be_refused(
    real: Weigh, no_checks: tuple[str, ...]
) -> None:
    words = ("submit", real.plan("true"), "--on", "slurm", "--queue", "nosuch")

    code, out, err = real(*words, "--dry-run", *no_checks)
    refused, _, why = real(*words, *no_checks)

    assert (code, refused) == (0, 125 if no_checks else 2)
    assert ("sbatch refused the job" in why) == bool(no_checks)
    assert "#SBATCH --partition=nosuch\n" in out
    expected = " ".join(why.replace("weigh: ", "weigh: without --dry-run: ", 1).split())
    assert (expected in " ".join(err.split())) == (not no_checks), err


@pytest.mark.parametrize(
    ("written", "edited", "why"),
    [
        ('"cpus":1', '"cpus":-5', "Expected `int` >= 0"),
        ('"nodes":1', '"nodes":0', "Expected `int` >= 1"),
        ("weigh.plan/1", "weigh.plan/99", "is in schema weigh.plan/99, and this weigh"),
    ],
)
def test_an_edited_plan_that_is_none_is_refused_in_one_line(
    written: str, edited: str, why: str, here: Weigh
) -> None:
    folder = here.plan("true")
    path = here.folder / folder / "plan.json"
    text = "".join(path.read_text().split())
    assert written in text
    path.write_text(text.replace(written, edited))

    code, _, err = here("submit", folder, "--on", "local")

    assert (code, len(err.splitlines())) == (2, 1)
    assert why in err


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-p", "shrt"), "queue shrt does not exist: refused (did you mean short?)"),
        (("-A", "nosuch"), "Invalid account or account/partition combination"),
        (("--gpus", "p100"), "GPU type p100 does not exist"),
        (("--licenses=matlab",), "reject the job: Invalid license specification"),
    ],
)
def test_what_would_be_refused_or_never_start_is_reported_with_its_fix(
    real: Weigh, words: tuple[str, ...], why: str
) -> None:
    code, _, err = attempt(real, *words)

    assert code == 2
    assert why in " ".join(err.split())
    assert real("status", "last")[0] == 2  # no job was submitted


@pytest.mark.gridengine
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-l", "h_vmem=64G"), "has 32.0 GiB"),
        (("--gpus", "9"), "9 GPUs on one node; the cluster has 4"),
        pytest.param(
            ("--l=arch=vax",), "would never start", marks=pytest.mark.integrations
        ),
    ],
)
def test_what_grid_engine_would_keep_for_ever_is_refused(
    cell: Weigh, words: tuple[str, ...], why: str
) -> None:
    code, _, err = attempt(cell, *words)

    assert (code, why in err) == (2, True), err


@pytest.mark.slurm
def test_a_job_of_sbatch_that_fails_keeps_back_what_waits_for_it(real: Weigh) -> None:
    line = f"until [ -e {real.folder}/begin ]; do sleep 0.1; done; exit 1"
    sbatch = ["sbatch", "--parsable", "--output=/dev/null", "--wrap", line]
    other = subprocess.check_output(sbatch, text=True).strip()
    job = real.submit(real.plan("true", name="b"), "--after", other)
    (real.folder / "begin").touch()
    real.wait_for(job, lambda one: any(need["is_blocked"] for need in one["needs"]))

    _, out, _ = real("resume", job)
    code, _, err = real(
        "submit", real.plan("true", name="c"), "--on", "slurm", "--after", other
    )
    real("cancel", job)

    assert f"next     run job {other} again, and submit this with --after" in out
    assert code == 2
    assert f"(job {other}) cannot succeed: 1 of 1 task failed" in " ".join(err.split())


@pytest.mark.slurm
def test_the_users_defaults_add_to_a_request_and_replace_nothing_of_it(
    real: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sbatch prefers these variables to directives; what it adds is reported."""
    monkeypatch.setenv("SBATCH_TIMELIMIT", "3")
    monkeypatch.setenv("SBATCH_MEM_PER_CPU", "1")
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    monkeypatch.setenv("SBATCH_GRES", "gpu:1")

    _, _, err = attempt(real, "-p", "short")

    said = " ".join(err.split())
    assert "GPUs: 0 requested, but the scheduler recorded 1" in said
    assert said.count("recorded") == 1


SITE = """\
[cluster]
memory = "per-cpu"
exclusive = true
constraint = "v100"
account = "lab"
require = ["account"]
"""


@pytest.mark.slurm
def test_slurm_takes_a_job_as_the_site_wants_it(real: Weigh) -> None:
    (real.folder / "weigh.toml").write_text(SITE)
    words = ("--memory", "900M", "--cpus", "3", "--time", "5m", "--", "env")

    code, out, err = real("submit", "--on", "slurm", *words)

    assert code == 0, err
    assert "recorded" not in err  # Slurm understood all of the request
    job = out.split(" as job ")[1].split()[0].strip(";,")
    shown = subprocess.check_output(("scontrol", "show", "job", job), text=True)
    assert "MinMemoryCPU=300M" in shown
    assert "Features=v100" in shown
    assert "OverSubscribe=NO" in shown
    real.finish(job)


@pytest.mark.slurm
def test_what_is_resumed_is_checked_before_anything_is_submitted(real: Weigh) -> None:
    job = real.submit(real.plan("exit 1", "true"))
    assert real.finish(job) == {"FAILED": 1, "COMPLETED": 1}

    code, _, err = real("resume", job, "--memory", "40G")

    assert code == 2
    assert "the largest node of short has 31.2 GiB" in " ".join(err.split())
    assert len(real.status(job)["jobs"]) == 1
    assert not (real.folder / "plan/p/resume_1").exists()


@pytest.mark.slurm
def test_a_long_plan_is_as_many_questions_as_a_short_one(
    real: Weigh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each element asked about by itself would be what makes it slow."""
    for name in ("scontrol", "squeue", "sbatch", "sinfo", "sacct"):
        counts = f'echo >>{tmp_path}/n\nexec /usr/bin/{name} "$@"'
        write_program(tmp_path / "bin" / name, counts)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    asked = []
    for count in (3, 90):
        (tmp_path / "n").write_text("")
        plan = real.plan(*["true"] * count, name=f"p{count}")
        assert real("submit", plan, "--on", "slurm")[0] == 0
        asked.append((tmp_path / "n").read_text().count("\n"))

    assert asked[0] == asked[1] <= 10


def test_worked_examples_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ClusterLimits(queues=(QueueLimits(name="short"),))
    monkeypatch.setattr(
        checks, "live_limits", lambda *_, **__: LiveAnswers(limits=limits)
    )
    path = Path(__file__).with_name("requests.session")
    check_session(path, {"folder": tmp_path})
