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


def test_it_gives_the_record_of_a_command_that_fails_too(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"  # a word may be a path
    script.write_text("import sys; sys.exit(3)")
    record = run([sys.executable, script], label="mine", parameters={"size": 50})
    assert (record.state, record.exit_code) == ("FAILED", 3)
    assert (record.label, record.parameters) == ("mine", {"size": 50})


NOT_A_LIST = r'\["python3", "train.py"\], not '


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        *((one, {}, NOT_A_LIST) for one in ("python a.py", b"ls", Path("a.py"), None)),
        *((["true", word], {}, "run: ") for word in (5, None, "a\0b")),
        *(
            (["true"], {"parameters": {name: 1}}, "a parameter cannot be called")
            for name in ("a=b", "", "  ")
        ),
    ],
)
def test_what_is_no_command_or_parameter_is_refused(
    command: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        run(command, **options)


def test_what_cannot_be_found_is_an_error_of_that_kind() -> None:
    with pytest.raises(CommandNotFoundError, match="nosuchcommand"):
        run(["nosuchcommand"])


def test_options_that_are_refused_state_where_the_reason_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(WeighError, match="stderr says why"):
        run(["true"], repeat=0)
    assert "--repeat" in capfd.readouterr().err
