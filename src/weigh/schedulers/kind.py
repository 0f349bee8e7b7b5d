"""One scheduler in the table: its names and traits, and its parts.

A job needs only its text: the parts are imported when they are used.
"""

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from weigh.schedulers.dialect import DialectTraits, DialectVariables, SchedulerText

if TYPE_CHECKING:  # weigh run needs only the text of a scheduler
    from weigh.schedulers.backend import (
        SchedulerAccounting,
        SchedulerCommands,
        SchedulerLint,
        SchedulerReasons,
        SchedulerSite,
        SchedulerUserScripts,
        StepStarter,
    )
    from weigh.schedulers.job_script import ScriptRules
    from weigh.schedulers.protocol import Argv


class SchedulerKind:
    """One scheduler in the table; ``schedulers/NAME`` holds its parts.

    ``title`` is its name in a sentence. ``submits``, ``lists`` and ``accounts`` are the
    commands that show whether the scheduler is installed, ``commands`` are all that
    weigh and its users need, ``starts`` runs a program on a node. ``probe`` is a cheap
    question that shows whether it answers, ``nodes_argv`` lists the names of the
    compute nodes. ``suffixes`` of files mean its job scripts. ``directive`` matches a
    line that looks like a directive, even misspelled. ``job_variable`` is set in its
    jobs. ``in_one_file``: all parts but its text are in ``scheduler.py``.
    """

    name: str
    title: str
    submits: str
    lists: str
    accounts: str
    commands: tuple[str, ...]
    starts: str
    probe: "Argv"
    nodes_argv: "Argv"
    suffixes: tuple[str, ...]
    job_variable: str
    directive: re.Pattern[str]
    variables: DialectVariables
    traits: DialectTraits
    text: SchedulerText
    in_one_file: bool = False

    def _part(self, module: str, name: str) -> Any:  # noqa: ANN401 - one of the parts
        # imported here, not at the top: weigh run in a job would load all parts for
        # nothing
        file = "scheduler" if self.in_one_file else module
        return getattr(import_module(f"weigh.schedulers.{self.name}.{file}"), name)

    @property
    def backend(self) -> "SchedulerCommands":
        """Return its commands."""
        return cast("SchedulerCommands", self._part("commands", "COMMANDS"))

    @property
    def lint(self) -> "SchedulerLint":
        """Return the checks of its scripts."""
        return cast("SchedulerLint", self._part("lint", "LINT"))

    @property
    def accounting(self) -> "SchedulerAccounting":
        """Return its accounting."""
        return cast("SchedulerAccounting", self._part("accounting", "ACCOUNTING"))

    @property
    def user_scripts(self) -> "SchedulerUserScripts":
        """Return how it takes scripts and jobs that weigh did not write."""
        return cast("SchedulerUserScripts", self._part("user_script", "USER_SCRIPTS"))

    @property
    def reasons(self) -> "SchedulerReasons":
        """Return its words on why jobs wait and end."""
        return cast("SchedulerReasons", self._part("reasons", "REASONS"))

    @property
    def site(self) -> "SchedulerSite":
        """Return what it shows of a cluster and its limits."""
        return cast("SchedulerSite", self._part("cluster", "SITE"))

    @property
    def script_rules(self) -> "ScriptRules":
        """Return what the body of its job scripts contains."""
        return cast("ScriptRules", self._part("script", "RULES"))

    @property
    def steps(self) -> "StepStarter | None":
        """Return how its jobs start processes on their nodes; None if unknown."""
        return None
