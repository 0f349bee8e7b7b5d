"""``check_here`` on real files, and the screen that tells of them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from called_weigh import called_here, work_alone_in
from hypothesis import given
from hypothesis import strategies as st
from some_scripts import checked_in
from transcript import check_transcript, file_writer
from written_programs import write_program

from weigh.errors import UsageError
from weigh.flow.check.script import LazyLookup, check_here, guess
from weigh.flow.here import here_of
from weigh.model.lint import CheckedScript, LintFinding
from weigh.render.check_lines import script_check_json, script_check_lines
from weigh.render.printable import width_of
from weigh.schedulers.command import CommandOutput

Check = Callable[..., CheckedScript]
COMMANDS = ("bash", "sleep", "ls", "hostname", "sed", "cat")


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def of(text: str | bytes, **env: str) -> CheckedScript:
        return checked_in(tmp_path, text, **{"PATH": "/usr/bin:/bin"} | env)

    return of


def codes(checked: CheckedScript) -> list[str]:
    return [one.rule for one in checked.problems]


def test_checks_of_scripts_print_what_was_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work_alone_in(tmp_path, monkeypatch)
    (tmp_path / "bin").mkdir()
    for name in COMMANDS:
        program = shutil.which(name, path="/bin:/usr/bin")
        (tmp_path / "bin" / name).symlink_to(program or "")
    (tmp_path / "params.txt").write_text("a\nb\nc")
    path = Path(__file__).with_name("checked_scripts.transcript")

    check_transcript(path, called_here(capsys), given=file_writer(tmp_path))


@pytest.mark.parametrize(
    ("made", "before", "is_found"),
    [
        ("mini/envs/other", "", True),
        ("mini/envs/pt", "", False),
        ("elsewhere/pt", "", False),  # conda create --prefix: conda lists it
        (".conda/envs/pt", "", False),  # where the installation is not the user's
        ("mini/envs/other", "conda env create -f pt.yaml", False),
        ("mini/envs/other", "module load miniforge", False),
    ],
)
def test_an_environment_that_conda_lacks_is_a_problem(
    check: Check, tmp_path: Path, made: str, before: str, *, is_found: bool
) -> None:
    for folder in ("mini/condabin", ".conda", made):
        (tmp_path / folder).mkdir(parents=True)
    program = write_program(tmp_path / "mini/condabin/conda", "")
    if not made.startswith(".conda/"):  # found without the list
        (tmp_path / ".conda/environments.txt").write_text(f"{tmp_path}/{made}\n")
    hook = f'{before}\neval "$(conda shell.bash hook)"\n'
    text = f"#!/bin/bash\n#SBATCH --mem=1G -t 9\n{hook}conda activate pt\npython\n"

    def has_it(**env: str) -> bool:
        path = f"{program.parent}:/usr/bin:/bin"
        return "conda" in codes(check(text, PATH=path, **env))

    assert has_it() == is_found
    for name in ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS", "CONDARC"):
        assert not has_it(**{name: "/shared/envs"}), name
    (tmp_path / ".condarc").write_text("envs_dirs: [/shared/envs]")
    assert not has_it()


def test_one_program_by_two_names_is_the_same(check: Check, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    text = "#!/bin/bash\n#$ -cwd\nsh -c true\n"
    assert "bare-path" not in codes(check(text, PATH=str(tmp_path)))


@pytest.mark.parametrize(
    ("text", "scheduler"),
    [
        ("#SBATCH --mem=1G\n", "slurm"),
        ("#SBTACH --mem=1G\n", "slurm"),
        ("# SBATCH --mem=1G\n", "slurm"),
        ("#$ -cwd\n", "gridengine"),
        ("# $ -cwd\n", "gridengine"),
        ("#SBATCH -c 2\n#SBATCH --mem=1G\n#$ -cwd\n", "slurm"),
        ("#!/bin/bash\nhostname\n", None),
    ],
)
def test_directives_report_whose_script_it_is(text: str, scheduler: str | None) -> None:
    assert guess(text) == scheduler


@pytest.mark.parametrize("path", ["nosuch.sh", ".", "nosuch/x.sh", "a\0b"])
def test_what_is_no_file_is_one_clear_line(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError):
        check_here(here_of(str(tmp_path), {}), path, form=None)


def test_bytes_that_are_no_text_are_reported_and_steer_no_terminal(
    check: Check,
) -> None:
    checked = check(b"#!/bin/bash\n#SBATCH --mem=\x1b[2J\xff\nhost\0name\n")
    assert "\x1b" not in "\n".join(script_check_lines(checked))
    assert codes(checked) == ["memory"]
    json.loads(script_check_json(checked))


def test_a_lookup_queries_once_and_only_what_it_needs() -> None:
    asked: list[str] = []

    def length(key: str) -> int:
        asked.append(key)
        return len(key)

    lookup = LazyLookup(length)
    assert asked == []
    assert (lookup["abc"], lookup["abc"]) == (3, 3)
    assert asked == ["abc"]


WORDS = st.text("abcdefgh", min_size=1, max_size=30)


@given(st.text(max_size=60), st.text(max_size=90), st.lists(WORDS, min_size=1))
def test_every_line_fits_80_columns(path: str, text: str, words: list[str]) -> None:
    effect = " ".join(words)
    found = LintFinding(rule="x", severity="problem", line=7, text=text, effect=effect)
    checked = CheckedScript(
        script=path, scheduler="slurm", directives=1, findings=(found,)
    )
    lines = list(script_check_lines(checked))
    assert all(width_of(line) <= 80 for line in lines)
    assert all(word in "\n".join(lines) for word in words)


def test_without_a_scheduler_nobody_is_queried(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/bash\n#SBATCH -p nosuch\nhostname\n")

    def never(*_: object, **__: object) -> CommandOutput:
        raise AssertionError

    here = here_of(str(tmp_path), {"PATH": ""})
    found = check_here(here, "run.sh", form="slurm", run_command=never).findings

    assert "unknown-queue" not in {one.rule for one in found}
