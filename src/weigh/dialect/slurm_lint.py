"""A Slurm job script: what sbatch would refuse, and what it would accept in silence."""

import re
from collections.abc import Iterator

import msgspec

from weigh.dialect.lint import (
    environment_rules,
    file_rules,
    path_rules,
    placeholder_rules,
    plain_sh_rules,
    signal_rules,
    slurm_paths,
    slurm_spelling,
    slurm_values,
)
from weigh.dialect.lint.case import Case, open_case
from weigh.dialect.lint.element_rules import element_rules
from weigh.dialect.lint.limit_rules import limit_rules
from weigh.dialect.lint.slurm_options import Read, read_options
from weigh.dialect.lint.slurm_requests import (
    absent_findings,
    array_findings,
    asked_of,
    dependency_findings,
    elements_of,
)
from weigh.dialect.script import read_script
from weigh.model.lint import Facts, Finding

_RULES = (
    *file_rules.RULES,
    *slurm_spelling.RULES,
    *slurm_values.RULES,
    *slurm_paths.RULES,
    *placeholder_rules.RULES,
    *plain_sh_rules.RULES,
    *environment_rules.RULES,
    *path_rules.RULES,
    *signal_rules.RULES,
)

_JOB = re.compile(r":([0-9]{1,12})(?=[:,?+_]|$)", re.ASCII)


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:
    """Say what is off in the script *text*, by line; what *facts* lack is not asked."""
    case, read = _case(text, facts)
    found = [*read.findings, *_found(case)]
    return tuple(sorted(found, key=lambda one: one.line or len(text)))


def directives(text: str) -> int:
    """Count the lines that sbatch reads."""
    return len(read_options(read_script(text)).lines)


def awaited(text: str) -> tuple[str, ...]:
    """Name the jobs that the script is to wait for, by the numbers they have."""
    options = read_options(read_script(text)).options
    values = (one.value for one in options if one.name == "dependency")
    return tuple(dict.fromkeys(job for one in values for job in _JOB.findall(one)))


def _case(text: str, facts: Facts) -> tuple[Case, Read]:
    script = read_script(text)
    read = read_options(script)
    case = open_case(
        script, read.options, facts, tool="sbatch", element="SLURM_ARRAY_TASK_ID"
    )
    start = case.absolute(slurm_paths.start(read.options, facts.cwd), facts.cwd)
    return msgspec.structs.replace(case, start=start), read


def _found(case: Case) -> Iterator[Finding]:
    for rule in _RULES:
        yield from rule(case)
    array = case.option("array")
    yield from array_findings(case)
    yield from element_rules(case, array, elements_of(array))
    yield from dependency_findings(case)
    asked = asked_of(case)
    yield from limit_rules(case, asked)
    yield from absent_findings(case, asked)
