"""``weigh compare``: options; a table or JSON."""

import click

from weigh.cli import options
from weigh.flow.here import here_now
from weigh.flow.records.compare import compare_named
from weigh.render.comparison_lines import comparison_text
from weigh.render.printable import indented_json


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@options.as_json()
@click.argument(
    "records",
    nargs=-1,
    required=True,
    metavar="A B...",
    shell_complete=options.offer_record_names,
)
def compare(records: tuple[str, ...], *, as_json: bool) -> int:
    """Compare runs with the first one named: time, memory, GPU, time per sample.

    A and B are records: an id, the beginning of one, a label, `last` or a file of
    `weigh run -o`. A label of several records, or a record of `weigh run --repeat`,
    is compared with its spread, which shows what may be noise.

    \b
    weigh compare tag-50 tag-300
    weigh compare cpu v100 a100
    """  # noqa: D301 - click reads \b as: keep these lines
    comparison = compare_named(here_now(), records)
    click.echo(indented_json(comparison) if as_json else comparison_text(comparison))
    return 0
