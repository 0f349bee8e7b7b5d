"""The line that submits a job of another tool again has all that was typed."""

import os
import shlex
from pathlib import Path

import pytest
from sessions import check_session
from written_programs import write_program

from weigh.flow.follow.named import named_jobs
from weigh.flow.follow.view import ScriptWork
from weigh.flow.here import here_of
from weigh.flow.site.schedulers import current_user

SEPARATOR = "\x1f"
LIVE = (
    "JobId=7 ArrayJobId=7 ArrayTaskId=1-4 JobName=f.sh UserId={user}(1) "
    "SubmitTime=1795254181 TimeLimit=00:20:00 NumNodes=1 NumCPUs=1 MinMemoryNode=300M "
    "Partition=long Command={folder}/f.sh WorkDir={folder} StdOut=/w/o"
)


def test_worked_examples_of_lines_to_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    here = here_of(str(tmp_path), {"PATH": path, "WEIGH_DIR": f"{tmp_path}/.weigh"})
    user = current_user()

    def known(line: str, *, is_live: bool = False) -> ScriptWork:
        """Return the job of a line of sbatch, as Slurm's commands print it."""
        row = ("7_[1-4]", "7", user, "1795254181", "f.sh", str(tmp_path), line)
        live = LIVE.format(user=user, folder=tmp_path) if is_live else ""
        account = SEPARATOR.join(row) if line else ""
        for name, text in ("sbatch", ""), ("scontrol", live), ("sacct", account):
            answer = f"printf '%s\\n' {shlex.quote(text)}"
            write_program(tmp_path / "bin" / name, answer)
        return ScriptWork(named_jobs(here, [], "7")[0])

    session = Path(__file__).with_name("line_to_copy.session")
    check_session(session, {"folder": tmp_path, "known": known})
