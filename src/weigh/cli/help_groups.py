"""Help texts of verbs with many options: the ten used first, the rest by topic.

``weigh submit --help`` lists the options that people use first, and ``weigh submit
--help-all`` all of them in groups. A test holds that each option is in one group.
"""

import click

# key of click's meta: --help-all was typed
HELP_ALL = "weigh.help-all"
# verb -> the options that its --help lists, without their dashes
FIRST_OPTIONS = {
    "submit": "memory time cpus gpus queue account heal after jobs dry-run",
    "exec": "jobs per-gpu memory retries timeout output resume-failed dry-run",
    "plan": "gpu gpu-memory memory cpus time hours node per-gpu name replace",
}
# verb -> topic -> options, as --help-all lists them
OPTION_GROUPS = {
    "submit": {
        "Request": ("memory time cpus gpus nodes queue account"),
        "Order": "after then jobs interactive name on",
        "Environment": "setup measure",
        "Files": "stage-in stage-out",
        "Healing": "heal requeue",
        "Output": "notify json dry-run again",
    },
    "exec": {
        "Resources": "jobs per-gpu gpus memory",
        "Failures": "retries halt timeout end-stuck stop",
        "Continue": "resume resume-failed checkpoint-signal",
        "Output": "joblog output ungroup progress json quiet dry-run",
    },
    "plan": {
        "Needs of a task": "gpu-memory memory cpus time from hours",
        "Nodes": ("gpu per-gpu gpus nodes node probe"),
        "Output": "name replace dry-run json",
    },
}


def write_option_groups(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the options of *command* as --help or, if that was typed, --help-all."""
    verb = str(command.name)
    options = options_by_name(command, context)
    if context.meta.get(HELP_ALL):
        groups = {title: names.split() for title, names in OPTION_GROUPS[verb].items()}
    else:
        groups = {"Options used first": FIRST_OPTIONS[verb].split()}
    groups["Help"] = ["help", "help-all"]
    for title, names in groups.items():
        rows = [options[name].get_help_record(context) for name in names]
        with formatter.section(title):
            formatter.write_dl([row for row in rows if row is not None])


def options_by_name(
    command: click.Command, context: click.Context
) -> dict[str, click.Option]:
    """Return the options that a help text lists, by their long name without dashes."""
    return {
        next(name for name in option.opts if name[:2] == "--")[2:]: option
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not option.hidden
    }
