"""``weigh request``: options; the request on stdout, notes on stderr."""

import sys
from typing import TYPE_CHECKING, Any

import click

from weigh.cli import options
from weigh.errors import UsageError
from weigh.flow.here import here_now
from weigh.flow.request.request import RequestAnswer, request_of_records
from weigh.lazy_modules import lazy_module
from weigh.render.printable import WIDTH
from weigh.render.request_lines import FLAGS, JSON
from weigh.schedulers import KINDS
from weigh.sweep.values import parse_parameters

if TYPE_CHECKING:
    from weigh.flow.request import history as request_history
    from weigh.flow.request import past_jobs
    from weigh.render import history_lines
    from weigh.render.history_lines import PastKind
else:  # each is imported when it is first used
    request_history = lazy_module("weigh.flow.request.history")
    past_jobs = lazy_module("weigh.flow.request.past_jobs")
    history_lines = lazy_module("weigh.render.history_lines")

# the order of KINDS is that in which schedulers are looked for
_FIRST, *_OTHERS = KINDS.values()
_DEFAULTS = (
    _FIRST.name,
    *(f"{kind.name} if only {kind.submits} is on PATH" for kind in _OTHERS),
)
_HISTORY = "history"
_ACCOUNTS = tuple(kind.accounts for kind in KINDS.values())
# options by the source that uses them: with another one they would have no effect
_OF_HISTORY = ("parameters",)
_OF_RECORDS = ("headroom", "steps")


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.option(
    "--for",
    "form",
    type=click.Choice((*KINDS, FLAGS)),
    help=f"Form of the request.  [default: {'; '.join(_DEFAULTS)}]",
)
@click.option(
    "--headroom",
    metavar="SHARE",
    help="Margin above the largest usage: 20% or 0.2.  [default: 20%]",
)
@click.option(
    "--target",
    "steps",
    metavar="[DONE/]TOTAL",
    help="Steps of the full job, after those measured if the record does not count "
    "them: time and rising memory are extrapolated. 88000samples are samples of "
    "weigh.batches.",
)
@click.option(
    "--from",
    "source",
    default="records",
    metavar="WHERE",
    help="records: those named. history: all runs similar to the one named; "
    "history:normal and history:high are nearer to what was used where runs vary. "
    f"{' or '.join(_ACCOUNTS)}: your jobs that accounting lists, of a name and of the "
    "last days: sacct:align, sacct:align_*,7d.  [default: records; 30d]",
)
@click.option(
    "--param",
    "parameters",
    metavar="NAME=VALUE",
    multiple=True,
    callback=options.read_by(parse_parameters),
    help="Parameter of the next run; repeatable.  [default: the record's]",
)
@options.as_json()
@click.argument(
    "records", nargs=-1, metavar="[ID]...", shell_complete=options.offer_record_names
)
def request(records: tuple[str, ...], *, as_json: bool, **words: Any) -> int:  # noqa: ANN401 - click's
    """Print what to request from the scheduler, based on one or several records.

    ID is a record's id, the beginning of one, its label, `last` or a file of
    `weigh run -o`; the default is `last`, as in `weigh report last`: the last run,
    or all those of the last job, exec or scan. For several runs the largest usage
    counts, for a scan its target. The request goes to stdout, its uncertainty to
    stderr.

    With --from history all runs of the same label and command are used, and the
    request becomes more precise with each run; --param applies only to it.

    With --from sacct (or qacct) your past jobs are used, with or without
    weigh, and nothing is kept. Without a name all kinds of jobs are listed.

    \b
    weigh request
    weigh request --target 500/10000
    weigh request --from history:normal --param batch_size=300 tag
    weigh request --from sacct:align
    weigh request --for gridengine --headroom 30% tag-50 tag-100 tag-300
    sbatch $(weigh request --for flags) job.sh
    """  # noqa: D301 - click reads \b as: keep these lines
    if as_json and words["form"]:
        raise UsageError(f"--json and --for {words['form']}: leave out one of them")
    words["form"] = JSON if as_json else words["form"]
    answer = _request_answer(records, words)
    # without a name there is no single request, only the kinds of jobs found
    if not isinstance(answer, RequestAnswer):
        if as_json:
            raise UsageError(
                f"{len(answer)} kinds of jobs: --from {_accounting_of(words)}:NAME "
                "chooses one"
            )
        for line in history_lines.kinds_table(answer, WIDTH):
            click.echo(line)
        options.warn_on_stderr(
            f"--from {_accounting_of(words)}:NAME writes the request of one"
        )
        return 0
    for line in answer.lines:
        click.echo(line)
    sys.stdout.flush()  # the lines before the notes, where both reach one terminal
    for warning in answer.warnings:
        options.warn_on_stderr(warning)
    if not as_json:  # the document holds them
        for note in answer.notes:
            click.echo(note, err=True)
    return 0


def _request_answer(
    records: tuple[str, ...], words: dict[str, Any]
) -> "RequestAnswer | tuple[PastKind, ...]":
    source = words["source"]
    accounts = _accounting_of(words)
    if accounts in _ACCOUNTS:
        _check_goes_with(words, (*_OF_RECORDS, *_OF_HISTORY), accounts)
        if records:
            raise UsageError(
                f"--from {accounts} uses no records: --from {accounts}:NAME chooses"
            )
        return past_jobs.request_from_accounting(here_now(), source, form=words["form"])
    if accounts == _HISTORY:
        _check_goes_with(words, _OF_RECORDS, accounts)
        parameters, risk = words["parameters"], source.partition(":")[2] or "low"
        return request_history.request_from_history(
            here_now(), records, parameters, risk=risk, form=words["form"]
        )
    if source != "records":
        raise UsageError(
            f"--from {source}: one of records, {_HISTORY}, {', '.join(_ACCOUNTS)}"
        )
    _check_goes_with(words, _OF_HISTORY, accounts)
    usual = {name: words[name] for name in ("form", *_OF_RECORDS)}
    return request_of_records(here_now(), records, **usual)


def _accounting_of(words: dict[str, Any]) -> str:
    """Return the command of accounting in ``sacct:NAME``, or the source as it is."""
    return str(words["source"].partition(":")[0])


def _check_goes_with(
    words: dict[str, Any], others: tuple[str, ...], source: str
) -> None:
    """Refuse an option that would have no effect."""
    # --param yields {} where it is not given, the others None
    given = [name for name in others if words[name] not in (None, {})]
    if given:
        flag = "--" + {"parameters": "param", "steps": "target"}.get(
            given[0], given[0]
        ).replace("_", "-")
        if given[0] in _OF_HISTORY:
            fix = f"add --from {_HISTORY}"
        else:
            fix = f"remove --from {source}"
        raise UsageError(f"{flag} has no effect here: {fix}")
