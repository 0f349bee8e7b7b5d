"""What <TAB> offers, as a shell asks for it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from some_requests import a_submitted_job

from weigh.store import jobs

AS_SCRIPT = "import sys; sys.argv[0] = 'weigh'; import weigh.__main__ as m; m.main()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder with a record labelled small, and a job 481516."""
    subprocess.run(
        [sys.executable, "-m", "weigh", "run", "-q", "--label", "small", "--", "true"],
        cwd=tmp_path,
        check=True,
        timeout=30,
    )
    job = a_submitted_job(
        id="481516",
        name="ppo-sweep",
        folder=str(tmp_path / "plan"),
        cwd=str(tmp_path),
        script="job.sh",
    )
    jobs.append_job(str(tmp_path / ".weigh"), job)
    return tmp_path


def offered(folder: Path, line: str) -> list[str]:
    """Give what bash would be offered after *line*."""
    words = line.split(" ")
    asked = {
        "_WEIGH_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    answer = subprocess.run(
        [sys.executable, "-c", AS_SCRIPT],
        cwd=folder,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert answer.stderr == ""
    return answer.stdout.split()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("line", "offer"),
    [
        ("weigh st", ["plain,status"]),
        ("weigh request sm", ["plain,small"]),
        ("weigh status 48", ["plain,481516"]),
        ("weigh records show sm", ["plain,small"]),
        ("weigh plan tas", ["file,tas"]),
        ("weigh plan --mem", ["plain,--memory"]),
    ],
)
def test_tab_offers_verbs_options_jobs_and_records(
    folder: Path, line: str, offer: list[str]
) -> None:
    assert offered(folder, line) == offer


def test_tab_is_silent_where_there_is_nothing(tmp_path: Path) -> None:
    assert offered(tmp_path, "weigh status 4") == []


def asked_for_script(shell: str) -> str:
    argv = [sys.executable, "-c", AS_SCRIPT]
    asked = {**os.environ, "_WEIGH_COMPLETE": f"{shell}_source"}
    return subprocess.check_output(argv, env=asked, text=True, timeout=30)


def test_bash_completes_after_the_line_of_the_page(folder: Path) -> None:
    typed = (
        'eval "$(_WEIGH_COMPLETE=bash_source weigh)"; complete -p weigh\n'
        "COMP_WORDS=(weigh st) COMP_CWORD=1; _weigh_completion weigh\n"
        'echo "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", typed], cwd=folder, capture_output=True, text=True, check=True
    )

    assert "-F _weigh_completion weigh" in done.stdout
    assert done.stdout.splitlines()[-1] == "status"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_each_shell_reads_what_is_printed_for_it(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    script = tmp_path / "weigh"
    script.write_text(asked_for_script(shell))
    subprocess.run([shell, "-n", script], check=True)
