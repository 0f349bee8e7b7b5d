"""``check_here`` on real files, and the screen that tells of them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_programs import write_program

from weigh.errors import UsageError
from weigh.flow.check.script import LazyLookup, check_here, guess
from weigh.flow.here import here_of
from weigh.model.lint import CheckedScript, LintFinding
from weigh.render.check_lines import script_check_json, script_check_lines
from weigh.render.printable import width_of
from weigh.schedulers.command import CommandOutput

SCREEN = """\
#!/bin/bash
#SBATCH --output=logs/%j.out
# SBATCH --mem=8G
#SBATCH --time=24:00

cd $SLURM_SUBMIT_DIR
echo begun
echo training
#SBATCH --gres=gpu:1
"""

Check = Callable[..., CheckedScript]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    def of(text: str | bytes, form: str | None = None, **env: str) -> CheckedScript:
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "run.sh").write_bytes(data)
        variables = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"} | env
        return check_here(here_of(str(tmp_path), variables), "run.sh", form=form)

    return of


def codes(checked: CheckedScript) -> list[str]:
    return [one.rule for one in checked.problems]


def test_the_screen_has_the_place_the_text_and_what_happens(check: Check) -> None:
    lines = list(script_check_lines(check(SCREEN)))
    assert lines[0].split(maxsplit=2)[:2] == ["run.sh:2", "--output=logs/%j.out"]
    assert any("is 24 minutes; hours are written 24:00:00" in line for line in lines)
    assert lines[-1] == "4 problems; sbatch would have accepted all of them"


def test_a_log_directory_that_is_there_is_no_problem(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    assert "log-directory" not in codes(check(SCREEN))


def test_the_files_of_an_array_are_counted_on_disk(
    check: Check, tmp_path: Path
) -> None:
    for number in range(3):
        (tmp_path / f"tasks_{number}.txt").touch()
    (tmp_path / "tasks_old.txt").touch()
    (tmp_path / "tasks_03.txt").touch()
    text = "#!/bin/bash\n#SBATCH --array=0-3\ncat tasks_$SLURM_ARRAY_TASK_ID.txt\n"
    (found,) = check(text).problems
    assert found.effect == "3 files tasks_N.txt, 0 to 2: element 3 has none"


def test_a_script_for_another_shell_is_not_checked_as_bash(check: Check) -> None:
    csh = "#$ -S /bin/csh\n#$ -cwd -l h_rt=9\nforeach x (1 2)\n  echo $x\nend\n"
    assert codes(check(csh)) == []
    assert codes(check(csh.replace("csh", "bash"))) == ["syntax"]


def test_a_last_line_without_its_end_counts(check: Check, tmp_path: Path) -> None:
    (tmp_path / "params.txt").write_text("a\nb\nc")
    body = 'sed -n "${SLURM_ARRAY_TASK_ID}p" params.txt\n'
    (found,) = check(f"#!/bin/bash\n#SBATCH --array=1-4\n{body}").problems
    assert "params.txt has 3 lines" in found.effect


def test_commands_are_looked_up_on_the_path_handed_in(check: Check) -> None:
    found = check("#!/bin/bash\n#SBATCH --mem=1G\nls\npyhton train\n")
    assert codes(found) == ["command-not-found"]


@pytest.mark.parametrize(
    ("made", "before", "is_found"),
    [
        ("mini/envs/other", "", True),
        ("mini/envs/pt", "", False),
        ("elsewhere/pt", "", False),  # conda create --prefix: conda lists it
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
    (tmp_path / ".conda/environments.txt").write_text(f"{tmp_path}/{made}\n")
    hook = f'{before}\neval "$(conda shell.bash hook)"\n'
    text = f"#!/bin/bash\n#SBATCH --mem=1G -t 9\n{hook}conda activate pt\npython\n"

    def has_it() -> bool:
        return "conda" in codes(check(text, PATH=f"{program.parent}:/usr/bin:/bin"))

    assert has_it() == is_found
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


def test_the_form_requested_wins(check: Check) -> None:
    assert check("#!/bin/bash\n#SBATCH -c 2\n", form="gridengine").scheduler == (
        "gridengine"
    )


@pytest.mark.parametrize("path", ["nosuch.sh", ".", "nosuch/x.sh", "a\0b"])
def test_what_is_no_file_is_one_clear_line(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError):
        check_here(here_of(str(tmp_path), {}), path, form=None)


def test_bytes_that_are_no_text_are_reported_and_steer_no_terminal(
    check: Check,
) -> None:
    checked = check(b"#!/bin/bash\n#SBATCH --mem=\x1b[2J\xff\nhost\0name\n")
    screen = "\n".join(script_check_lines(checked))
    assert "\x1b" not in screen
    assert codes(checked) == ["memory"]
    json.loads(script_check_json(checked))


def test_the_document_names_its_schema_first(check: Check) -> None:
    document = json.loads(script_check_json(check(SCREEN)))
    assert next(iter(document.items())) == ("schema", "weigh.lint/2")
    assert (document["problems"], document["accepted"]) == (4, True)
    assert document["findings"][0]["line"] == 2


def test_the_sum_states_what_the_scheduler_would_do(check: Check) -> None:
    def last(*lines: str) -> str:
        return list(script_check_lines(check("\n".join(("#!/bin/bash", *lines, "")))))[
            -1
        ]

    assert last("#SBATCH --mem=4") == "1 problem; sbatch would have accepted it"
    assert last("#SBATCH --mem=x") == "1 problem; sbatch would refuse the script"
    mixed = last("#SBATCH --mem=x", "#SBATCH --time=24:00")
    assert mixed == "2 problems; sbatch would have accepted 1 of them"
    none = last("#SBATCH --mem=4G", "#SBATCH --time=1-0")
    assert none == "no problem found in 2 directives for sbatch and the commands"


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

    found = check_here(
        here_of(str(tmp_path), {"PATH": ""}), "run.sh", form="slurm", run_command=never
    ).findings

    assert "unknown-queue" not in {one.rule for one in found}
