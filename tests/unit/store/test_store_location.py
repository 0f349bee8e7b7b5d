import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from processes import WEIGH
from run_captured import run_captured
from sessions import check_session
from transcript import check_answers

from weigh.store.location import locate_store


def folder(*parts: str | Path) -> Path:
    made = Path(*parts)
    made.mkdir(parents=True, exist_ok=True)
    return made


def test_the_nearest_store_of_the_project_is_used(tmp_path: Path) -> None:
    def used(words: str) -> str:
        """Return the store used, of the stores there are, what ends a search, here."""
        stores, mark, here = (word.strip() for word in words.split(","))
        with TemporaryDirectory(dir=tmp_path) as root:
            for name in stores.split():
                folder(root, name, ".weigh")
            below = folder(root, here)
            folder(root, "home/ann")
            if mark:
                Path(root, mark).write_text("gitdir: elsewhere")
            store = locate_store(str(below), {"HOME": f"{root}/home/ann"})
            return os.path.relpath(store, root)

    question = "stores, what ends a search, the current folder"
    check_answers(Path(__file__).with_name("locations.texts"), {question: used})


def test_worked_examples_of_places(tmp_path: Path) -> None:
    path = Path(__file__).with_name("location.session")
    check_session(path, {"root": str(tmp_path)})


@pytest.mark.parametrize(
    "words", [("run", "--", "true"), ("exec", "tasks.txt"), ("records",)]
)
def test_a_verb_names_a_store_above_the_current_folder(
    tmp_path: Path, words: Sequence[str]
) -> None:
    store = folder(tmp_path, "project", ".weigh")
    below = folder(tmp_path, "project", "a")
    (below / "tasks.txt").write_text("true\n")
    environ = {**os.environ, "HOME": str(tmp_path)}
    environ.pop("WEIGH_DIR", None)
    done = run_captured([*WEIGH, *words], cwd=below, env=environ, check=True)
    assert f"weigh: records are in {store} (above" in done.stderr


def all_of_a_plan(cwd: Path, **environ: str) -> dict[str, int]:
    """Return the modes of all that weigh makes of a small plan, by name."""
    (cwd / "tasks.txt").write_text("true\ntrue\n")
    verbs = (
        ("plan", "tasks.txt", "--memory", "1GiB", "--time", "1m"),
        ("submit", "--dry-run", "--on", "slurm", "plan/tasks"),
        ("exec", "plan/tasks/tasks_0.txt"),
        ("exec", "tasks.txt"),
    )
    for words in verbs:
        subprocess.run(
            [sys.executable, "-m", "weigh", *words],
            cwd=cwd,
            env={**os.environ, "WEIGH_DIR": str(cwd / "store"), **environ},
            umask=0o007,
            capture_output=True,
            check=True,
        )
    modes = {}
    for path in cwd.rglob("*"):
        name = str(path.relative_to(cwd))
        if name not in {"tasks.txt", "plan"} and ".out" not in name:
            modes[name] = stat.S_IMODE(path.stat().st_mode) & 0o777
    return modes


def test_only_the_owner_may_read_records_joblog_plan_and_events(tmp_path: Path) -> None:
    modes = all_of_a_plan(tmp_path)
    assert {"plan/tasks/plan.json", "tasks.txt.joblog", "store"} <= set(modes)
    assert not {name: oct(mode) for name, mode in modes.items() if mode & 0o077}


def test_a_folder_that_a_group_shares_is_shared_with_all_below(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    modes = all_of_a_plan(tmp_path)
    assert not {name: oct(m) for name, m in modes.items() if m & 0o060 != 0o060}
    assert not {name: oct(m) for name, m in modes.items() if m & 0o007}


@pytest.mark.as_root
@pytest.mark.parametrize("mode", [0o700, 0o2770], ids=["private", "shared"])
def test_the_store_of_another_user_in_the_folder_is_used_only_if_a_group_shares_it(
    tmp_path: Path, mode: int
) -> None:
    other = tmp_path / "project/.weigh"
    other.mkdir(parents=True)
    other.chmod(mode)
    os.chown(other, 1234, 1234)
    home = tmp_path / "home"

    store = locate_store(str(other.parent), {"HOME": str(home)})

    assert store == str(other if mode == 0o2770 else home / ".weigh")
