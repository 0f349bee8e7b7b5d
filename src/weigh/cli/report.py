"""``weigh report``: the words of the command line; requested beside used."""

import sys
from typing import Any

import click

from weigh.cli.quantities import TIME_TEXT
from weigh.cli.report_drawn import HERE, draw
from weigh.cli.report_texts import print_paper, print_report, print_since
from weigh.errors import UsageError
from weigh.report.report_paper import FORMS as PAPERS
from weigh.store.find import LAST


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False, default=LAST, metavar="[ID|JOB|PLAN|last]")
@click.option("--json", "form", flag_value="json", help="One JSON document.")
@click.option("--jsonl", "form", flag_value="jsonl", help="A line of JSON a task.")
@click.option("--csv", "form", flag_value="csv", help="A row a task.")
@click.option("--markdown", "form", flag_value="markdown", help="For an issue.")
@click.option("--openmetrics", "form", flag_value="openmetrics", help="For Prometheus.")
@click.option("--seff", "form", flag_value="seff", help="The ten lines of seff.")
@click.option(
    "--ticket", "form", flag_value="ticket", help="What a support ticket needs."
)
@click.option(
    "--paper",
    type=click.Choice(PAPERS),
    help="The compute statement that venues ask for.",
)
@click.option(
    "--grid-intensity",
    type=float,
    metavar="gCO2/kWh",
    help="With --paper: state CO2, too.",
)
@click.option(
    "--since",
    type=TIME_TEXT,
    metavar="TIME",
    help="What all runs of the last 30d, 12h, ... wasted, the worst first.",
)
@click.option(
    "--html",
    metavar="FILE",
    help="One page that opens from disk: curves, tasks; - for stdout.",
)
@click.option(
    "--plot",
    is_flag=False,
    flag_value=HERE,
    metavar="[FILE]",
    help="Curves, here or as *.png, *.pdf or *.svg.",
)
@click.option(
    "--log",
    "logs",
    multiple=True,
    metavar="FILE",
    help="A job's log with the scheduler's GPU table; repeatable.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 on a finding.")
@click.option("--ascii", "is_ascii", is_flag=True, help="Bars of plain letters.")
def report(name: str, **words: Any) -> int:  # noqa: ANN401 - click's
    """Show what was asked for beside what was used, and what to change.

    NAME is a record's id, a label, a job's id, a plan's name or folder, or `last`,
    which is the newest of all. Where sacct or qacct say otherwise than weigh, both
    figures stand there, and which to believe.

    Exit codes: 0; with --strict 1 where something is to be changed.

    \b
    weigh report
    weigh report 481516 --markdown
    weigh report ppo-sweep --paper latex --grid-intensity 230
    weigh report --since 30d
    weigh report last --strict && sbatch next.sh
    """  # noqa: D301 - click reads \b as: keep these lines
    _check(name, words)
    is_ascii = words["is_ascii"] or not _can_draw()
    if words["html"] is not None or words["plot"] is not None:
        return draw(name, words, is_ascii=is_ascii)
    if words["paper"]:
        return print_paper(name, words)
    if words["since"] is not None:
        return print_since(words)
    return print_report(name, words, is_ascii=is_ascii)


def _check(name: str, words: dict[str, Any]) -> None:
    """Refuse words that would be without effect, or contradict each other."""
    chosen = [f"--{one}" for one in ("paper", "html", "plot") if words[one] is not None]
    if chosen == ["--html", "--plot"]:
        chosen.pop()  # both are written
    if words["form"]:
        chosen.append(f"--{words['form']}")
    if len(chosen) > 1:
        raise UsageError(f"{chosen[0]} and {chosen[1]}: choose one of them")
    if words["grid_intensity"] is not None and not words["paper"]:
        raise UsageError("--grid-intensity goes with --paper")
    if words["since"] is None:
        return
    if name != LAST:
        raise UsageError(f"--since is about all runs: leave {name} out")
    if chosen and chosen[0] not in {"--json", "--paper"}:
        raise UsageError(f"--since has no form {chosen[0]} (--json or --paper)")


def _can_draw() -> bool:
    """Tell whether the output takes more than ASCII."""
    try:
        "█▏".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
