"""``weigh profile``: its command line, and the summary printed afterwards."""

import os
import sys

import click

from weigh.cli import options
from weigh.flow.run.profile import Profiled
from weigh.flow.run.profile import profile as profile_flow
from weigh.render.profile_lines import render_profile, render_totals


class _AfterDashes(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse a command line without ``--``, as ``weigh run`` does."""
        if args and "--" not in args and not {"-h", "--help"} & set(args):
            raise click.UsageError(
                "put -- before the command: weigh profile -- python3 train.py", ctx
            )
        return super().parse_args(ctx, args)


@click.command(
    cls=_AfterDashes,
    context_settings=options.SETTINGS,
    options_metavar="[OPTIONS] --",
)
@click.option("-o", "--output", metavar="FILE", help="Write a copy of the profile.")
@click.option("--force", is_flag=True, help="Allow it inside a batch job.")
@click.option(
    "--html/--no-html", default=True, help="Write an HTML page too.  [default: yes]"
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def profile(
    command: tuple[str, ...], *, output: str | None, force: bool, html: bool
) -> int:
    """Show which lines of a Python program take the time and the memory.

    Runs COMMAND through Scalene (pip install scalene) with this terminal,
    these pipes and its own exit code. The profile is kept with the records, and
    the most expensive lines are printed on stderr. A profiler slows the program,
    so profile a short run; inside a batch job this needs --force.

    \b
    weigh profile -- python3 train.py --epochs 1
    weigh profile -- python3 -m mypackage.train
    """  # noqa: D301 - click reads \b
    done = profile_flow(
        command, environ=os.environ, output=output, page=html, force=force
    )
    if sys.stderr is not None:
        print(_summary(done, os.getcwd()), end="", file=sys.stderr)
    return done.exit_code


def _summary(done: Profiled, cwd: str) -> str:
    left = _orphans_line(done.stopped)
    if done.profile is None:
        return f"weigh  no profile: Scalene wrote none\n{left}"
    table = render_profile(done.profile, cwd=cwd)
    if done.path is None:
        return f"weigh  no profile\n{table}{left}"
    title = f"weigh  profile {done.id}  {render_totals(done.profile)}".rstrip()
    kept = [f"  kept as  {_short(path, cwd)}\n" for path in _kept(done)]
    return "".join([f"{title}\n", table, *kept, left])


def _orphans_line(stopped: int) -> str:
    if not stopped:
        return ""
    what = "a process" if stopped == 1 else f"{stopped} processes"
    return f"  stopped  {what} that outlived the program\n"


def _kept(done: Profiled) -> list[str]:
    return [path for path in (done.path, done.page) if path is not None]


def _short(path: str, cwd: str) -> str:
    below = path.startswith(os.path.join(cwd, ""))
    return os.path.relpath(path, cwd) if below else path
