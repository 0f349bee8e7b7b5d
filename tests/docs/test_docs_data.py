"""What stands in the pages as TOML is what weigh reads."""

import tomllib
from pathlib import Path

import pytest
from doc_pages import Block
from test_docs_run import BLOCKS

from weigh.config import load_config
from weigh.model.mask import SecretMask


def of(language: str) -> list[object]:
    return [
        pytest.param(one, id=str(one)) for one in BLOCKS if one.language == language
    ]


@pytest.mark.parametrize("block", of("toml"))
def test_toml_is_a_file_that_something_reads(block: Block) -> None:
    assert tomllib.loads(block.text)
    assert block.words["file"].endswith(".toml")


@pytest.mark.parametrize("block", of("toml"))
def test_settings_are_known(block: Block, tmp_path: Path) -> None:
    if block.words["file"] != "weigh.toml":
        pytest.skip(f"{block.words['file']}: a verb reads it on its page")
    tmp_path.joinpath("weigh.toml").write_text(block.text, encoding="utf-8")

    read = load_config(str(tmp_path), {}, site_file="/nonexistent")

    assert read.warnings == ()
    tables = (
        read.settings,
        read.exec,
        read.submit,
        read.gpus,
        read.cluster,
        read.ignore,
    )
    assert any(tables) or read.mask != SecretMask()
