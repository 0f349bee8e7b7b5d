"""The line that submits a job of another tool again has all that was typed."""

import os
import shlex
from pathlib import Path

import pytest
from some_requests import a_submitted_job
from written_programs import write_program

from weigh.flow.follow.named import named_jobs
from weigh.flow.follow.view import ScriptWork
from weigh.flow.here import here_of
from weigh.model.job import OwnScript, SubmittedJob

SEPARATOR = "\x1f"
LIVE = (
    "JobId=7 ArrayJobId=7 ArrayTaskId={indices} JobName=f.sh UserId={user}(1) "
    "SubmitTime=1795254181 TimeLimit=00:20:00 NumNodes=1 NumCPUs=1 MinMemoryNode=300M "
    "Partition=long Command={script} WorkDir={folder} StdOut=/w/o\n"
)


class KnownToSlurm:
    """A Slurm of three programs, which knows one job."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._programs = folder, folder / "bin"
        monkeypatch.chdir(folder)
        self._write("sbatch", "")
        self._write("scontrol", "")
        self._user = os.environ.get("USER", "")
        self.env = {"PATH": f"{self._programs}:{os.environ['PATH']}"}

    def _write(self, name: str, answer: str) -> None:
        path = self._programs / name
        write_program(path, f"cat {shlex.quote(str(path))}.txt")
        (self._programs / f"{name}.txt").write_text(answer)

    def job(
        self,
        line: str,
        *,
        user: str,
        script: str = "f.sh",
        indices: str = "1-4",
        is_live: bool = False,
    ) -> SubmittedJob:
        """Return the job that was submitted by *line*."""
        row = (f"7_[{indices}]", "7", user, "1795254181", "f.sh", str(self._folder))
        if not indices:
            row = ("7", *row[1:])
        self._write("sacct", "" if line == "" else SEPARATOR.join((*row, line)) + "\n")
        if is_live:
            path = self._folder / script
            known = {"indices": indices, "user": user, "folder": self._folder}
            self._write("scontrol", LIVE.format(script=path, **known))
        folder = str(self._folder)
        here = here_of(folder, {**self.env, "WEIGH_DIR": f"{folder}/.weigh"})
        return named_jobs(here, [], "7")[0]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KnownToSlurm:
    (tmp_path / "f.sh").write_text("#!/bin/bash\n#SBATCH --output=f_%a\n")
    return KnownToSlurm(tmp_path, monkeypatch)


@pytest.fixture
def user() -> str:
    from weigh.flow.site.schedulers import current_user  # noqa: PLC0415

    return current_user()


TYPED = (
    "sbatch --parsable --mem=300M --time=20 -p long --export=ALL,STEP=7 "
    "--array=1-4%1 f.sh cfg.yaml"
)
AGAIN = "--mem=300M --time=20 -p long --export=ALL,STEP=7 --array=2-3%1 -- cfg.yaml"


@pytest.mark.parametrize("is_live", [True, False], ids=["queue", "accounting"])
def test_all_that_was_typed_is_in_the_line(
    slurm: KnownToSlurm, user: str, tmp_path: Path, *, is_live: bool
) -> None:
    job = slurm.job(TYPED, user=user, is_live=is_live)

    assert (
        ScriptWork(job).command_again([2, 3]) == f"weigh submit {tmp_path}/f.sh {AGAIN}"
    )


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
    slurm: KnownToSlurm, user: str, tmp_path: Path, line: str, again: str
) -> None:
    (tmp_path / "long").touch()  # a file, and no script here

    job = slurm.job(line, user=user)

    assert ScriptWork(job).command_again([2]) == f"weigh submit {tmp_path}/f.sh {again}"


def test_where_no_line_is_kept_the_request_is_and_the_rest_is_named(
    slurm: KnownToSlurm, user: str, tmp_path: Path
) -> None:
    job = slurm.job("", user=user, is_live=True)

    again = ScriptWork(job).command_again([2]) or ""
    assert again.startswith(f"weigh submit {tmp_path}/f.sh --mem=300M --time=")
    assert again.endswith("  # and the other options you typed")


def test_without_its_script_the_flags_are_still_named(
    slurm: KnownToSlurm, user: str, tmp_path: Path
) -> None:
    (tmp_path / "f.sh").unlink()

    said = ScriptWork(slurm.job(TYPED, user=user)).by_hand([2])

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
