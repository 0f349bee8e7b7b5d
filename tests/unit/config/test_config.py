"""Settings of a site, a user, a project and the environment: settings.texts has all."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transcript import WRITES_ANEW, named_texts

from weigh.config import ConfigValues, load_config, unknown_tables
from weigh.errors import FormatError

TEXTS = Path(__file__).with_name("settings.texts")
PLACES = {
    "site": "etc/config.toml",
    "user": "home/.config/weigh/config.toml",
    "xdg": "xdg/weigh/config.toml",
    "project": "project/weigh.toml",
    "pyproject": "project/pyproject.toml",
    "folder": "project/deep/down/weigh.toml",
    "pyproject-below": "project/deep/down/pyproject.toml",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a machine whose project is two folders deep."""
    (tmp_path / "project/deep/down").mkdir(parents=True)
    return tmp_path


def load(root: Path, **env: str) -> ConfigValues:
    return load_config(
        str(root / "project/deep/down"),
        {"HOME": str(root / "home"), **env},
        site_file=str(root / PLACES["site"]),
    )


def write(root: Path, place: str, text: str) -> Path:
    path = root / PLACES[place]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode().decode("unicode_escape").encode("latin-1"))
    return path


def found_lines(root: Path, env: dict[str, str]) -> Iterator[str]:
    """Yield each value with its origin, and warnings; or why a file is refused."""
    try:
        found = load(root, **env)
    except FormatError as error:
        # each Python words it in its own way
        yield re.sub(r"(?<=not TOML: ).*(?=at line)", "... ", f"refused: {error}")
        return
    for name, one in sorted(found.settings.items()):
        yield f"{name} = {one.value!r} ({one.origin})"
    for name in ("ignore", "gpus", "cluster"):
        if value := getattr(found, name):
            yield f"{name}: {value}"
    if found.mask.off:
        yield "secrets are shown"
    yield from (f"warning: {line}" for line in found.warnings)
    yield from unknown_tables(found, ("slurm", "gridengine"))


@pytest.mark.parametrize("name", named_texts(TEXTS))
def test_settings_are_found_as_they_were_reviewed(root: Path, name: str) -> None:
    """A line ``PLACE: TEXT`` is a file, and ``env: NAME=VALUE`` a variable."""
    rows = named_texts(TEXTS)[name].splitlines()
    given = [row for row in rows if row and not row.startswith("| ")]
    env: dict[str, str] = {}
    for row in given:
        place, _, text = row.partition(": ")
        if place == "env":
            variable, _, value = text.partition("=")
            env[variable] = value.replace("ROOT", str(root))
        else:
            write(root, place, text.replace("A-MIB-OF-HASHES", "#" * (2 << 20)))
    found = [line.replace(str(root), "ROOT") for line in found_lines(root, env)]
    text = "\n".join((*given, *(f"| {line}" for line in found)))
    if WRITES_ANEW:
        whole = TEXTS.read_text()
        part = re.compile(rf"(?<=^## {re.escape(name)}\n)(.+\n)*", re.MULTILINE)
        TEXTS.write_text(part.sub(lambda _: f"{text}\n", whole, count=1))
    assert text == "\n".join(filter(None, rows)) or WRITES_ANEW


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["a folder", "a fifo"])
def test_what_is_no_file_of_settings_is_passed_by(root: Path, make: object) -> None:
    make(root / PLACES["project"])  # type: ignore[operator]

    assert load(root) == ConfigValues()


def test_without_home_or_file_nothing_breaks(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "no")
    assert load_config(str(tmp_path), {}, site_file=nowhere) == ConfigValues()


def test_where_no_file_exists_no_parser_is_imported(tmp_path: Path) -> None:
    program = (
        "import sys; from weigh.config import load_config; "
        f"load_config({str(tmp_path)!r}, {{}}, site_file='/nonexistent'); "
        "sys.exit(bool({'tomllib', 'difflib'} & set(sys.modules)))"
    )

    bare = subprocess.run(
        [sys.executable, "-S", "-c", program],
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    assert bare.returncode == 0


@pytest.mark.as_root
@pytest.mark.parametrize(
    ("place", "text"),
    [("project", "quiet = true"), ("pyproject", "[tool.weigh]\\nquiet = true")],
)
def test_the_settings_of_another_user_are_not_read(
    root: Path, place: str, text: str
) -> None:
    path = write(root, place, text)
    os.chown(path, 1234, 1234)
    found = load(root)
    assert found.value("quiet") is None
    if place == "project":
        assert found.warnings == (f"{path}: not read: it belongs to another user",)


def test_settings_that_others_may_write_are_not_read(root: Path) -> None:
    path = write(root, "project", "quiet = true")
    path.chmod(0o666)
    found = load(root)
    assert found.value("quiet") is None
    (warning,) = found.warnings
    assert warning.endswith(f"others may write it (chmod go-w {path})")


def test_a_file_of_settings_above_a_repository_is_not_the_projects(root: Path) -> None:
    write(root, "project", "quiet = true")
    (root / "project/deep/down/.git").mkdir()
    assert load(root).value("quiet") is None
