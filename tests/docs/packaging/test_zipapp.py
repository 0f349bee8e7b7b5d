"""The one file of `make zipapp`: without pip, as its own user, in a fresh home."""

import ast
import os
import sys
import zipfile
from pathlib import Path

import pytest
from doc_pages import ROOT
from run_captured import CapturedRun, run_captured

pytestmark = pytest.mark.integrations
VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(scope="module")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("zipapp") / "weigh.pyz"
    made = run_captured([sys.executable, ROOT / "tools/zipapp.py", target, VERSION])
    if made.returncode and "No matching distribution" in made.stderr:
        pytest.skip("no package index to take the libraries from")
    assert made.returncode == 0, made.stderr
    return target


def call(zipapp: Path, home: Path, *words: str, **env: str) -> CapturedRun:
    known = {"HOME": str(home), "PATH": os.environ["PATH"], "WEIGH_LOGIN_NODE": "no"}
    return run_captured(
        [os.path.realpath(sys.executable), "-S", zipapp, *words],
        cwd=home,
        env={**known, **env},
    )


def test_the_file_runs_and_starts_jobs(zipapp: Path, tmp_path: Path) -> None:
    (tmp_path / "one.txt").write_text("echo done > result\n")
    assert call(zipapp, tmp_path, "--version").stdout.startswith("weigh ")
    ran = call(zipapp, tmp_path, "run", "--", "sh", "-c", "exit 7")
    assert (ran.returncode, "FAILED" in ran.stderr) == (7, True)
    needs = ("--memory=100M", "--cpus=1", "--time=1m")
    call(zipapp, tmp_path, "plan", "one.txt", *needs)
    call(zipapp, tmp_path, "submit", "plan/one", "--on=local")
    ended = call(zipapp, tmp_path, "status", "--wait", "last")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (tmp_path / "result").read_text() == "done\n"


def test_a_home_that_cannot_be_written_is_named(zipapp: Path, tmp_path: Path) -> None:
    failed = call(zipapp, tmp_path, "--version", WEIGH_HOME="/proc/weigh")
    assert failed.returncode == 1
    assert "cannot unpack into /proc/weigh" in failed.stderr
    assert "WEIGH_HOME" in failed.stderr


def test_an_old_python_reads_the_file_and_names_the_version(zipapp: Path) -> None:
    packed = zipapp.read_bytes()
    # zipimport of Python 3.6 looks for the end record in the last 22 bytes only
    assert packed[-22:-18] == b"PK\5\6"
    with zipfile.ZipFile(zipapp) as archive:
        text = archive.read("__main__.py").decode()
    ast.parse(text, feature_version=(3, 6))
    start, _, _ = text.partition("tag = ")
    assert "import os, shutil, subprocess, sys, zipfile" in start
    assert "Python 3.11 or newer is needed" in start
