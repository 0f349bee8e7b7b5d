"""``weigh scan``: options, and the estimate of new runs or of existing records."""

import os
import shlex
from typing import Any

import click

from weigh.cli import options
from weigh.cli.axes import AxesThenCommand, command_of_context
from weigh.cli.options import SIZE_TEXT, warn_on_stderr
from weigh.errors import UsageError
from weigh.flow.here import here_now
from weigh.flow.scan.from_records import RecordScanAnswer, TypedOptions, fit_named
from weigh.flow.scan.scan import ScanOptions, is_cpu_scan, scan_cpus, scan_sizes
from weigh.render.estimate_lines import (
    estimate_json,
    estimate_screen_lines,
    scaling_json,
    scaling_lines,
)
from weigh.schedulers import installed_scheduler

_ALL = "all"
# options that have no effect where nothing runs
_OF_RUNS = ("repeat", "label", "resume", "dry_run")


class ScanCommand(AxesThenCommand):
    """With ``--from`` the words are a parameter's name, not names with values."""

    def takes_names(self, ctx: click.Context) -> bool:
        """Return whether a parameter may stand without values."""
        return bool(ctx.params.get("records"))


@click.command(
    cls=ScanCommand,
    context_settings=options.SETTINGS,
    options_metavar="[OPTIONS]",
)
@click.option(
    "--from",
    "records",
    metavar="ID",
    multiple=True,
    shell_complete=options.offer_record_names,
    help="Use existing records and run nothing: a label, an id, a file, or `all` "
    "that have the parameter; repeatable.",
)
@click.option(
    "--repeat",
    type=options.BoundedCount(1, 1000),
    default=1,
    metavar="N",
    help="Run each size N times, to measure how much runs vary.  [default: 1]",
)
@click.option("--label", metavar="NAME", help="Label of the records of this scan.")
@click.option(
    "--resume", is_flag=True, help="Continue the last scan: run only new sizes."
)
@options.dry_run("Print the commands; run nothing.")
@click.option(
    "--target",
    metavar="NAME=VALUE",
    help="Size of the full job: predict what it needs and whether it fits.",
)
@click.option(
    "--gpu",
    "gpus",
    metavar="MODEL",
    multiple=True,
    help="GPU to fit into: V100-32GB, p100=11.9GiB, 30GiB, several as A,B, or all.",
)
@click.option(
    "--memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    multiple=True,
    help="Host memory to fit into, such as 8GiB; repeatable.",
)
@options.as_json()
@click.argument(
    "axes", nargs=-1, metavar="NAME=VALUES... -- COMMAND | [NAME] --from ID"
)
@click.pass_context
def scan(context: click.Context, /, **words: Any) -> int:  # noqa: ANN401 - click's own
    """Measure COMMAND at a few sizes, and predict what other sizes need.

    {NAME} in COMMAND is replaced by the size. Each run is measured and recorded as
    by `weigh run`; its output goes to a file. The scan stops at a size that runs
    out of memory, and keeps what it has measured.

    With --from nothing runs: existing records of several sizes are used instead.
    NAME is their parameter (from a scan or `weigh run --param`), A*B a product of
    two; it can be left out if only one parameter varies. Of several sizes in a scan
    the product counts. Records of another command, host or GPU than most are
    left out with a warning.

    \b
    VALUES   50,100,300     these three
             50..300:log3   three, evenly spaced on a logarithmic scale

    With cpus=1,2,4 the command is held to so many CPUs, also by the variables of
    numeric libraries; advised are those that reach 75 % of the speed-up per CPU.
    Time that it waited for other programs does not count.

    \b
    weigh scan cpus=1,2,4,8 -- ./simulate
    weigh scan batch_size=25,50,100 --target batch_size=300 -- \\
        python3 tag.py alice.txt out.tsv {batch_size}
    weigh scan --resume batch_size=200
    weigh scan batch_size --from tag --target 1000 --gpu V100-32GB
    """  # noqa: D301 - click reads \b
    as_json = words.pop("as_json")
    typed_options = TypedOptions(
        **{name: words.pop(name) for name in TypedOptions.__struct_fields__}
    )
    records = words.pop("records")
    if not records and is_cpu_scan(words["axes"]):
        options = ScanOptions(command=command_of_context(context), **words)
        return _scan_cpus(options, as_json=as_json)
    if records:
        _check_from(context, words["axes"])
        # no names stand for all records
        names = () if records == (_ALL,) else records
        by = words["axes"][0] if words["axes"] else None
        found = fit_named(here_now(), names, by, typed_options)
        _print_scan_answer(found, as_json=as_json)
        return 0
    done = scan_sizes(
        here_now(),
        ScanOptions(command=command_of_context(context), **words),
        typed_options,
        say=warn_on_stderr,
    )
    # of a dry run
    for command in done.planned:
        click.echo(shlex.join(command))
    if done.fit is not None:
        _print_scan_answer(done.fit, as_json=as_json, label=done.label)
    return done.exit_code


def _scan_cpus(options: ScanOptions, *, as_json: bool) -> int:
    """Measure a command on several numbers of CPUs, and print how many pay."""
    if options.resume:
        raise UsageError("cpus=... is scanned as a whole: --resume is not for it")
    done = scan_cpus(here_now(), options, say=warn_on_stderr)
    for words in done.planned:
        click.echo(shlex.join(words))
    if as_json:
        click.echo(scaling_json(done))
    else:
        for line in scaling_lines(done, installed_scheduler(os.environ)):
            click.echo(line)
    return done.exit_code


def _check_from(context: click.Context, names: tuple[str, ...]) -> None:
    """Refuse what has no effect on existing records."""
    if command_of_context(context):
        raise UsageError("--from uses existing records: no -- COMMAND with it")
    for name in _OF_RUNS:
        if options.is_typed(context, name):
            flag = options.flag_of(context, name)
            raise UsageError(f"--from runs nothing: {flag} has no effect with it")
    if len(names) > 1:
        raise UsageError(
            f"one parameter at a time: {' and '.join(names)} "
            "(write A*B for their product)"
        )
    if names and "=" in names[0]:
        name = names[0].partition("=")[0]
        raise UsageError(f"--from uses the sizes of the records: write {name} only")


def _print_scan_answer(
    record_scan_answer: RecordScanAnswer, *, as_json: bool, **more: object
) -> None:
    """Print the estimate on stdout and its warnings on stderr.

    *more* goes into the JSON document.
    """
    if as_json:
        more |= {
            "narrow": record_scan_answer.narrow,
            "warnings": record_scan_answer.warnings,
        }
        click.echo(
            estimate_json(
                record_scan_answer.advice, request=record_scan_answer.request, **more
            )
        )
    else:
        for line in estimate_screen_lines(
            record_scan_answer.advice,
            scheduler=installed_scheduler(os.environ),
            request=record_scan_answer.request,
            narrow=record_scan_answer.narrow,
        ):
            click.echo(line)
    for warning in record_scan_answer.warnings:
        warn_on_stderr(warning)
