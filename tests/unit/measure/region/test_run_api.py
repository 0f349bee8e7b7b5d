"""``weigh.run``: the command line's verb as a function."""

import sys
from pathlib import Path
from typing import Any

import pytest

from weigh.errors import CommandNotFoundError, UsageError, WeighError
from weigh.flow.api import run


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGH_DIR", str(tmp_path / "store"))


def test_it_gives_the_record_of_a_command_that_fails_too() -> None:
    code = "import sys; sys.exit(3)"
    record = run([sys.executable, "-c", code], label="mine", parameters={"size": 50})
    assert (record.state, record.exit_code) == ("FAILED", 3)
    assert (record.label, record.parameters) == ("mine", {"size": 50})


def test_a_word_may_be_a_path(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import sys; sys.exit(4)")
    assert run([sys.executable, script]).exit_code == 4


@pytest.mark.parametrize("command", ["python train.py", b"ls", Path("train.py"), None])
def test_one_text_is_no_command(command: Any) -> None:
    with pytest.raises(UsageError, match=r'\["python3", "train.py"\], not '):
        run(command)


@pytest.mark.parametrize("word", [5, None, "a\0b"])
def test_a_word_that_is_no_text_is_refused(word: Any) -> None:
    with pytest.raises(UsageError, match="run: "):
        run(["true", word])


@pytest.mark.parametrize("name", ["a=b", "", "  "])
def test_a_parameter_needs_a_name(name: str) -> None:
    with pytest.raises(UsageError, match="a parameter cannot be called"):
        run(["true"], parameters={name: 1})


def test_what_cannot_be_found_is_an_error_of_that_kind() -> None:
    with pytest.raises(CommandNotFoundError, match="nosuchcommand"):
        run(["nosuchcommand"])


def test_options_that_are_refused_state_where_the_reason_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(WeighError, match="stderr says why"):
        run(["true"], repeat=0)
    assert "--repeat" in capfd.readouterr().err
