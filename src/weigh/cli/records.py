"""``weigh records``: the command line of the record store."""

import gc
import os
import sys
import time
from typing import Any, get_args

import click

from weigh.cli import options
from weigh.errors import close_names, writing
from weigh.flow.records.records import (
    RecordFilter,
    RecordStore,
    choose_records,
    export_csv,
    export_jsonl,
    find_record,
    list_records,
    open_store,
    remove_records,
)
from weigh.model.record import State
from weigh.render import record_list
from weigh.render.printable import (
    WIDTH,
    short_command,
    shortened_text,
)
from weigh.render.record_lines import render_record
from weigh.store.lines import encode_record
from weigh.units import count_with_noun

_SHOWN = 20  # records that are listed without -n
_STDOUT = "-"


# what other tools call them
_MEANT = {"list": "weigh records", "ls": "weigh records", "delete": "weigh records rm"}


class _RecordVerbs(options.PlainHelp, click.Group):
    """Answers a record's name in place of a command with the command that shows it."""

    command_class = options.PlainHelp

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* name.

        Raises:
            UsageError: there is none; shows what was probably meant.
        """
        name = args[0]
        # an option, or a command of this group: click's own way
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        near = close_names(name, self.list_commands(ctx), n=1)
        meant = f"weigh records {near[0]}" if near else f"weigh records show {name}"
        meant = _MEANT.get(name, meant)
        return ctx.fail(f"no such command: {name} (did you mean {meant}?)")


@click.group("records", invoke_without_command=True, cls=_RecordVerbs)
@options.limit(
    f"List the newest N; 0: all.  [default: {_SHOWN}; with --json: all]", least=0
)
@click.option("--label", metavar="NAME", help="List only records with this label.")
@click.option(
    "--state",
    "states",
    metavar="STATE",
    multiple=True,
    type=click.Choice(get_args(State), case_sensitive=False),
    help="List only records in this state (failed, timeout...); repeatable.",
)
@options.as_json()
@click.pass_context
def records(
    context: click.Context,
    /,
    *,
    as_json: bool,
    **words: Any,  # noqa: ANN401 - click's own
) -> None:
    """List records, newest first; show, remove or export them.

    A record is named by its id, the first letters of it (four or more), its label,
    or `last`.
    """
    if context.invoked_subcommand is not None:
        return
    gc.disable()  # there are no reference cycles, and 100,000 records take long to scan
    context.call_on_close(gc.enable)
    if words["limit"] is None and not as_json:
        words["limit"] = _SHOWN
    words["limit"] = words["limit"] or None
    record_filter = RecordFilter(**words)
    store = _store()
    listing = list_records(store, record_filter)
    # warnings on stderr, so that the list alone goes into a pipe
    warnings = (store.note, *record_list.skipped_record_warnings(listing))
    for warning in filter(None, warnings):
        options.warn_on_stderr(warning)
    if as_json:
        click.echo(record_list.record_list_json(listing).decode())
    else:
        click.echo(record_list.record_table_text(listing, year=time.strftime("%Y")))


@records.command()
@click.argument("name", metavar="ID", shell_complete=options.offer_record_names)
@options.as_json()
def show(name: str, *, as_json: bool) -> None:
    """Show one record; ID can also be a file of `weigh run -o`."""
    record = find_record(_store(), name)
    click.echo(encode_record(record).decode() if as_json else render_record(record))


@records.command()
@click.argument(
    "names",
    metavar="ID...",
    nargs=-1,
    required=True,
    shell_complete=options.offer_record_names,
)
def rm(names: tuple[str, ...]) -> None:
    """Remove records without confirmation: all that are named, or none."""
    for head in remove_records(_store(), names):
        _print_line(f"removed {head.id}  {short_command(head.command)}")


@records.command()
@click.argument(
    "names", metavar="[ID...]", nargs=-1, shell_complete=options.offer_record_names
)
@options.output("FILE", "Write to FILE.  [default: standard output]")
def export(names: tuple[str, ...], *, output: str | None) -> None:
    """Write records, oldest first; without ID, all of them.

    As JSON lines, as they are stored; to a FILE that ends in .csv as a table without
    time series.
    """
    is_csv = output is not None and output.endswith(".csv")
    write = export_csv if is_csv else export_jsonl
    chosen = choose_records(_store(), names)
    if output is None or output == _STDOUT:
        write(chosen, sys.stdout.buffer)
        return
    with writing(output), open(output, "wb") as file:
        write(chosen, file)
    options.warn_on_stderr(
        f"{count_with_noun(len(chosen), 'record')} written to {output}"
    )


def _store() -> RecordStore:
    return open_store(os.getcwd(), os.environ)


def _print_line(line: str) -> None:
    click.echo(shortened_text(line, WIDTH))
