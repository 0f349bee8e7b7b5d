"""The ``weigh`` command: its verbs in the order of use, each imported when called."""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from weigh._version import __version__
from weigh.cli.output import make_stderr_patient, settle_stdout
from weigh.errors import WeighError
from weigh.measure.launcher import Launcher

_INTERNAL = 125
_SIGNAL_BASE = 128
_USAGE = 2

# verb -> (module, what --help says of it); read as a table, imported one at a time
_GROUPS = {
    "Measure": {
        "run": ("weigh.cli.run", "measure one run of any command"),
        "scan": ("weigh.cli.scan", "measure a few sizes; say what fits where"),
        "top": ("weigh.cli.top", "watch what runs now"),
        "gpus": ("weigh.cli.gpus", "the GPUs that are mine, and who is on them"),
        "profile": ("weigh.cli.profile", "where a Python program spends, line by line"),
    },
    "Decide": {
        "request": ("weigh.cli.request", "the lines to ask a scheduler for"),
        "fit": ("weigh.cli.fit", "the same as scan, from records there are"),
        "compare": ("weigh.cli.compare", "how runs differ from the first one named"),
    },
    "Ship": {
        "sweep": ("weigh.cli.sweep", "a task file: one command, many parameters"),
        "check": ("weigh.cli.check", "try a few tasks, or read a job script"),
        "stages": ("weigh.cli.stages", "the steps of an experiment, one record"),
        "plan": ("weigh.cli.plan", "how many tasks share a GPU and a node"),
        "submit": ("weigh.cli.submit", "send a plan to the cluster, or run it here"),
        "exec": ("weigh.cli.exec", "run the tasks, each measured, and resume"),
    },
    "Follow": {
        "status": ("weigh.cli.status", "how jobs stand, and why they wait"),
        "logs": ("weigh.cli.logs", "what a job or a task has printed"),
        "cancel": ("weigh.cli.cancel", "end jobs, or what of them waits"),
        "resume": ("weigh.cli.resume", "run again what did not finish"),
    },
    "Review": {
        "report": ("weigh.cli.report", "what was asked for beside what was used"),
        "records": ("weigh.cli.records", "list, show, export and import records"),
    },
    "Site": {
        "cluster": ("weigh.cli.cluster", "queues, free GPUs, what is down, who runs"),
        "doctor": ("weigh.cli.doctor", "what is wrong here, and the cure"),
        "config": ("weigh.cli.config", "a site file from what the scheduler says"),
    },
}
_VERBS = {verb: entry for group in _GROUPS.values() for verb, entry in group.items()}


class Verbs(click.Group):
    """Imports a verb's module only when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Give the verbs in the order of use."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module; None for an unknown verb."""
        if cmd_name not in _VERBS:
            ctx.fail(_unknown_verb(cmd_name))
        module = import_module(_VERBS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """List the verbs by group without importing any."""
        for title, verbs in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb, text) for verb, (_, text) in verbs.items()])


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
@click.version_option(__version__, "-V", "--version", message="weigh %(version)s")
def weigh() -> None:
    """Weigh a job before you ship it to the cluster.

    Start with:  weigh run -- python train.py --epochs 1
    """


def run_cli(argv: Sequence[str], launchers: list[Launcher]) -> int:
    """Carry out *argv*; return the exit code. Errors are reported in one line."""
    make_stderr_patient()
    _guard_terminal()
    code = _carried_out(argv, launchers)
    trouble = settle_stdout()
    if trouble is not None and code == 0 and argv[:1] not in (["run"], ["exec"]):
        code = _report_lost_output(trouble)
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.flush()
    return code


def _carried_out(argv: Sequence[str], launchers: list[Launcher]) -> int:
    try:
        code = weigh.main(list(argv), "weigh", standalone_mode=False, obj=launchers)
    except WeighError as error:
        _complain(str(error))
        is_usage = error.exit_code == _USAGE
        return _usage_code(argv) if is_usage else error.exit_code
    except click.ClickException as error:
        _complain_of_usage(error)
        return _usage_code(argv)
    except (click.Abort, KeyboardInterrupt):
        return _SIGNAL_BASE + signal.SIGINT
    except OSError as error:
        return _explain(error)
    except Exception as error:  # noqa: BLE001 - reported in one line
        return _internal_error(error)
    return code if isinstance(code, int) else 0


def _guard_terminal() -> None:
    """Keep what weigh prints of others' texts from steering the terminal.

    Labels, commands, file names and a scheduler's messages may hold control sequences.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            is_terminal = stream is not None and stream.isatty()
        except (OSError, ValueError):  # closed
            continue
        if is_terminal:
            from weigh.render.printable import Terminal  # noqa: PLC0415 - start-up time

            setattr(sys, name, Terminal(stream))


def _usage_code(argv: Sequence[str]) -> int:
    """Keep weigh's own trouble with its words apart from a job's exit code 2."""
    return _INTERNAL if "run" in argv[:1] else _USAGE


def _internal_error(error: Exception) -> int:
    if os.environ.get("WEIGH_DEBUG"):
        raise error
    _complain(
        f"internal error: {type(error).__name__}: {error} "
        "(WEIGH_DEBUG=1 shows where; please report it)"
    )
    return _INTERNAL


def _explain(error: OSError) -> int:
    """Report a failed call: of a file by its name, of stdout only if that fails."""
    if error.filename is not None:
        _complain(f"{error.filename}: {error.strerror}")
        return _INTERNAL
    trouble = settle_stdout()
    if trouble is None and not _is_of_stdout(error):
        return _internal_error(error)
    return _report_lost_output(trouble or error)


def _is_of_stdout(error: OSError) -> bool:
    """Return whether printing raised *error*: stderr never does."""
    place = error.__traceback__
    while place is not None:
        if place.tb_frame.f_code is click.echo.__code__:
            return True
        place = place.tb_next
    return False


def _report_lost_output(error: OSError) -> int:
    """Report that stdout cannot be written; not where its reader left (``| head``)."""
    if isinstance(error, BrokenPipeError):
        return _SIGNAL_BASE + signal.SIGPIPE
    _complain(f"standard output: {error.strerror}")
    return _INTERNAL


def _complain(line: str) -> None:
    if sys.stderr is not None:
        from weigh.render.printable import shown  # noqa: PLC0415 - start-up time

        with suppress(OSError):
            print(f"weigh: {shown(line)}", file=sys.stderr)


def _complain_of_usage(error: click.ClickException) -> None:
    """Say in one line what is wrong; with no words at all, what there is."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help(), err=True)
        return
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "weigh"
    message = " ".join(error.format_message().split()).rstrip(".")
    _complain(f"{message}   (see {path} --help)")


def _unknown_verb(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only for a typo

    near = get_close_matches(name, _VERBS, n=1)
    offer = f"did you mean {near[0]}?" if near else f"one of {', '.join(_VERBS)}"
    return f"no such command: {name} ({offer})"
