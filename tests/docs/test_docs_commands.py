"""What the documentation tells people to type is what weigh understands."""

from pathlib import Path

import click
import pytest
from doc_pages import PAGES, ROOT, blocks, weigh_argvs

from weigh.cli.main import weigh


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_call_in_the_documentation_is_understood(page: Path) -> None:
    top = click.Context(weigh, info_name="weigh", obj=[])
    for block in blocks(page):
        for argv in weigh_argvs(block):
            verb = weigh.get_command(top, argv[0])
            assert verb is not None, f"{block}: {argv}"
            try:
                verb.make_context(argv[0], argv[1:], parent=top)
            except click.ClickException as error:
                pytest.fail(f"{block}: {argv}: {error.format_message()}")
