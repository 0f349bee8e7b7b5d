"""The ``weigh`` command: its verbs, each imported when called, and its exit codes."""

import errno
import os
import re
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

import click

from weigh._version import __version__
from weigh.cli.options import VERBS_WITH_GROUPS, PlainHelp
from weigh.cli.output import guard_terminal, make_stderr_patient, settle_stdout
from weigh.errors import SIGNAL_BASE, USAGE, WEIGH_FAILED, WeighError, close_names
from weigh.flow.run.record_sink import current_folder
from weigh.measure.launcher import JobLauncher

_WIDTH = 80  # of a terminal
_TOO_MANY = re.compile(r"Got unexpected extra arguments? \((.*)\)")
_CLOSE = 0.78  # how alike an option has to be to what was typed, to be offered
# verb -> what an option may be that weigh does not know
_UNKNOWN_OPTIONS = {
    **dict.fromkeys(("run", "scan", "sweep", "profile"), "the command goes after --"),
    "plan": "the scheduler's flags go to weigh submit",
    "submit": "of the scheduler: {}=VALUE",
}
# the five verbs of a first job: (module, what --help shows of it, an example)
_FIRST = {
    "run": (
        "weigh.cli.run",
        "measure one run of any command",
        "weigh run -- python3 train.py --epochs 1",
    ),
    "request": (
        "weigh.cli.request",
        "print what to request from the scheduler",
        "weigh request --from history",
    ),
    "plan": (
        "weigh.cli.plan",
        "pack tasks onto GPUs and nodes",
        "weigh plan tasks.txt --gpu V100-32GB",
    ),
    "submit": (
        "weigh.cli.submit",
        "submit a plan or a command to the cluster",
        "weigh submit plan/tasks --queue gpu --time 6h",
    ),
    "report": (
        "weigh.cli.report",
        "compare requested and used resources",
        "weigh report last",
    ),
}
_MORE = {
    "scan": ("weigh.cli.scan", "measure a few sizes; predict what other sizes need"),
    "sweep": ("weigh.cli.sweep", "write a task file: one command, many parameters"),
    "check": ("weigh.cli.check", "try a few tasks; find errors in a job script"),
    "exec": ("weigh.cli.exec", "run tasks in parallel, measure each, and resume"),
    "status": ("weigh.cli.status", "show the state of jobs, and why they wait"),
    "logs": ("weigh.cli.logs", "show the output of a job or a task"),
    "cancel": ("weigh.cli.cancel", "cancel jobs, or only their waiting elements"),
    "resume": ("weigh.cli.resume", "run unfinished tasks again"),
    "top": ("weigh.cli.top", "watch what weigh run runs here, and the GPUs"),
    "profile": ("weigh.cli.profile", "measure where a Python program spends its time"),
    "records": ("weigh.cli.records", "list, show, remove and export records"),
    "compare": ("weigh.cli.compare", "compare runs with a first one"),
    "cluster": ("weigh.cli.cluster", "show queues, free GPUs, nodes that are down"),
    "doctor": ("weigh.cli.doctor", "find problems of this machine and their fixes"),
    "mcp": ("weigh.cli.mcp", "serve agents: run, request, plan, submit as tools"),
}
# what other tools call them
_MEANT = {
    "show": "records show",
    "list": "records",
    "ls": "records",
    "history": "records",
    "rm": "records rm",
    "delete": "records rm",
    "queue": "status",
    "jobs": "status",
    "kill": "cancel",
    "stop": "cancel",
    "measure": "run",
    "benchmark": "run --repeat 3",
    "wait": "status --wait",
    "watch": "top",
}
VERBS = {verb: entry[:2] for verb, entry in (_FIRST | _MORE).items()}
PAGES = ("cheatsheet", "skill")  # of `weigh help`: the files in pages/


class LazyVerbs(PlainHelp, click.Group):
    """A group that imports a verb's module only when the verb is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``help``, ``help VERB`` and ``version`` as the options that they are."""
        # "weigh help run" is "weigh run --help"
        if args[:1] == ["help"]:
            if args[1:2] and args[1] in PAGES:
                click.echo(_without_marks(read_page(args[1])), nl=False)
                ctx.exit()
            args = [*args[1:], "--help"]
        elif args == ["version"]:
            args = ["--version"]
        # a verb with few options lists all of them in --help
        elif args[1:2] == ["--help-all"] and args[0] not in VERBS_WITH_GROUPS:
            args = [args[0], "--help"]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # click knows the options of the group only: here they stand before the verb
            verb = next((word for word in args if word in VERBS), None)
            if verb is None:
                raise
            option = error.option_name
            message = f"options go after the command: weigh {verb} {option}"
            raise click.UsageError(message, ctx) from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the verbs in the order of the help text."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module.

        Raises:
            UsageError: there is no such verb.
        """
        if cmd_name not in VERBS:
            ctx.fail(_unknown_verb(cmd_name))
        module = import_module(VERBS[cmd_name][0])
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write the verbs, and only then the options."""
        self.format_commands(ctx, formatter)
        click.Command.format_options(self, ctx, formatter)

    def format_commands(
        self,
        ctx: click.Context,
        formatter: click.HelpFormatter,
    ) -> None:
        """List the verbs without importing any: those of a first job with examples."""
        width = max(map(len, VERBS))
        with formatter.section("Start with"):
            for verb, (_, text, example) in _FIRST.items():
                indent = " " * formatter.current_indent
                formatter.write(f"{indent}{verb:<{width}}  {text}\n")
                formatter.write(f"{indent}{'':<{width}}    {example}\n")
        with formatter.section("More"):
            # click pads names to the longest of the list, so each comes padded to all
            # verbs' width
            formatter.write_dl([(f"{verb:<{width}}", _MORE[verb][1]) for verb in _MORE])


def read_page(name: str) -> str:
    """Return the Markdown of a page of `weigh help`."""
    path = os.path.join(os.path.dirname(__file__), "pages", f"{name}.md")
    with open(path, encoding="utf-8") as page:
        return page.read()


def _without_marks(page: str) -> str:
    """Return a page as a terminal shows it: commands indented, no fences."""
    if page.startswith("---\n"):
        return page  # a skill, for a program to read
    lines, is_code = list[str](), False
    for line in page.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        # lines of HTML comments are for the page's readers on the web
        elif not line.startswith("<!--"):
            lines.append(f"  {line}" if is_code and line else line.lstrip("# "))
    text = "\n".join(lines)
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text + "\n"


def _show_version(context: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    # not click's own, which searches a translation on disk at each start
    if is_given and not context.resilient_parsing:
        click.echo(f"weigh {__version__}")
        context.exit()


@click.group(
    cls=LazyVerbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
    subcommand_metavar="VERB ...",
    epilog="`weigh help VERB` shows the options of a verb, `weigh help cheatsheet` "
    "one page of commands, `weigh help skill` one for agents.",
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def weigh() -> None:
    """Measure a job before you submit it to the cluster."""


def run_cli(argv: Sequence[str], launchers: list[JobLauncher]) -> int:
    """Run *argv* and return the exit code; report an error in one line."""
    make_stderr_patient()
    guard_terminal()
    code = _carried_out(argv, launchers)
    trouble = settle_stdout()
    # of run and exec the exit code is that of the job, whatever happens to the output
    if trouble is not None and code == 0 and argv[:1] not in (["run"], ["exec"]):
        code = _report_lost_output(trouble)
    if sys.stderr is not None:
        with suppress(OSError):
            sys.stderr.flush()
    return code


def _carried_out(argv: Sequence[str], launchers: list[JobLauncher]) -> int:
    try:
        code = weigh.main(list(argv), "weigh", standalone_mode=False, obj=launchers)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported in one line
        return exit_code_of(error, argv)
    return code if isinstance(code, int) else 0


def exit_code_of(error: Exception | KeyboardInterrupt, argv: Sequence[str]) -> int:
    """Report in one line why a command ended early; return its exit code."""
    if _is_folder_gone(error.__cause__ or error):
        error = WeighError("the current directory was deleted: cd to another")
    if isinstance(error, WeighError):
        _complain(*error.args)
        is_usage = error.exit_code == USAGE
        return _usage_code(argv) if is_usage else error.exit_code
    if isinstance(error, click.ClickException):
        _complain_of_usage(error, argv)
        return _usage_code(argv)
    if isinstance(error, click.Abort | KeyboardInterrupt):
        return SIGNAL_BASE + signal.SIGINT
    if isinstance(error, OSError):
        return _explain(error)
    # weigh's files are JSON: a record escapes such bytes, a path has to be found again
    if isinstance(error, UnicodeEncodeError) and argv[:1] != ["run"]:
        _complain(f"{error.object} is not UTF-8 (rename it)")
        return USAGE
    # Python has no class of its own for a thread that the system refuses
    if isinstance(error, RuntimeError) and _NO_THREAD in str(error):
        _complain(_OF_SYSTEM[errno.EAGAIN])
        return WEIGH_FAILED
    raise error  # weigh's first module reports it, and runs what it was to measure


def _usage_code(argv: Sequence[str]) -> int:
    """Return 125 for `weigh run`, where exit code 2 may be the command's own."""
    return WEIGH_FAILED if "run" in argv[:1] else USAGE


def _explain(os_error: OSError) -> int:
    """Report a failed system call: the file and the reason, or that stdout failed."""
    if os_error.filename is not None:
        _complain(f"{os_error.filename}: {os_error.strerror}")
        return WEIGH_FAILED
    # buffered output can fail only now, in the flush
    trouble = settle_stdout()
    if trouble is not None or _is_of_stdout(os_error):
        return _report_lost_output(trouble or os_error)
    words = _OF_SYSTEM.get(os_error.errno or 0)
    if words is None:
        # unknown: weigh's first module reports it as a bug
        raise os_error
    _complain(words)
    return WEIGH_FAILED


_NO_THREAD = "can't start new thread"
# what the machine lacks, where the failed call names no file
_OF_SYSTEM = {
    errno.ENOSPC: "cannot write: no space left on the disk",
    errno.EDQUOT: "cannot write: your quota of the disk is used up",
    errno.EAGAIN: "cannot start another process: the limit is reached (ulimit -u)",
    errno.ENOMEM: "cannot start another process: no memory is left",
    errno.EMFILE: "cannot open another file: the limit is reached (ulimit -n)",
    errno.ENFILE: "cannot open another file: the machine's limit is reached",
    errno.ESTALE: "a file is gone from its server (stale file handle): run it again",
    errno.EIO: "a disk fails: input/output error",
}


def _is_folder_gone(cause: BaseException) -> bool:
    """Return whether a file was not found because the current folder was deleted."""
    return isinstance(cause, FileNotFoundError) and current_folder() is None


def _is_of_stdout(os_error: OSError) -> bool:
    """Return whether printing to stdout raised *os_error* (stderr never raises)."""
    place = os_error.__traceback__
    while place is not None:
        # an OSError of writing names no file: the traceback shows where it was raised
        if place.tb_frame.f_code is click.echo.__code__:
            return True
        place = place.tb_next
    return False


def _report_lost_output(os_error: OSError) -> int:
    """Report that stdout cannot be written; not if its reader ended (``| head``)."""
    if isinstance(os_error, BrokenPipeError):
        return SIGNAL_BASE + signal.SIGPIPE
    _complain(f"standard output: {os_error.strerror}")
    return WEIGH_FAILED


def _complain(line: str, *below: str) -> None:
    if sys.stderr is not None:
        from weigh.render.printable import printable_text, weigh_line  # noqa: PLC0415 - start-up time

        with suppress(OSError):
            sys.stderr.write(weigh_line(line))
            sys.stderr.writelines(f"{printable_text(one)}\n" for one in below)


def _complain_of_usage(error: click.ClickException, argv: Sequence[str]) -> None:
    """Report in one line what is wrong; without any argument, print the help."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.ctx.get_help(), err=True)
        return
    context = getattr(error, "ctx", None)
    # the verb by argv, where the error came before click made a context
    path = " ".join(["weigh", *(word for word in argv[:1] if word in VERBS)])
    path = context.command_path if context else path
    message = _usage_trouble(error, argv).rstrip(".")
    hint = "" if f"{path} --help" in message else f"   (see {path} --help)"
    is_short = len(f"weigh: {message}{hint}") <= _WIDTH
    # the hint is left out where the line would not fit
    _complain(f"{message}{hint}" if is_short else message)


def _usage_trouble(error: click.ClickException, argv: Sequence[str]) -> str:
    """Return what is wrong: the word that was typed, then the way out."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.BadOptionUsage):
        takes_none = "does not take" in error.message
        return f"{error.option_name} {'takes no' if takes_none else 'needs a'} value"
    if isinstance(error, click.NoSuchOption) and context is not None:
        return _unknown_option(error.option_name, context, argv)
    if isinstance(error, click.BadParameter) and error.param is not None:
        return _wrong_parameter(error, error.param)
    too_many = _TOO_MANY.fullmatch(error.message)
    if too_many is not None and context is not None:
        usage = " ".join(context.command.collect_usage_pieces(context))
        return f"too many words: {too_many[1]} ({context.command_path} {usage})"
    return error.format_message()


def _wrong_parameter(error: click.BadParameter, parameter: click.Parameter) -> str:
    """Return the option or argument, and what is wrong with its value."""
    name = (parameter.metavar or parameter.human_readable_name).strip("[]")
    if isinstance(error, click.MissingParameter) and error.ctx is not None:
        return f"{name} is missing: {error.ctx.command_path} {name}"
    if isinstance(parameter, click.Option):
        name = parameter.opts[-1]
    return f"{name}: {error.message}"


def _unknown_option(name: str, context: click.Context, argv: Sequence[str]) -> str:
    """Return that there is no such option, the nearest, and where it may belong."""
    known = [
        known_name
        for option in context.command.get_params(context)
        if isinstance(option, click.Option) and not option.hidden
        for known_name in (*option.opts, *option.secondary_opts)
    ]
    longer = [
        known_name
        for known_name in known
        # sbatch's --cpus-per-task is weigh's --cpus
        if known_name.startswith(name) or name.startswith(f"{known_name}-")
    ]
    near = longer or close_names(name, known, n=1, cutoff=_CLOSE)
    hints = [f"did you mean {near[0]}?"] if near else []
    if "--" in argv:
        hints.append("options of the command go after --")
    elif not near and context.info_name in _UNKNOWN_OPTIONS:
        hints.append(_UNKNOWN_OPTIONS[context.info_name].format(name))
    return f"no such option: {name}" + (f" ({' '.join(hints)})" if hints else "")


def _unknown_verb(name: str) -> str:
    near = close_names(name, (*VERBS, *PAGES, "help"), n=1)
    near = [_MEANT[name]] if name in _MEANT else near
    offer = f"did you mean {near[0]}?" if near else "weigh --help lists them"
    if near and near[0] in PAGES:
        offer = f"did you mean weigh help {near[0]}?"
    return f"no such command: {name} ({offer})"
