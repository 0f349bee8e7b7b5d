import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_captured import run_captured

from weigh.probe.host import read_commit

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
AUTHOR = ["-c", "user.name=a", "-c", "user.email=a@b"]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def git(folder: Path, *words: str) -> str:
    argv = ["git", *AUTHOR, "-C", str(folder), *words]
    return run_captured(argv, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


@needs_git
def test_the_commit_is_the_one_that_git_names(checkout: Path) -> None:
    (checkout / "below").mkdir()
    assert read_commit(str(checkout / "below")) == git(checkout, "rev-parse", "HEAD")


@needs_git
@pytest.mark.parametrize(
    "change",
    [
        ("pack-refs", "--all"),
        ("checkout", "-q", "--detach"),
        ("checkout", "-q", "-b", "topic/new"),
    ],
)
def test_packed_detached_and_nested_branches_are_followed(
    checkout: Path, change: tuple[str, ...]
) -> None:
    git(checkout, *change)
    assert read_commit(str(checkout)) == git(checkout, "rev-parse", "HEAD")


@needs_git
def test_a_worktree_has_a_commit_of_its_own(checkout: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(checkout, "worktree", "add", "-q", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "second")
    assert read_commit(str(other)) == git(other, "rev-parse", "HEAD")
    assert read_commit(str(other)) != read_commit(str(checkout))


def test_where_there_is_no_checkout_there_is_no_commit() -> None:
    assert read_commit("/") is None


@pytest.mark.parametrize(
    ("head", "commit"),
    [
        pytest.param("ref: refs/heads/main\n", None, id="a branch without commits"),
        pytest.param("ref: ../secret\n", None, id="a file that holds no commit"),
        pytest.param(f"{COMMIT}\n", COMMIT, id="a detached head is its own"),
    ],
)
def test_a_commit_is_what_head_names(
    tmp_path: Path, head: str, commit: str | None
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(head)
    (tmp_path / "secret").write_text("not for the record\n")
    assert read_commit(str(tmp_path)) == commit


@given(head=st.binary(max_size=80) | st.text("ref: /.\0\n").map(str.encode))
def test_no_head_stops_the_reading(
    head: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_bytes(head)
    assert read_commit(str(folder)) is None
