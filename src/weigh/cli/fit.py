"""``weigh fit``: the words of the command line; curves and what fits, out."""

import os
from typing import Any

import click

from weigh.cli import options
from weigh.cli.scan import estimate_options, show, wishes_of
from weigh.flow.fit.fit import fit_named


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--by",
    metavar="NAME",
    help="The parameter that is the size, if several vary; A*B for a product, "
    "A,B for the better of A, B and A*B.",
)
@click.option("--html", metavar="FILE", help="The curves as a page, too.")
@estimate_options
@click.argument("records", nargs=-1, metavar="[ID]...", shell_complete=options.records)
def fit(**words: Any) -> int:  # noqa: ANN401 - click's own
    """Fit records of several sizes: what fits where, what the full job needs.

    ID is a record's id, a label (all of its records) or a file; without one, all
    records that have the parameter, as `weigh run --param` and `scan` give it.
    Those of other commands, hosts and GPUs than most have are left out, and said.

    \b
    weigh fit --by batch_size --target 1000 --gpu V100-32GB
    """  # noqa: D301 - click reads \b
    html = words.pop("html")
    as_json, wishes = words.pop("as_json"), wishes_of(words)
    answer = fit_named(
        words["records"], words["by"], wishes, cwd=os.getcwd(), env=os.environ
    )
    show(answer, as_json=as_json)
    if html is not None:
        from weigh.flow.report.page import fit_page, write_page  # noqa: PLC0415

        write_page(fit_page(answer), html)
        click.echo(f"weigh: wrote {html}", err=True)
    return 0
