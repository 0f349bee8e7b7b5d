"""What a terminal is sent of texts that others wrote: no control sequence of theirs."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from processes import WEIGH, Terminal

from weigh.model.record import RunOutcome
from weigh.render.printable import (
    SafeTerminal,
    indented_json,
    without_control_characters,
)

# a colour, the title of the window, C1's form of a control sequence, and an override
# of the direction of writing
ATTACK = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202eexe\r"
STEERING = ("\x1b", "\x07", "\x9b", "\u202e")


def on_terminal(words: Sequence[str], cwd: Path) -> str:
    """Run weigh on a terminal of its own; return what the terminal was sent."""
    more = {"WEIGH_DIR": str(cwd / "store"), "NO_COLOR": "1"}
    environ = {**os.environ, **more, "PYTHONIOENCODING": "utf-8"}
    with closing(Terminal([*WEIGH, *words], environ, cwd)) as terminal:
        terminal.wait()
    return terminal.shown


@pytest.mark.few(6)
@pytest.mark.parametrize(
    "words",
    [
        ("run", "--", f"no{ATTACK}such"),
        ("run", "-o", f"missing/{ATTACK}", "--", "true"),
        ("run", "--label", ATTACK, "--param", f"a={ATTACK}", "--", "true"),
        ("records", "show", ATTACK),
        ("report", ATTACK),
        ("request", ATTACK),
        ("compare", ATTACK, "other"),
        ("exec", f"{ATTACK}.txt"),
        ("plan", ATTACK),
        ("submit", ATTACK),
        ("submit", "--dry-run", "--on", "local", "--name", ATTACK, "--", "true"),
        ("check", ATTACK),
        ("run", ATTACK),
        ("sweep", f"a={ATTACK}", "--", "echo", "{a}"),
        ("scan", f"n={ATTACK}", "--", "true"),
        ("status", ATTACK),
        ("logs", ATTACK),
        ("cancel", ATTACK),
        ("resume", ATTACK),
        (ATTACK,),
        ("run", f"--{ATTACK}"),
    ],
)
def test_no_verb_sends_a_terminal_what_steers_it(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    sent = on_terminal(words, tmp_path)
    assert not [mark for mark in STEERING if mark in sent], sent


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a record of hostile texts."""
    folder = tmp_path_factory.mktemp("attacked")
    label = ("--label", ATTACK, "--param", f"p={ATTACK}")
    on_terminal(("run", *label, "--", "true", ATTACK), folder)
    return folder


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "words",
    [
        ("records",),
        ("records", "show", "last"),
        ("records", "show", "last", "--json"),
        ("report", "last"),
        ("report", "last", "--json"),
        ("request", "last"),
    ],
)
def test_no_text_of_a_record_steers_the_terminal(
    attacked: Path, words: tuple[str, ...]
) -> None:
    sent = on_terminal(words, attacked)
    assert "red" in sent or words[0] == "request"
    assert not [mark for mark in STEERING if mark in sent], sent


def test_a_next_line_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / "my tasks;x.txt").write_text("true\ntrue\n")
    words = ("plan", "my tasks;x.txt", "--memory", "100MiB", "--time", "1m")
    sent = on_terminal(words, tmp_path)
    line = next(line for line in sent.splitlines() if "next:" in line)
    assert line.split("next: ")[1] == "weigh submit 'plan/my tasks;x'"


def test_text_without_control_characters_is_written_as_it_is() -> None:
    assert without_control_characters("a\tb\nGrüße 日本") == "a\tb\nGrüße 日本"


def test_a_terminals_stream_still_has_what_a_stream_has() -> None:
    terminal = SafeTerminal(sys.__stdout__)  # type: ignore[arg-type] # never None here
    assert terminal.encoding == sys.__stdout__.encoding  # type: ignore[union-attr]


def test_json_holds_bytes_that_are_no_utf_8_as_a_mark() -> None:
    document = {"a\udcff": ("\udcff", 1, RunOutcome("\udcff"))}
    outcome = {"reason": "\ufffd", "evidence": []}
    assert json.loads(indented_json(document)) == {"a\ufffd": ["\ufffd", 1, outcome]}
