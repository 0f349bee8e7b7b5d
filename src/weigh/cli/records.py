"""``weigh records``: the command line of the record store."""

import gc
import os
import sys
import time
from typing import get_args

import click

from weigh.cli import options
from weigh.errors import StoreError
from weigh.flow.records.imported import STDIN, Format, import_records
from weigh.flow.records.records import (
    Store,
    Wanted,
    choose,
    export_csv,
    export_jsonl,
    find_record,
    list_records,
    open_store,
    remove_records,
)
from weigh.model.record import State
from weigh.render import record_list
from weigh.render.printable import count, printable, short_command, shortened
from weigh.render.record_show import render_record
from weigh.store.lines import encode

_SHOWN = 20
_WIDTH = 80


@click.group("records", invoke_without_command=True)
@click.option("--all", "everything", is_flag=True, help="Every record.")
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    help=f"At most so many, the newest [{_SHOWN}; --json: all].",
)
@click.option("--label", help="Only those with this label.")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    type=click.Choice(get_args(State), case_sensitive=False),
    help="Only those that ended so (failed, timeout...); may be repeated.",
)
@options.as_json()
@click.pass_context
def records(  # noqa: PLR0913 - one parameter an option
    context: click.Context,
    *,
    everything: bool,
    limit: int | None,
    label: str | None,
    states: tuple[str, ...],
    as_json: bool,
) -> None:
    """List what was measured, newest first; show, remove, export, import.

    A record is called by its id, the first letters of it (four or more), its label,
    or "last".
    """
    if context.invoked_subcommand is not None:
        return
    gc.disable()  # nothing here runs in circles, and 100,000 records take long to comb
    context.call_on_close(gc.enable)
    if limit is None and not (everything or as_json):
        limit = _SHOWN
    wanted = Wanted(label=label, states=states, limit=limit)
    store = _store()
    listing = list_records(store, wanted)
    for warning in filter(None, (store.note, *record_list.warnings(listing))):
        click.echo(f"weigh: {warning}", err=True)
    if as_json:
        click.echo(record_list.render_json(listing).decode())
    else:
        click.echo(record_list.render_text(listing, year=time.strftime("%Y")))


@records.command()
@click.argument("name", metavar="ID", shell_complete=options.records)
@click.option("--json", "as_json", is_flag=True, help="The whole record as JSON.")
def show(name: str, *, as_json: bool) -> None:
    """Show one record; ID may also be a file of `weigh run -o`."""
    record = find_record(_store(), name)
    click.echo(encode(record).decode() if as_json else render_record(record))


@records.command()
@click.argument(
    "names", metavar="ID...", nargs=-1, required=True, shell_complete=options.records
)
@click.option("--dry-run", is_flag=True, help="Only say which.")
def rm(names: tuple[str, ...], *, dry_run: bool) -> None:
    """Remove records, without asking: all that are named, or none."""
    removed = remove_records(_store(), names, dry_run=dry_run)
    verb = "would remove" if dry_run else "removed"
    for head in removed:
        _say(f"{verb} {head.id}  {short_command(head.command)}")


@records.command()
@click.argument("names", metavar="[ID...]", nargs=-1, shell_complete=options.records)
@click.option("--csv", "form", flag_value="csv", help="A table, without the series.")
@click.option("--jsonl", "form", flag_value="jsonl", help="As stored [default].")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False), help="Not to standard output."
)
def export(names: tuple[str, ...], form: str | None, output: str | None) -> None:
    """Write records out, oldest first; all, where none is named."""
    write = export_csv if form == "csv" else export_jsonl
    chosen = choose(_store(), names)
    if output is None or output == STDIN:
        write(chosen, sys.stdout.buffer)
        return
    try:
        with open(output, "wb") as file:
            write(chosen, file)
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    click.echo(f"weigh: {_records(len(chosen))} written to {output}", err=True)


@records.command("import")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Format)),
    help="Recognised by itself where not given.",
)
@click.option("--label", help="A label for all of them.")
@click.option("--again", is_flag=True, help="Also what was imported before.")
def import_(
    paths: tuple[str, ...], *, form: Format | None, label: str | None, again: bool
) -> None:
    """Take over runs from GNU `time -v` output and GNU parallel joblogs.

    "-" is standard input.
    """
    done = import_records(_store(), paths, form=form, label=label, again=again)
    for one in done:
        where = f"{printable(one.source)}:{one.number}"
        if one.record is None:
            click.echo(f"weigh: {where}: skipped: {one.problem}", err=True)
        else:
            command = short_command(one.record.command)
            _say(f"{one.record.id}  {where}  {one.record.state}  {command}")
    number = sum(one.record is not None for one in done)
    skipped = f", {count(len(done) - number)} skipped" if number < len(done) else ""
    click.echo(f"weigh: {_records(number)} imported{skipped}", err=True)


def _store() -> Store:
    try:
        cwd = os.getcwd()
    except OSError as error:
        raise StoreError("the current folder is gone: cd to another") from error
    return open_store(cwd, os.environ)


def _records(number: int) -> str:
    return "1 record" if number == 1 else f"{count(number)} records"


def _say(line: str) -> None:
    click.echo(shortened(line, _WIDTH))
