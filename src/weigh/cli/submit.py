"""``weigh submit``: its options, and printing the job id and the next command."""

import os
import re
import shlex
from itertools import islice, pairwise
from typing import Any

import click

from weigh.cli import options
from weigh.cli.options import SIZE_TEXT, TIME_TEXT, notify
from weigh.errors import CommandNotFoundError, UsageError, why_nothing_is_at
from weigh.flow.here import here_now
from weigh.flow.site.schedulers import NAMES
from weigh.flow.submit.job_request import HealOptions, SubmitOptions
from weigh.flow.submit.submit import submit_plan
from weigh.model.job import JobSetup
from weigh.render.submit_lines import (
    SubmitAnswer,
    command_lines,
    dry_run_lines,
    submission_json,
    submitted_lines,
)
from weigh.schedulers import KINDS

_COUNT = options.BoundedCount()
# keys of click's meta: words that click must not see
_COMMAND = "weigh.command"
_EXTRA = "weigh.extra"
_SCRIPT = "weigh.script"
# options of weigh with a script of the user's own: all others are the scheduler's
_OF_SCRIPTS = frozenset(
    {"--measure", "--again", "--checks", "--no-checks", "--dry-run", "--json", "--on"}
    | {"--notify", "--help", "--help-all", "--heal", "--then"}
)
_VALUED = {"--on", "--notify", "--then"}
_SHORT_FLAG = re.compile("-[A-Za-z]")
# options whose value follows = or is left out, and values that are no word of their own
_LIMIT_BEHIND = {
    "--heal": re.compile("(?:memory|time|rounds|hours)="),
    "--interactive": re.compile("end-idle="),
}
_SETUP_KIND = re.compile("(module|conda|venv|container):(.*)")


class SubmitCommand(options.PlainHelp):
    """Hides the command after ``--`` and the scheduler's own flags from click."""

    # without limits
    may_be_empty = frozenset({"heal", "interactive"})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove the command and the scheduler's flags, then parse."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[at + 1 :])
            args = args[:at]
        for word, behind in pairwise(args):
            limit = _LIMIT_BEHIND.get(word)
            if limit is not None and limit.match(behind):
                raise click.UsageError(f"{word} {behind}: write {word}={behind}", ctx)
        # without its limits the next word is no value of it
        args = [f"{word}=" if word in _LIMIT_BEHIND else word for word in args]
        place = self._script_at(args)
        # "weigh submit python3 train.py": the file is an argument of a command
        if place and args[0][:1] != "-":
            line = " ".join(args)
            raise click.UsageError(
                f"put -- before the command: weigh submit -- {line}", ctx
            )
        if place is not None:
            # with a script, flags belong to the scheduler unless they are known to be
            # weigh's
            own, flags = _split_script_arguments([*args[:place], *args[place + 1 :]])
            ctx.meta[_SCRIPT] = args[place], flags
            return super().parse_args(ctx, own)
        extra, own = self._split_scheduler_flags(ctx, args)
        ctx.meta[_EXTRA] = tuple(extra)
        return super().parse_args(ctx, own)

    def _split_scheduler_flags(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the scheduler's flags with their values, and the words of weigh.

        Raises:
            BadOptionUsage: a value is empty.
        """
        valued = self._options_with_value()
        known = {name for one in self.params for name in one.opts + one.secondary_opts}
        known |= set(self.context_settings["help_option_names"])
        extra, own = list[tuple[str, str]](), list[str]()
        words = iter(args)
        for word in words:
            name, equals, value = word.partition("=")
            if word in valued:
                own += [word, *islice(words, 1)]
            elif name in known:  # --time=2h is weigh's, as --time 2h
                own.append(word)
            elif word.startswith("--") and equals:
                if not value:  # of a variable that is not set
                    raise click.BadOptionUsage(name, "it needs a value", ctx)
                extra.append((name.removeprefix("--"), value))
            elif word.startswith("-") and _is_passed_on(word):
                # -l h_vmem=2G: the value is the next word
                value = next(words, "") if _takes_value(word) else ""
                extra.append((word.lstrip("-"), value))
            else:
                own.append(word)
        return extra, own

    def _options_with_value(self) -> set[str]:
        return {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }

    def _script_at(self, arguments: list[str]) -> int | None:
        """Return where *arguments* name a file: a plan is a directory."""
        valued = self._options_with_value()
        for place, word in enumerate(arguments):
            # a file behind an option with a value is that value
            before = arguments[place - 1] if place else ""
            if word[:1] != "-" and before not in valued and os.path.isfile(word):
                return place
        return None


def _is_passed_on(flag: str) -> bool:
    """Return whether *flag* is for the scheduler; its lint refuses unknown letters."""
    is_short = _SHORT_FLAG.fullmatch(flag) is not None
    return is_short or _is_read(flag) or _is_read(flag, "1")


def _takes_value(flag: str) -> bool:
    """Return whether the word behind a scheduler's *flag* is its value.

    A word that is read alone has none, as --exclusive; a letter that has a value for
    another scheduler has one: -v is a variable of qsub, and Slurm's word for verbose.
    """
    if _SHORT_FLAG.fullmatch(flag):
        return _is_read(flag, "1") or not _is_read(flag)
    return not _is_read(flag)


def _is_read(*words: str) -> bool:
    """Return whether a scheduler reads these words as whole flags."""
    return any(
        not kind.user_scripts.is_misread(words)
        for kind in KINDS.values()
        if kind.traits.takes_scripts
    )


def _split_script_arguments(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Cut the words with a script into weigh's own, and the scheduler's flags."""
    own, flags = [], []
    words = iter(arguments)
    for word in words:
        if word.partition("=")[0] not in _OF_SCRIPTS:
            flags.append(word)
            continue
        own.append(word)
        if word in _VALUED:
            # a missing value is left to click's message
            own += [value for value in (next(words, None),) if value is not None]
    return own, tuple(flags)


def _typed_job_setup(texts: tuple[str, ...], *, checks: bool) -> JobSetup:
    """Read the texts of ``--setup``; make paths absolute."""
    named: dict[str, list[str]] = {}
    for text in texts:
        of_kind = _SETUP_KIND.fullmatch(text)
        kind, value = of_kind.groups() if of_kind else ("line", text)
        if not value.strip():
            form = "module" if kind == "line" else kind
            raise UsageError(f"--setup {text!r} names nothing (write {form}:NAME)")
        # made absolute here, where a relative path has its meaning; docker://IMAGE is
        # no path
        if kind in ("venv", "container") and "://" not in value:
            value = os.path.abspath(value)
        if kind == "container" and "://" not in value:
            why_not = why_nothing_is_at(value)
            if why_not is not None:
                raise UsageError(f"--setup {text}: {why_not} (or docker://IMAGE)")
        named.setdefault(kind, []).append(value)
    for kind in ("conda", "venv", "container"):
        if len(named.get(kind, ())) > 1:
            raise UsageError(f"--setup {kind}: a job has one, not {len(named[kind])}")
    return JobSetup(
        modules=tuple(named.get("module", ())),
        conda=next(iter(named.get("conda", ())), None),
        venv=next(iter(named.get("venv", ())), None),
        lines=tuple(named.get("line", ())),
        container=next(iter(named.get("container", ())), None),
        checks=checks,
    )


@click.command(cls=SubmitCommand, context_settings=options.SETTINGS)
@click.argument(
    "plan",
    required=False,
    metavar="[PLAN | SCRIPT | -- COMMAND]",
    shell_complete=options.files,
)
@click.option(
    "--on",
    "scheduler",
    type=click.Choice(NAMES),
    help="Scheduler to submit to.  [default: one that has a cluster, else local]",
)
@click.option(
    "--memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    help="Memory per element.  [default: as planned]",
)
@click.option(
    "--time",
    type=TIME_TEXT,
    metavar="TIME",
    help="Time limit: 90m, 1-12:00:00.  [default: as planned]",
)
@click.option(
    "--cpus", type=_COUNT, metavar="N", help="CPUs per element.  [default: as planned]"
)
@click.option(
    "--gpus",
    metavar="TYPE:N",
    help="GPUs per element: 1, v100, v100:2.  [default: as planned]",
)
@click.option(
    "--nodes",
    type=_COUNT,
    metavar="N",
    help="Nodes; the request is per node.  [default: 1, or as planned]",
)
@options.queue(
    "Partition or queue; auto: all that take the job.  [default: the scheduler's]"
)
@click.option(
    "-A", "--account", metavar="NAME", help="The account or project.  [default: yours]"
)
@click.option(
    "--notify",
    multiple=True,
    metavar="ADDRESS|CMD|URL",
    help="When the job ends, mail ADDRESS, run CMD (a JSON line on its stdin), or post "
    "that to URL; repeatable.",
)
@click.option(
    "--after",
    multiple=True,
    metavar="JOB",
    help="Start after JOB has succeeded; repeatable.",
)
@click.option(
    "--then",
    metavar="COMMAND",
    help="Run COMMAND once, as a job of 1 CPU, when all tasks have succeeded.",
)
@click.option(
    "--jobs",  # without -j, which is a flag of qsub
    "throttle",
    type=_COUNT,
    metavar="N",
    help="Elements at once.  [default: 10, on this machine as many as it holds]",
)
@click.option(
    "--interactive",
    metavar="[=end-idle=TIME]",
    help="Open a shell on a node, or run COMMAND there; =end-idle=30m ends a shell "
    "that waits so long for input.",
)
@click.option("--name", help="Name of the job.  [default: the plan's name]")
@click.option(
    "--setup",
    multiple=True,
    metavar="[KIND:]WHAT",
    help="Environment of the tasks: module:NAME, conda:ENV, venv:FOLDER, "
    "container:IMAGE (by apptainer), or a line of bash; repeatable.",
)
@click.option(
    "--stage-in",
    multiple=True,
    metavar="SRC[:DEST]",
    help="Copy SRC to the node's local disk, once per node; repeatable.",
)
@click.option(
    "--stage-out", metavar="DIR", help="Directory for results.  [default: this one]"
)
@click.option(
    "--requeue",
    is_flag=True,
    help="Requeue at the time limit while the job still makes progress.",
)
@click.option(
    "--heal",
    metavar="[=LIMITS]",
    help="Resume what memory, time or a node ended, by a small job that follows: "
    "--heal=memory=64G,time=2d,rounds=6,hours=500 limits it, --heal=no overrides the "
    "setting.  [default: no; of --heal: 4 rounds]",
)
@click.option(
    "--checks/--no-checks",
    hidden=True,  # messages name it where a person needs it
    default=True,
)
@click.option(
    "--again", is_flag=True, help="Run all of a plan again, although it was submitted."
)
@click.option(
    "--measure", is_flag=True, help="Of a SCRIPT: run it under weigh in the job."
)
@options.dry_run("Print the script; submit nothing.")
@options.as_json()
@click.pass_context
def submit(ctx: click.Context, /, *, as_json: bool, **words: Any) -> int:  # noqa: ANN401
    """Submit a plan, a job script, or a command, to a scheduler or this machine.

    The job script is plain bash, in the plan's directory, for you to read and edit.
    The scheduler's own flags are passed on: --qos high, --exclusive, -l h_vmem=2G.

    A SCRIPT of your own, with #SBATCH or #$ lines, is submitted as it is, with the
    flags that sbatch or qsub knows; its arguments follow --.

    \b
    weigh submit plan/ppo-sweep
    weigh submit plan/ppo-sweep --queue gpu --time 6h --notify me@uni.edu
    weigh submit --memory 8G --gpus v100 -- python3 train.py --seed 1
    weigh submit plan/ppo-sweep --dry-run
    weigh submit job.sh --array=1-20 --measure
    """  # noqa: D301 - click reads \b as: keep these lines
    command = ctx.meta.get(_COMMAND, ())
    if command and words["plan"]:
        raise UsageError("give a plan or a command, not both")
    setup = _typed_job_setup(words.pop("setup"), checks=words.pop("checks"))
    interactive = words.pop("interactive")
    measure = words.pop("measure")
    if _SCRIPT in ctx.meta:
        from weigh.flow.submit.own_script import ScriptOptions, submit_own  # noqa: PLC0415 - a plan needs none of it

        script, flags = ctx.meta[_SCRIPT]
        if words["notify"]:
            raise UsageError(
                "--notify: weigh does not change your script (in it: trap COMMAND EXIT)"
            )
        if words["then"] is not None:
            raise UsageError(
                "--then is for a plan or a command: submit the script, then weigh "
                "submit --after JOB -- COMMAND"
            )
        shared = {name: words[name] for name in HealOptions.__struct_fields__}
        if shared["heal"] is None:
            shared["heal"] = "no"  # the setting is for plans
        own = ScriptOptions(
            script=script,
            flags=flags,
            arguments=command,
            measure=measure,
            checks=setup.checks,
            **shared,
        )
        answer = submit_own(here_now(notify), own)
        return _print_submit_answer(answer, as_json=as_json)
    if measure:
        raise UsageError("--measure is for a script: weigh measures a plan's tasks")
    chosen = SubmitOptions(
        **words, command=command, setup=setup, extra=ctx.meta.get(_EXTRA, ())
    )
    if interactive is not None:
        return _open_session(chosen, interactive)
    answer = submit_plan(here_now(notify), chosen)
    return _print_submit_answer(answer, as_json=as_json)


def _print_submit_answer(answer: SubmitAnswer, *, as_json: bool) -> int:
    """Print what was submitted, or the script after a dry run."""
    for note in answer.notes:
        notify(note)
    for line in command_lines(answer):
        options.warn_on_stderr(line)
    if as_json:
        click.echo(submission_json(answer))
    elif answer.job is None:
        click.echo("\n".join(dry_run_lines(answer)))
    else:
        click.echo("\n".join(submitted_lines(answer)))
    return 0


def _open_session(chosen: SubmitOptions, limit: str) -> int:
    """Replace this process by the command that opens a shell on a node, or print it."""
    from weigh.flow.submit.interactive import (  # noqa: PLC0415 - start-up time
        session_of,
    )

    session = session_of(here_now(notify), chosen, limit)
    line = shlex.join(session.argv)
    if chosen.dry_run:
        click.echo(line)
        return 0
    options.warn_on_stderr(line)
    try:
        os.execvp(session.argv[0], session.argv)  # noqa: S606 - no shell is meant
    except FileNotFoundError as error:
        raise CommandNotFoundError(f"command not found: {session.argv[0]}") from error
