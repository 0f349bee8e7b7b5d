"""The line that submits a job of another tool again has all that was typed."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from some_requests import a_submitted_job
from written_programs import write_program

from weigh.flow.follow.named import named_jobs
from weigh.flow.follow.view import ScriptWork
from weigh.flow.here import here_of
from weigh.flow.site.schedulers import current_user
from weigh.model.job import OwnScript, SubmittedJob

SEPARATOR = "\x1f"
LIVE = (
    "JobId=7 ArrayJobId=7 ArrayTaskId=1-4 JobName=f.sh UserId={user}(1) "
    "SubmitTime=1795254181 TimeLimit=00:20:00 NumNodes=1 NumCPUs=1 MinMemoryNode=300M "
    "Partition=long Command={folder}/f.sh WorkDir={folder} StdOut=/w/o"
)


KnownJob = Callable[..., SubmittedJob]


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownJob:
    """What finds the job of a line of sbatch, by what Slurm's commands print of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.sh").write_text("#!/bin/bash\n#SBATCH --output=f_%a\n")
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    here = here_of(str(tmp_path), {"PATH": path, "WEIGH_DIR": f"{tmp_path}/.weigh"})
    user = current_user()

    def job(line: str, *, is_live: bool = False) -> SubmittedJob:
        row = ("7_[1-4]", "7", user, "1795254181", "f.sh", str(tmp_path), line)
        live = LIVE.format(user=user, folder=tmp_path) if is_live else ""
        printed = {"sbatch": "", "scontrol": live, "sacct": SEPARATOR.join(row)}
        for name, text in printed.items():
            answer = shlex.quote(text if name != "sacct" or line else "")
            write_program(tmp_path / "bin" / name, f"printf '%s\\n' {answer}")
        return named_jobs(here, [], "7")[0]

    return job


TYPED = (
    "sbatch --parsable --mem=300M --time=20 -p long --export=ALL,STEP=7 "
    "--array=1-4%1 f.sh cfg.yaml"
)
AGAIN = "--mem=300M --time=20 -p long --export=ALL,STEP=7 --array=2-3%1 -- cfg.yaml"


@pytest.mark.parametrize("is_live", [True, False], ids=["queue", "accounting"])
def test_all_that_was_typed_is_in_the_line(
    known: KnownJob, tmp_path: Path, *, is_live: bool
) -> None:
    again = ScriptWork(known(TYPED, is_live=is_live)).command_again([2, 3])
    assert again == f"weigh submit {tmp_path}/f.sh {AGAIN}"


@pytest.mark.parametrize(
    ("line", "again"),
    [
        ("sbatch -a 1-4 --wait -Q f.sh a", "--array=2 -- a"),
        ("sbatch --job-name=my run -n 2 f.sh", "'--job-name=my run' -n 2 --array=2"),
        (
            "sbatch --export=ALL,A=$HOME;x,B=1 f.sh 'a",
            "'--export=ALL,A=$HOME;x,B=1' --array=2 -- ''\"'\"'a'",
        ),
        ("sbatch -p long --site-plugin=3 f.sh", "-p long --site-plugin=3 --array=2"),
    ],
    ids=["other words of sbatch", "a space", "marks of the shell", "a site's option"],
)
def test_the_line_is_quoted_as_a_shell_needs(
    known: KnownJob, tmp_path: Path, line: str, again: str
) -> None:
    (tmp_path / "long").touch()  # a file, and no script here
    named = ScriptWork(known(line)).command_again([2])
    assert named == f"weigh submit {tmp_path}/f.sh {again}"


def test_where_no_line_is_kept_the_request_is_and_the_rest_is_named(
    known: KnownJob, tmp_path: Path
) -> None:
    again = ScriptWork(known("", is_live=True)).command_again([2]) or ""
    assert again.startswith(f"weigh submit {tmp_path}/f.sh --mem=300M --time=")
    assert again.endswith("  # and the other options you typed")


def test_without_its_script_the_flags_are_still_named(
    known: KnownJob, tmp_path: Path
) -> None:
    (tmp_path / "f.sh").unlink()
    said = ScriptWork(known(TYPED)).by_hand([2])
    assert "again for indices 2 with --mem=300M --time=20 -p long" in said


@pytest.mark.parametrize("script", ["/w/f.sh", ""], ids=["script", "no script"])
def test_where_one_job_cannot_run_all_failed_elements_several_are_named(
    script: str,
) -> None:
    """An array of Grid Engine has one range with one step."""
    job = a_submitted_job(
        scheduler="gridengine",
        name="f.sh",
        folder="/w",
        cwd="/w",
        script=script,
        elements=9,
        tasks=9,
        own=OwnScript(indices="1-9", foreign=True),
    )

    said = ScriptWork(job).by_hand([2, 3, 7])

    between = " && weigh submit /w/f.sh" if script else " and with"
    assert said.endswith(f" -t 2-3{between} -t 7-7")
