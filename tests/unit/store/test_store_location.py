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
from transcript import check_answers

from weigh.errors import StoreError
from weigh.store.location import locate_store, make_folder, note_on_store
from weigh.store.shards import store_shards


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home folder, at which the search ends whatever lies above it."""
    home = tmp_path / "home" / "ann"
    home.mkdir(parents=True)
    return home


def in_home(home: Path, **variables: str) -> dict[str, str]:
    return {"HOME": str(home), **variables}


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
            store = locate_store(str(below), in_home(Path(root, "home/ann")))
            return os.path.relpath(store, root)

    question = "stores, what ends a search, the current folder"
    check_answers(Path(__file__).with_name("locations.texts"), {question: used})


def test_a_store_in_the_folder_for_temporary_files_is_not_used(
    home: Path, tmp_path: Path
) -> None:
    folder(tmp_path, "scratch", ".weigh")
    here = folder(tmp_path, "scratch", "job")
    for variable in ("TMPDIR", "TEMP", "TMP"):
        environ = in_home(home, **{variable: str(tmp_path / "scratch")})
        assert locate_store(str(here), environ) == str(here / ".weigh")


def test_a_home_that_is_a_link_is_known_by_its_real_name(
    home: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(home)
    folder(home.parent, ".weigh")
    here = folder(home, "project")
    assert locate_store(str(here), in_home(link)) == str(here / ".weigh")


def test_a_store_above_the_current_folder_is_named(home: Path) -> None:
    store = folder(home, "project", ".weigh")
    below = folder(home, "project", "a")
    note = note_on_store(str(below), in_home(home))
    assert note is not None
    assert str(store) in note
    assert note_on_store(str(home / "project"), in_home(home)) is None
    chosen = in_home(home, WEIGH_DIR=str(store))
    assert note_on_store(str(below), chosen) is None


@pytest.mark.parametrize(
    "words", [("run", "--", "true"), ("exec", "tasks.txt"), ("records",)]
)
def test_a_verb_names_a_store_above_the_current_folder(
    home: Path, words: Sequence[str]
) -> None:
    store = folder(home, "project", ".weigh")
    below = folder(home, "project", "a")
    (below / "tasks.txt").write_text("true\n")
    environ = {**os.environ, "HOME": str(home)}
    environ.pop("WEIGH_DIR", None)
    done = run_captured([*WEIGH, *words], cwd=below, env=environ, check=True)
    assert f"weigh: records are in {store} (above" in done.stderr


def test_weigh_dir_overrides_and_is_relative_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".weigh").mkdir()
    chosen = locate_store(str(tmp_path), {"WEIGH_DIR": "elsewhere/."})
    assert chosen == str(tmp_path / "elsewhere")


def test_a_file_in_the_way_is_no_store(home: Path) -> None:
    (home / ".weigh").write_text("not a folder")
    below = folder(home, "job")
    assert locate_store(str(below), in_home(home)) == str(below / ".weigh")


def test_a_new_store_keeps_itself_out_of_git_and_a_folder_of_the_users_not(
    tmp_path: Path,
) -> None:
    make_folder(str(tmp_path / ".weigh"), "records")
    assert (tmp_path / ".weigh" / ".gitignore").read_text() == "*\n"
    make_folder(str(tmp_path), "records")
    assert not (tmp_path / ".gitignore").exists()


def test_a_file_in_the_place_of_the_store_is_named_with_the_way_out(
    tmp_path: Path,
) -> None:
    (tmp_path / ".weigh").write_text("not a folder")
    with pytest.raises(StoreError, match=r"\.weigh/records: .*WEIGH_DIR"):
        make_folder(str(tmp_path / ".weigh"), "records")
    with pytest.raises(StoreError, match="is a file"):
        store_shards(str(tmp_path / ".weigh"))


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
