"""The lint of one scheduler's scripts: its reader and rules, and those all share."""

import shlex
from abc import abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from weigh.model.job import JobRequest
from weigh.model.lint import LintFinding, ScriptFacts
from weigh.schedulers.kind import SchedulerLint
from weigh.schedulers.lint import (
    element_rules,
    end_rules,
    environment_rules,
    path_rules,
    request_rules,
)
from weigh.schedulers.lint.case import (
    LintCase,
    ReadOptions,
    Rule,
    SchedulerWords,
    ScriptOption,
    ScriptRequest,
    starts_by_first_line,
)
from weigh.schedulers.script import SHELLS, ScriptText, read_script
from weigh.schedulers.shell import ShellBody, read_body

COMMON: tuple[Rule, ...] = (
    *path_rules.RULES,
    *environment_rules.RULES,
    *element_rules.RULES,
    *request_rules.RULES,
    *end_rules.RULES,
)


class ScriptLint(SchedulerLint):
    """The checks of one scheduler's scripts; ``rules`` are its own."""

    words: SchedulerWords
    prefix: str  # begins a directive
    # the fields of a request, by the options that weigh writes too
    fields: Mapping[str, tuple[str, ...]]
    rules: tuple[Rule, ...]

    @abstractmethod
    def read(self, script: ScriptText, facts: ScriptFacts) -> ReadOptions:
        """Read the options of a script."""

    @abstractmethod
    def start(self, lint_case: LintCase) -> str | None:
        """Find the job's working directory."""

    @abstractmethod
    def requested(self, lint_case: LintCase) -> ScriptRequest:
        """Add up what the directives request, and what the job gets."""

    @abstractmethod
    def typed(self, flag: str, value: str) -> str:
        """Return a flag that is passed on as it stands in a script."""

    def flag_of(self, option: ScriptOption) -> tuple[str, str]:
        """Return (flag, value) of an option."""
        return option.name, option.value

    def lint(self, text: str, facts: ScriptFacts) -> tuple[LintFinding, ...]:
        """Return the findings of a script by line; missing *facts* skip checks."""
        case = self.case(text, facts)
        found = list(self.read(case.script, facts).findings)
        for rule in (*COMMON, *self.rules):
            found.extend(rule(case))
        # a line with a placeholder is wrong in any case: what else is wrong with its
        # value does not matter
        templates = {one.line for one in found if one.rule == "placeholder"} - {None}
        found = [
            one
            for one in found
            if one.rule == "placeholder"
            or one.line not in templates
            or (one.accepted and one.rule != "literal-dollar")
        ]
        # findings without a line come last: a script has fewer lines than letters
        return tuple(sorted(found, key=lambda one: one.line or len(text)))

    def case(self, text: str, facts: ScriptFacts) -> LintCase:
        """Parse a script."""
        script = read_script(text)
        plain = "\n".join(line.text for line in script.lines)
        case = LintCase(
            words=self.words,
            script=script,
            options=self.read(script, facts).options,
            body=read_body(plain) if script.is_shell else ShellBody(),
            facts=facts,
        )
        shell = tuple(case.value("S").rpartition(":")[2].split())  # of qsub alone
        is_shell = not shell or shell[0].rpartition("/")[2] in SHELLS
        # of csh or Python, unless the queue starts the script by itself
        if not is_shell and not starts_by_first_line(facts):
            script = msgspec.structs.replace(script, interpreter=shell)
            case = msgspec.structs.replace(case, script=script, body=ShellBody())
        case = msgspec.structs.replace(case, start=self.start(case))
        return msgspec.structs.replace(case, requested=self.requested(case))

    def script_as_started(self, text: str, facts: ScriptFacts) -> ScriptText:
        """Return the script, with the interpreter that an option may name."""
        return self.case(text, facts).script

    def directives(self, text: str) -> tuple[str, ...]:
        """Return the directive lines that the scheduler reads."""
        return tuple(line.text for line in self.options(text).lines)

    def read_flags(self, job_request: JobRequest) -> JobRequest:
        """Return the request with what its passed-on flags ask for.

        A flag that weigh writes itself is left out of those that are passed on: the
        next round may request more, and must not have the old figure behind it.
        """
        found: dict[str, object] = {}
        others: list[tuple[str, str]] = []
        for flag, value in job_request.extra:
            directive = f"{self.prefix} {self.typed(flag, value)}"
            case = self.case(directive, ScriptFacts())
            for option in case.options:
                alone = msgspec.structs.replace(case, options=(option,))
                asked = self.requested(alone).as_job_request(None)
                fields = self.fields.get(option.name, ())
                known = {f: getattr(asked, f) for f in fields if getattr(asked, f)}
                # of a list with other resources weigh would write only some
                if not known or ("gpus" in known and "," in option.value):
                    others.append(self.flag_of(option))
                    continue
                if "virtual_memory" in known:
                    # of a slot: there is one for each CPU
                    known["virtual_memory"] *= max(1, job_request.cpus)
                found |= known
            # what is no option is for the scheduler to refuse
            others += [] if case.options else [(flag, value)]
        return msgspec.structs.replace(job_request, **found, extra=tuple(others))

    def misread(self, flags: Sequence[str]) -> str:
        """Return why the scheduler would refuse one of *flags*, in one line."""
        read = self.options(f"{self.prefix} {shlex.join(flags)}" if flags else "")
        first = next((one for one in read.findings if not one.accepted), None)
        if first is None:
            return ""
        if first.rule == "stray-word":
            word, tool = first.effect.partition(" is ")[0], self.words.tool
            return f"{word} is no flag of {tool}; arguments of the script follow --"
        return first.effect + (f" ({first.cure})" if first.cure else "")

    def options(self, text: str) -> ReadOptions:
        """Return the options that the scheduler reads in a script."""
        return self.read(read_script(text), ScriptFacts())
