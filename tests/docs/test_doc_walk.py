"""What a page works on is what stands in these sources, whatever a user made there."""

import shutil
import subprocess
from pathlib import Path

import pytest
from doc_walk import copy_sources


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not here")
def test_files_that_a_user_made_are_not_copied(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    (sources / "plan").mkdir(parents=True)
    (sources / "train.py").write_text("print(1)\n")
    (sources / "plan" / "plan.json").write_text("{}")
    subprocess.run(["git", "init", "-q"], cwd=sources, check=True)
    subprocess.run(["git", "add", "train.py"], cwd=sources, check=True)

    copy_sources(sources, tmp_path / "copy")

    copied = [path.name for path in (tmp_path / "copy").rglob("*")]
    assert copied == ["train.py"]
