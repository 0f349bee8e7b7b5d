"""``weigh plan``: its options, and printing the plan."""

import os
import sys

import click

from weigh.cli import options
from weigh.cli.options import SIZE_TEXT, TIME_TEXT
from weigh.errors import SIGNAL_BASE, SUCCESS, USAGE
from weigh.flow.here import here_now
from weigh.flow.plan.plan import PlanAnswer, plan_task_file
from weigh.flow.run.run_measured import InterruptedRun
from weigh.planning.options import ALL, PlanOptions, node_size
from weigh.render.plan_lines import chosen_gpu_line, plan_json, plan_screen_lines
from weigh.render.printable import printable_text
from weigh.render.request_lines import folded_note_lines
from weigh.sweep.quoting import shell_line

_COUNT = options.BoundedCount()


@click.command(cls=options.PlainHelp, context_settings=options.SETTINGS)
@click.argument("task_file", metavar="TASKS", shell_complete=options.files)
@click.option(
    "--gpu",
    "gpus",
    metavar="NAME[,NAME...]",
    help="GPU to plan for: V100-32GB, p100=11.9GiB, A100-80GB:1g.10gb. Several names "
    "are compared; auto: the cluster's kinds, by when the tasks would be done.  "
    "[default: the GPU of the records]",
)
@click.option(
    "--gpu-memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    help="GPU memory a task uses.  [default: of the records]",
)
@click.option(
    "--memory",
    type=SIZE_TEXT,
    metavar="SIZE",
    help="Host memory a task uses.  [default: of the records]",
)
@click.option(
    "--cpus",
    type=_COUNT,
    metavar="N",
    help="CPUs a task uses.  [default: of the records, else 1]",
)
@click.option(
    "--time",
    type=TIME_TEXT,
    metavar="TIME",
    help="Wall time of a task: 90m, 1-12:00:00.  [default: of the records]",
)
@click.option(
    "--hours",
    metavar="HOURS",
    help="Time limit of an element, as 4 or 90m. All elements pull their tasks from "
    "one queue; 0: each has a wave of its own.  [default: a queue if tasks are short "
    "and many]",
)
@click.option(
    "--from",
    "records",
    default=ALL,
    metavar="NAME[,NAME...]",
    help="Labels or ids of the records that supply the figures not given here.  "
    "[default: all records of matching commands]",
)
@click.option(
    "--per-gpu",
    type=_COUNT,
    metavar="N",
    help="At most N tasks per GPU.  [default: as many as fit]",
)
@click.option(
    "--gpus",
    "gpus_per_task",
    type=_COUNT,
    metavar="N",
    help="Whole GPUs per task.  [default: as many as measured, if several]",
)
@click.option(
    "--nodes",
    type=_COUNT,
    metavar="N",
    help="Nodes per task; the other options then count per node.  [default: 1]",
)
@click.option(
    "--node",
    metavar="[SIZE,]CPUS[,GPUS]",
    help="Pack tasks onto nodes of this size, such as 128G,16,4; with GPUs each "
    "element gets one and its share of the node.  [default: only GPUs are packed]",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Run 1, 2, 3... tasks together here and choose the number with the highest "
    "throughput. Use short tasks.",
)
@click.option("--name", help="Write the plan to plan/NAME.  [default: the file's name]")
@click.option("--replace", is_flag=True, help="Replace the plan of that name.")
@options.dry_run("Write nothing.")
@options.as_json()
def plan(*, as_json: bool, **words: str | int | bool | None) -> int:
    """Plan how many tasks share a GPU or a node, and write one task file per element.

    TASKS holds one shell line per task; `-` is standard input. Figures that you do not
    give are taken from records of similar commands. State what
    tasks use: weigh adds the headroom (20 %, or WEIGH_HEADROOM).

    \b
    weigh plan tasks.txt --gpu V100-32GB --gpu-memory 2.3GiB --time 90m
    weigh plan tasks.txt --gpu V100-16GB,V100-32GB,A100-40GB
    weigh plan tasks.txt --from ppo,dqn --node 128GiB,32
    """  # noqa: D301 - click reads \b as: keep these lines
    # click's names are those of the struct's fields
    node = node_size(str(words.pop("node") or ""))
    chosen = PlanOptions(**words, **node)  # type: ignore[arg-type]
    try:
        answer = plan_task_file(here_now(options.warn_on_stderr), chosen)
    except InterruptedRun as interrupted:  # click would take it for ^C
        return SIGNAL_BASE + interrupted.number
    for warning in answer.warnings:
        options.warn_on_stderr(warning)
    if as_json:
        click.echo(plan_json(answer.plans, answer.forecasts))
        return _exit_code_of_plan(answer)
    for line in plan_screen_lines(answer.plans, answer.forecasts):
        click.echo(line)
    sys.stdout.flush()  # the plan before the notes, where both reach one terminal
    for line in folded_note_lines(answer.notes, indent="  "):
        click.echo(line, err=True)
    for line in _next_lines_of_plan(answer, chosen):
        click.echo(line)
    return _exit_code_of_plan(answer)


def _exit_code_of_plan(answer: PlanAnswer) -> int:
    """Return USAGE where no kind of GPU has a plan: what follows would have none."""
    return USAGE if answer.forecasts and answer.directory is None else SUCCESS


def _next_lines_of_plan(answer: PlanAnswer, chosen: PlanOptions) -> tuple[str, ...]:
    """Return the lines that name the plan's directory and the next command."""
    directory, to_measure = answer.directory, answer.to_measure
    lines = tuple(f"  {printable_text(line)}" for line in to_measure)
    if directory is None and answer.forecasts:
        why = "the time is known on no GPU: measure it as above, or --time"
        return (*lines, f"  no plan written: {why}")
    if directory is None:
        return ("  next: the same command with --gpu and one of these",)
    if answer.forecasts:
        chosen_gpu = chosen_gpu_line(answer.plans[0], answer.forecasts[0], directory)
        lines = (*lines, f"  {printable_text(chosen_gpu)}")
    if chosen.dry_run:
        return (*lines, f"  would be written to {printable_text(directory)}{os.sep}")
    words = (*answer.submit_words, *(["--again"] if answer.replaces_submitted else []))
    submit = shell_line(("weigh", "submit", directory, *words))
    return (*lines, f"  next: {submit}")
