"""What the documentation tells people to type or write is what weigh understands."""

import tomllib
from pathlib import Path

import click
import pytest
from doc_pages import BLOCKS, PAGES, ROOT, blocks, weigh_argvs

from weigh.cli.main import PAGES as PAGES_OF_HELP
from weigh.cli.main import VERBS, run_cli, weigh
from weigh.config import ConfigValues, load_config


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_call_in_the_documentation_is_understood(page: Path) -> None:
    top = click.Context(weigh, info_name="weigh", obj=[])
    for block in blocks(page):
        for argv in weigh_argvs(block):
            if argv[0] == "help":
                assert argv[1] in (*VERBS, *PAGES_OF_HELP), block
                continue
            verb = weigh.get_command(top, argv[0])
            assert verb is not None, f"{block}: {argv}"
            try:
                verb.make_context(argv[0], argv[1:], parent=top)
            except click.ClickException as error:
                pytest.fail(f"{block}: {argv}: {error.format_message()}")


def test_toml_is_a_file_whose_settings_are_known(tmp_path: Path) -> None:
    for block in BLOCKS:
        if block.language == "toml":
            name = block.words["file"]
            assert tomllib.loads(block.text), block
            assert name.endswith(".toml")
            if name != "weigh.toml":  # a verb reads it on its page
                continue
            tmp_path.joinpath(name).write_text(block.text, encoding="utf-8")
            read = load_config(str(tmp_path), {}, site_file="/nonexistent")
            assert read.warnings == ()
            assert read != ConfigValues(), block


def test_help_shows_the_cheat_sheet_without_marks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = run_cli(["help", "cheatsheet"], [])
    shown = capsys.readouterr().out
    page = (ROOT / "docs/cheatsheet.md").read_text(encoding="utf-8")

    typed = [line for line in page.splitlines() if line.startswith("weigh ")]
    assert code == 0
    assert typed
    assert [line for line in typed if f"  {line}\n" not in shown] == []
    assert max(map(len, shown.splitlines())) <= 80
    assert not any(mark in shown for mark in ("```", "<!--", "# Cheat"))
