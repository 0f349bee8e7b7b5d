"""``check_here`` on real files, and the screen that tells of them."""

import shutil
from pathlib import Path

import pytest
from called_weigh import called_here, work_alone_in
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from transcript import check_transcript, file_writer

from weigh.model.lint import CheckedScript, LintFinding
from weigh.render.check_lines import script_check_lines
from weigh.render.printable import width_of

COMMANDS = ("bash", "sleep", "ls", "hostname", "sed", "cat")


def test_checks_of_scripts_print_what_was_reviewed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    work_alone_in(tmp_path, monkeypatch)
    (tmp_path / "bin").mkdir()
    for name in COMMANDS:
        program = shutil.which(name, path="/bin:/usr/bin")
        (tmp_path / "bin" / name).symlink_to(program or "")
    (tmp_path / "params.txt").write_text("a\nb\nc")
    path = Path(__file__).with_name("checked_scripts.transcript")

    check_transcript(path, called_here(capsys), given=file_writer(tmp_path))


def test_worked_examples_of_checked_scripts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    names = {
        "folder": tmp_path_factory.mktemp("work"),
        "a_folder": lambda: tmp_path_factory.mktemp("home"),
    }
    check_session(Path(__file__).with_name("check_script.session"), names)


WORDS = st.text("abcdefgh", min_size=1, max_size=30)


@given(st.text(max_size=60), st.text(max_size=90), st.lists(WORDS, min_size=1))
def test_every_line_fits_80_columns(path: str, text: str, words: list[str]) -> None:
    effect = " ".join(words)
    found = LintFinding(rule="x", severity="problem", line=7, text=text, effect=effect)
    checked = CheckedScript(
        script=path, scheduler="slurm", directives=1, findings=(found,)
    )
    lines = list(script_check_lines(checked))
    assert all(width_of(line) <= 80 for line in lines)
    assert all(word in "\n".join(lines) for word in words)
