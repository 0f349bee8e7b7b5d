"""What the documentation tells people to type is what weigh understands."""

import click
import pytest
from doc_pages import PAGES, blocks, weigh_argvs

from weigh.cli.main import weigh

CALLS = [
    pytest.param(argv, id=f"{block}-{' '.join(argv)}"[:100])
    for page in PAGES
    for block in blocks(page)
    for argv in weigh_argvs(block)
]


@pytest.mark.parametrize("argv", CALLS)
def test_every_call_in_the_documentation_is_understood(argv: list[str]) -> None:
    top = click.Context(weigh, info_name="weigh", obj=[])
    verb = weigh.get_command(top, argv[0])
    assert verb is not None

    verb.make_context(argv[0], argv[1:], parent=top)
