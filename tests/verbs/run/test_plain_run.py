"""Plain command lines of `weigh run`, read without click: click must read the same."""

import os
import sys
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import WEIGH
from run_captured import run_captured

from weigh.cli.plain_run import read_plain
from weigh.cli.run import run

_FLAGS = ["-q", "--quiet", "-o", "--output", "--label", "--param", "--interval"]
_OTHERS = [
    "--",
    "-",
    "-h",
    "--help",
    "--repeat=2",
    "--progress",
    "-qo",
    "-oout",
    "--out",
]
_VALUES = ["", "a", "a=1", "=", "=1", "last", " ", "x=1e3", "x=nan", "é", "-1", "a b"]
WORDS = st.sampled_from([*_FLAGS, *_OTHERS, *_VALUES]) | st.builds(
    "{}={}".format, st.sampled_from(_FLAGS), st.sampled_from(_VALUES)
)


def by_click(argv: list[str]) -> dict[str, object] | None:
    """What click reads of the options that a plain line may have; None if refused."""
    try:
        context = run.make_context("run", list(argv))
    except (click.ClickException, click.exceptions.Exit):
        return None
    names = ("output", "label", "quiet", "parameters", "command")
    return {name: context.params[name] for name in names}


def defaults_of_click() -> dict[str, object]:
    params = run.make_context("run", ["--", "true"]).params
    return {**params, "command": None}


@given(st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=3))
def test_what_is_plain_is_read_as_by_click(options: list[str], job: list[str]) -> None:
    argv = [*options, "--", *job]
    plain = read_plain(["run", *argv])
    if plain is not None:
        read = {name: getattr(plain, name) for name in plain.__struct_fields__}
        assert read == by_click(argv)
        others = run.make_context("run", argv).params
        changed = {name for name in others if others[name] != defaults_of_click()[name]}
        assert changed <= {*read}  # no option that a plain line cannot have


@given(st.lists(WORDS, max_size=5))
def test_what_click_refuses_is_never_plain(argv: list[str]) -> None:
    if by_click(argv) is None:
        assert read_plain(["run", *argv]) is None


@pytest.mark.parametrize(
    "argv",
    [
        ["--", "true"],
        ["-q", "--", "true", "--help"],
        ["-o", "r.json", "--label", "a", "--param", "b=1", "--", "true", "--", "-x"],
        ["--output=r.json", "--label=a", "--param=b=1", "--", "true"],
    ],
)
def test_the_usual_lines_are_plain(argv: list[str]) -> None:
    assert read_plain(["run", *argv]) is not None


def run_it(folder: Path, *words: str, **env: str) -> tuple[int, str, set[str]]:
    """Run `weigh run`; give exit code, stderr without times and ids, and modules."""
    code = (
        "import atexit, sys; from weigh.__main__ import main; sys.argv[0] = 'weigh';"
        "tell = lambda: open('modules', 'w').write(' '.join(sys.modules));"
        "atexit.register(tell); main()"
    )
    done = run_captured(
        [sys.executable, "-c", code, "run", *words],
        cwd=folder,
        env={**os.environ, "WEIGH_DIR": str(folder / "store"), **env},
    )
    return done.returncode, done.stderr, {*(folder / "modules").read_text().split()}


def test_settings_count_as_ever(tmp_path: Path) -> None:
    (tmp_path / "weigh.toml").write_text("quiet = true\n")
    assert run_it(tmp_path, "--", "true")[1] == ""
    assert "memory" in run_it(tmp_path, "--", "true", WEIGH_QUIET="no")[1]
    (tmp_path / "weigh.toml").write_text("quiet = perhaps\n")
    code, text, modules = run_it(tmp_path, "--", "true")
    assert code == 125
    assert "weigh.toml" in text
    assert "click" in modules  # the error is reported as for every other verb


def test_other_verbs_import_no_part_of_a_run(tmp_path: Path) -> None:
    done = run_captured(
        [sys.executable, "-X", "importtime", *WEIGH[1:], "records"],
        cwd=tmp_path,
        env={**os.environ, "WEIGH_DIR": str(tmp_path / "store")},
    )
    assert "weigh.cli.main" in done.stderr
    assert "weigh.cli.plain_run" not in done.stderr
