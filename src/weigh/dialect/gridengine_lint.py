"""A Grid Engine job script: what qsub refuses, what never runs, what runs otherwise."""

import re
from collections.abc import Iterator

import msgspec

from weigh.dialect import gridengine
from weigh.dialect.lint import (
    environment_rules,
    file_rules,
    gridengine_rules,
    path_rules,
    placeholder_rules,
    plain_sh_rules,
    signal_rules,
)
from weigh.dialect.lint.asked import Asked
from weigh.dialect.lint.case import Case, Option, note, open_case
from weigh.dialect.lint.element_rules import Elements, element_rules
from weigh.dialect.lint.gridengine_options import Read, read_options
from weigh.dialect.lint.gridengine_rules import GPU_RESOURCES, size_of, slots_of
from weigh.dialect.lint.limit_rules import limit_rules
from weigh.dialect.numerals import positive_number, whole_number
from weigh.dialect.script import read_script
from weigh.errors import FormatError
from weigh.model.lint import Facts, Finding

_RULES = (
    *file_rules.RULES,
    *gridengine_rules.RULES,
    *placeholder_rules.RULES,
    *plain_sh_rules.RULES,
    *environment_rules.RULES,
    *path_rules.RULES,
    *signal_rules.RULES,
)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:
    """Say what is off in the script *text*, by line; what *facts* lack is not asked."""
    case, read = _case(text, facts)
    found = [*read.findings, *_found(case)]
    return tuple(sorted(found, key=lambda one: one.line or len(text)))


def directives(text: str) -> int:
    """Count the lines that qsub reads."""
    return len(read_options(read_script(text)).lines)


def awaited(text: str) -> tuple[str, ...]:
    """Name the jobs that the script is to wait for, by the numbers they have."""
    options = read_options(read_script(text)).options
    values = [one.value for one in options if one.name in {"hold_jid", "hold_jid_ad"}]
    jobs = (job for value in values for job in value.split(","))
    return tuple(dict.fromkeys(job for job in jobs if whole_number(job) is not None))


def _case(text: str, facts: Facts) -> tuple[Case, Read]:
    script = read_script(text)
    read = read_options(script)
    case = open_case(script, read.options, facts, tool="qsub", element="SGE_TASK_ID")
    return msgspec.structs.replace(case, start=_start(case)), read


def _start(case: Case) -> str | None:
    chosen = case.option("wd", "cwd")
    if chosen is None:
        return case.facts.home
    if chosen.name == "cwd":
        return case.facts.cwd
    return case.absolute(chosen.value, case.facts.cwd)


def _found(case: Case) -> Iterator[Finding]:
    for rule in _RULES:
        yield from rule(case)
    array = case.option("t")
    yield from element_rules(case, array, _elements(case, array))
    yield from limit_rules(case, _asked(case))
    if case.facts.limits is None and case.options:
        if case.option("l:h_rt") is None:
            effect = "no h_rt: the queue's own limit applies"
            yield note(None, "default-time", effect)
        if case.option("l:h_vmem", "l:mem_free") is None:
            yield note(None, "default-memory", "no h_vmem: the site's default applies")


def _elements(case: Case, option: Option | None) -> Elements | None:
    found = _RANGE.fullmatch(option.value) if option else None
    if not found:
        return None
    first, last = sorted((int(found[1]), int(found[2] or found[1])))
    throttle = case.option("tc")
    most = throttle.value if throttle is not None else ""
    return Elements(
        (range(first, last + 1, int(found[3] or 1) or 1),),
        positive_number(most),
    )


def _asked(case: Case) -> Asked:
    queue, parallel = case.option("q"), case.option("pe")
    size, elements = case.option("l:h_vmem"), _elements(case, case.option("t"))
    gpus = case.option(*(f"l:{name}" for name in GPU_RESOURCES))
    project = case.option("P")
    resources = {o.name[2:]: o for o in case.options if o.name.startswith("l:")}
    by = {
        **resources,
        "queues": queue,
        "memory": size,
        "cpus": parallel,
        "parallel": parallel,
        "gpus": gpus,
        "project": project,
        "time": case.option("l:h_rt"),
        "elements": case.option("t"),
    }
    slots = slots_of(case)
    memory = size_of(size)
    return Asked(
        queues=tuple(q.partition("@")[0] for q in queue.value.split(","))
        if queue
        else (),
        memory=None if memory is None else memory * slots,
        slot_memory=memory,
        cpus=slots if parallel else None,
        gpus=_gpus(case, gpus, slots),
        time=_seconds(by["time"]),
        resources=tuple(resources),
        parallel=parallel.value.split()[0] if parallel else None,
        project=project.value if project else None,
        elements=len(elements) if elements else None,
        last_index=elements.last if elements else None,
        by={name: option for name, option in by.items() if option is not None},
    )


def _gpus(case: Case, option: Option | None, slots: int) -> int | None:
    """Count the GPUs that a job takes: of many cells' each slot takes its own."""
    if option is None:
        return None
    count = whole_number(option.value)
    limits = case.facts.limits
    name = option.name.removeprefix("l:")
    if count is None or limits is None or name not in limits.per_slot:
        return count
    return count * slots


def _seconds(option: Option | None) -> int | None:
    try:
        return None if option is None else gridengine.parse_time(option.value)
    except FormatError:
        return None
