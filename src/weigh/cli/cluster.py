"""``weigh cluster``: its options, and printing the cluster on a page or a line."""

import os

import click

from weigh.cli import options
from weigh.cli.options import LIMIT
from weigh.config import SITE_FILE
from weigh.errors import StoreError, UsageError
from weigh.flow.site.cluster import Shape
from weigh.flow.site.cluster import cluster as cluster_flow
from weigh.render.cluster_lines import render_free, render_json, render_text
from weigh.render.columns import fill
from weigh.render.printable import printable

_STDOUT = "-"


@click.command(context_settings=options.SETTINGS)
@click.option("--free", is_flag=True, help="One line: what is free now.")
@click.option(
    "--start",
    is_flag=True,
    help="Also query when a job of --gpus, --cpus and --time would start.",
)
@options.queue("For --start: only this queue; repeatable.", multiple=True)
@click.option(
    "--gpus",
    "gpu",
    metavar="TYPE:N",
    help="For --start: v100, a100:2; on Grid Engine the resource: ngpus:1.",
)
@click.option(
    "--cpus",
    type=options.Count(),
    default=1,
    metavar="N",
    help="For --start.  [default: 1]",
)
@click.option(
    "--time", "time_limit", type=LIMIT, metavar="TIME", help="For --start: 90m, 4h."
)
@options.scheduler("Scheduler to query.  [default: the one whose commands are on PATH]")
@click.option(
    "--write-config",
    "config",
    is_flag=False,
    flag_value=_STDOUT,
    metavar="[FILE]",
    help="Write the site's settings for you to correct: queues with their limits, "
    "GPU types, scratch; to FILE, which must not exist, or to stdout.",
)
@click.option(
    "--site",
    is_flag=True,
    help=f"With --write-config: to {SITE_FILE}, for all users.",
)
@options.as_json()
def cluster(  # noqa: PLR0913 - one parameter an option
    *,
    free: bool,
    start: bool,
    queue: tuple[str, ...],
    gpu: str | None,
    cpus: int,
    time_limit: int | None,
    scheduler: str | None,
    config: str | None,
    site: bool,
    as_json: bool,
) -> int:
    """Show the cluster: queues, GPUs, nodes that are down, users and your jobs.

    A GPU is free when it is idle and its node has a CPU and memory left for a job.
    The scheduler is only queried: nothing is submitted.
    """
    if site:
        config = _site_path(config)
    if config is not None:
        if free or start or as_json:
            raise UsageError("--write-config writes settings only: no other form")
        return _write_config(config, scheduler)
    shape = None
    if start:
        wanted = gpu if gpu is None or ":" in gpu or gpu.isdecimal() else f"{gpu}:1"
        shape = Shape(queues=queue, cpus=cpus, gpu=wanted, time_limit=time_limit)
    elif queue or gpu or time_limit:
        raise UsageError("--queue, --gpus and --time need --start")
    seen = cluster_flow(os.environ, scheduler=scheduler, shape=shape)
    if as_json:
        click.echo(render_json(seen).decode())
    elif free:
        click.echo(render_free(seen))
    else:
        click.echo("\n".join(render_text(seen)))
    for note in seen.notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0


def _site_path(config: str | None) -> str:
    """Return the path of the site's file, whose folder now exists."""
    if config not in {None, _STDOUT}:
        raise UsageError(f"--site writes {SITE_FILE}: omit {config}")
    folder = os.path.dirname(SITE_FILE)
    try:
        os.mkdir(folder, 0o755)
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror} (as root, or without --site: "
            "weigh cluster --write-config config.toml)"
        ) from error
    return SITE_FILE


def _write_config(path: str, scheduler: str | None) -> int:
    """Write the site's settings file as its scheduler describes the cluster."""
    from weigh.flow.site.site_file import site_file, write_new  # noqa: PLC0415 - rarely

    text, notes = site_file(os.environ, scheduler=scheduler)
    if path == _STDOUT:
        click.echo(text, nl=False)
    else:
        write_new(path, text)
        click.echo(f"weigh: wrote {printable(path)}: correct it", err=True)
    for note in notes:
        click.echo(fill(f"weigh: {printable(note)}", 80), err=True)
    return 0
