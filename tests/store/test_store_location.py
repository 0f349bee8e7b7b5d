import os
import stat
from pathlib import Path

import pytest
from some_records import HERE, some_record

from weigh.errors import StoreError
from weigh.store.location import locate, make_folder
from weigh.store.shards import append, shards


@pytest.fixture
def nothing_above(tmp_path: Path) -> None:
    stray = next((p for p in tmp_path.parents if (p / ".weigh").exists()), None)
    if stray:
        pytest.skip(f"somebody keeps records in {stray}, above the test's folder")


def test_the_nearest_store_upwards_is_used(tmp_path: Path) -> None:
    store = tmp_path / ".weigh"
    store.mkdir()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert locate(str(below), {}) == str(store)


@pytest.mark.usefixtures("nothing_above")
def test_without_a_store_one_is_to_be_made_here(tmp_path: Path) -> None:
    assert locate(str(tmp_path), {}) == str(tmp_path / ".weigh")


def test_weigh_dir_overrides_and_is_relative_to_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".weigh").mkdir()
    chosen = locate(str(tmp_path), {"WEIGH_DIR": "elsewhere/."})
    assert chosen == str(tmp_path / "elsewhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.usefixtures("nothing_above")
def test_a_store_planted_by_somebody_else_is_passed_over(tmp_path: Path) -> None:
    planted = tmp_path / ".weigh"
    planted.mkdir()
    os.chown(planted, 12345, 12345)
    below = tmp_path / "job"
    below.mkdir()
    assert locate(str(below), {}) == str(below / ".weigh")


@pytest.mark.usefixtures("nothing_above")
def test_a_file_in_the_way_is_no_store(tmp_path: Path) -> None:
    (tmp_path / ".weigh").write_text("not a folder")
    below = tmp_path / "job"
    below.mkdir()
    assert locate(str(below), {}) == str(below / ".weigh")


def test_only_the_owner_may_read_what_is_made(tmp_path: Path) -> None:
    root = tmp_path / ".weigh"
    append(str(root), some_record(), HERE)
    everything = [root, *root.rglob("*")]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in everything}
    assert all(modes[p] == (0o700 if p.is_dir() else 0o600) for p in everything)


def test_a_new_store_keeps_itself_out_of_git(tmp_path: Path) -> None:
    make_folder(str(tmp_path / ".weigh"), "records")
    assert (tmp_path / ".weigh" / ".gitignore").read_text() == "*\n"


def test_a_folder_of_the_users_own_gets_no_gitignore(tmp_path: Path) -> None:
    make_folder(str(tmp_path), "records")
    assert not (tmp_path / ".gitignore").exists()


def test_a_store_that_is_a_file_is_named_with_the_way_out(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    with pytest.raises(StoreError, match=r"file/records: .*WEIGH_DIR"):
        make_folder(str(in_the_way), "records")


def test_a_file_where_the_records_should_be_is_not_an_empty_store(
    tmp_path: Path,
) -> None:
    in_the_way = tmp_path / ".weigh"
    in_the_way.write_text("not a folder")
    with pytest.raises(StoreError, match="is a file"):
        list(shards(str(in_the_way)))
