"""What PYTHONPATH, the current folder or a broken installation do to weigh."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from processes import WEIGH
from run_captured import CapturedRun, run_captured

import weigh

PACKAGES = {
    "of another Python": ("msgspec/__init__.py", "import msgspec._core"),
    "a module of the standard library": ("typing.py", "raise SystemExit('typing')"),
    "click": ("click.py", "raise SystemExit('click')"),
    "a start of the site's": ("sitecustomize.py", "import typing, click"),
}


def folder_with(place: Path, name: str) -> Path:
    file, text = PACKAGES[name]
    (place / file).parent.mkdir(parents=True, exist_ok=True)
    (place / file).write_text(text)
    return place


def run(folder: Path, *words: str, **environ: str) -> CapturedRun:
    return run_captured(words, cwd=folder, env={**os.environ, **environ})


@pytest.mark.parametrize("name", PACKAGES)
def test_packages_on_pythonpath_are_the_jobs_and_not_weighs(
    tmp_path: Path, name: str
) -> None:
    place = folder_with(tmp_path / "packages", name)
    if name.startswith("a start"):
        folder_with(place, "of another Python")
    show = 'echo "$PYTHONPATH"'

    done = run(
        tmp_path, *WEIGH, "run", "-q", "--", "sh", "-c", show, PYTHONPATH=str(place)
    )

    assert (done.returncode, done.stdout) == (0, f"{place}\n"), done.stderr


@pytest.mark.parametrize("library", [os.__file__, pytest.__file__])
def test_pythonpath_may_name_a_folder_above_the_interpreter_or_its_packages(
    tmp_path: Path, library: str
) -> None:
    """As that of a project with its environment inside."""
    above = [str(folder) for folder in Path(library).parents]

    for place in above[:-1:2]:
        argv = (*WEIGH, "run", "-q", "--", "echo", "ran")
        done = run(tmp_path, *argv, PYTHONPATH=place)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", ""), place


@pytest.mark.parametrize("name", ["click", "of another Python"])
def test_packages_of_the_current_folder_are_not_weighs(
    tmp_path: Path, name: str
) -> None:
    folder_with(tmp_path, name)
    (tmp_path / "tasks.txt").write_text("echo ran > ran.txt\n")

    done = run(tmp_path, *WEIGH, "exec", "tasks.txt", PYTHONPATH="")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a weigh that lacks one of its files."""
    source = Path(weigh.__file__).parent
    copy = tmp_path / "broken/weigh"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "units.py").unlink()
    return {"PYTHONPATH": os.pathsep.join([str(copy.parent), *sys.path[1:]])}


RUN = ("run", "--label", "a", "--", "sh", "-c", "echo ran >> ran.txt; exit 7")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (RUN, 7, "the command runs unmeasured"),
        (("run", "--", "there-is-none"), 127, "command not found: there-is-none"),
        (("status",), 125, "please report it"),
    ],
)
def test_a_broken_weigh_runs_the_command_unmeasured_and_nothing_else(
    tmp_path: Path, broken: dict[str, str], words: tuple[str, ...], code: int, said: str
) -> None:
    (tmp_path / "ran.txt").touch()

    # -S: an editable installation would find the whole one
    done = run(tmp_path, sys.executable, "-S", "-m", "weigh", *words, **broken)

    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "ran.txt").read_text() == ("ran\n" if code == 7 else "")
    assert words[0] == "run" or done.stderr.count("\n") == 1
