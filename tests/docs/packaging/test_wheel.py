"""What people install: one pure wheel, the same from the source archive, complete."""

import hashlib
import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from run_captured import run_captured

import weigh

pytest.importorskip("build", reason="build is missing: pip install .[dev]")

ROOT = Path(__file__).parents[3]
NEEDED = {"click", "msgspec", "jinja2"}
ELSEWHERE = {"psutil"}  # by platform


def built(source: Path, out: Path, *kinds: str) -> list[Path]:
    """Build what is said in *kinds* from a tree or an archive; give the files."""
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]
    done = run_captured([*argv, *kinds, str(source)])
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(out.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the wheel built from this tree."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"), "--wheel")[0]


def content(wheel: Path) -> dict[str, str]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: hashlib.sha256(archive.read(name)).hexdigest()
            for name in archive.namelist()
        }


def test_the_wheel_is_pure_and_holds_every_file_of_the_package(wheel: Path) -> None:
    sources = (path for path in (ROOT / "src").rglob("*") if path.is_file())
    wanted = {
        path.relative_to(ROOT / "src").as_posix()
        for path in sources
        if path.suffix != ".pyc"
    }

    assert wheel.name == f"weigh-{weigh.__version__}-py3-none-any.whl"
    assert wanted <= set(content(wheel))
    assert "weigh/py.typed" in wanted


@pytest.mark.integrations
def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    archive = built(ROOT, tmp_path / "sdist", "--sdist")[0]

    again = built(_unpacked(archive, tmp_path), tmp_path / "again", "--wheel")[0]

    assert content(again) == content(wheel)


def _unpacked(archive: Path, folder: Path) -> Path:
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True, timeout=60)
    return folder / archive.name.removesuffix(".tar.gz")


def test_it_needs_only_what_the_design_names(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith("/METADATA"))
        said = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist")
    assert said is not None
    needed = {
        one.split(";")[0].split(">")[0].split("=")[0].strip()
        for one in said
        if "extra ==" not in one
    }

    assert needed == NEEDED | ELSEWHERE


def test_it_runs_from_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    options = ("-q", "--no-deps", "--no-index", "--no-compile")
    argv = [sys.executable, "-m", "pip", "install", *options]
    subprocess.run([*argv, "--target", place, wheel], check=True, timeout=120)
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {**os.environ, "PYTHONPATH": str(place)}

    run = run_captured(
        [place / "bin" / "weigh", "run", "--", "echo", "hello"], cwd=empty, env=env
    )

    assert (run.returncode, run.stdout) == (0, "hello\n")
    assert "COMPLETED" in run.stderr
    where = [sys.executable, "-c", "import weigh; print(weigh.__file__)"]
    told = subprocess.check_output(where, cwd=empty, env=env, text=True, timeout=60)
    assert told.startswith(str(place))


def test_a_tag_names_the_version() -> None:
    tags = run_captured(["git", "tag", "--points-at", "HEAD"], cwd=ROOT).stdout.split()

    assert all(tag == f"v{weigh.__version__}" for tag in tags)


@pytest.mark.parametrize("name", weigh.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(weigh, name) is not None
