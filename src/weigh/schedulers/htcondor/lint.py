"""Lint for submit descriptions: what condor_submit accepts, and then holds or ignores.

The behaviour of condor_submit and of jobs was observed on 23.9.6.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from weigh.errors import FormatError
from weigh.model.lint import Facts, Finding
from weigh.schedulers import absent
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.htcondor.script import PROCESS
from weigh.schedulers.htcondor.text import parse_memory
from weigh.schedulers.lint.case import (
    Case,
    Option,
    Read,
    Requested,
    Words,
    nearest,
    open_case,
    problem,
    refused,
)
from weigh.schedulers.lint.limit_rules import limit_rules
from weigh.schedulers.lint.path_rules import in_directives
from weigh.schedulers.script import Line, Script, read_script
from weigh.units import KIB, MIB, format_size

WORDS = Words(tool="condor_submit", array="queue", element=PROCESS)
awaited, default_files = absent.awaited, absent.default_files
_COMMAND = re.compile(r"\s*(\+?[A-Za-z][\w.]*)\s*=(?!=)\s*(.*?)\s*")
_SEVERAL_LINES = re.compile(r"\s*[\w.+]+\s*@=(\w+)\s*")
_QUEUE = re.compile(r"\s*queue\b(?!\s*=)\s*(.*)", re.IGNORECASE)
_CONTROL = re.compile(
    r"\s*(#|$|(if|elif|else|endif|include|use|error|warning)\b)", re.IGNORECASE
)
_MACRO = re.compile(r"\$\((\w+)")
_OF_CLUSTER = re.compile(r"\$\(cluster(?:id)?\)", re.IGNORECASE)
_WORDS = """
    accounting_group allowed_execute_duration allowed_job_duration arguments batch_name
    concurrency_limits concurrency_limits_expr container_image docker_image environment
    error executable getenv hold initialdir input log max_retries notification
    notify_user output priority periodic_remove rank request_cpus request_disk
    request_gpus request_memory require_gpus requirements should_transfer_files
    transfer_executable transfer_input_files transfer_output_files universe
    when_to_transfer_output
"""
_KNOWN = tuple(_WORDS.split())
_AUTOMATIC = ("Cluster", "ClusterId", "Process", "ProcId", "Step", "Item", "Row")
_CHOICES = {
    "universe": "container docker grid java local parallel scheduler vanilla vm",
    "notification": "always complete error never",
    "should_transfer_files": "if_needed no yes",
}
_TYPO = 0.87  # real commands are less similar to each other
_SMALL = 100  # MiB: a smaller number without a unit was meant in GB
_HELD = "the job is put on hold"


def lint(text: str, facts: Facts) -> tuple[Finding, ...]:
    """Return the problems of the description *text*; missing *facts* skip checks."""
    script = read_script(text)
    read, queues = _read(script)
    found = list(read.findings)
    case = open_case(script, read, facts, WORDS)
    case = msgspec.structs.replace(case, start=facts.cwd)
    for rule in (_names, _choices, _sizes, _program, _files, _values, in_directives):
        found += rule(case)
    found += _queues(case, queues)
    limits = limit_rules(case, _requested(case))
    found += (one for one in limits if not one.rule.startswith("default-"))
    return tuple(sorted(found, key=lambda one: one.line or len(text)))


def directives(text: str) -> int:
    """Return the number of submit commands."""
    return len(_read(read_script(text))[0].options)


def requests_gpus(flags: str, env: Mapping[str, str]) -> bool:  # noqa: ARG001
    """Return whether *flags* request GPUs."""
    return re.search(r"\brequest_gpus\s*=\s*[1-9]", flags) is not None


def _read(script: Script) -> tuple[Read, list[Line]]:
    """Read the commands, what is none, and the queue lines."""
    options, queues, findings = list[Option](), list[Line](), list[Finding]()
    until = before = ""
    for line in script.lines:
        text, before = before + line.text, ""
        if until:
            until = until if text.strip() != f"@{until}" else ""
        elif text.endswith("\\"):
            before = text[:-1]
        elif several := _SEVERAL_LINES.fullmatch(text):
            until = several[1]
        elif queue := _QUEUE.fullmatch(text):
            queues.append(Line(line.line, queue[1]))
        elif command := _COMMAND.fullmatch(text):
            name = command[1].lower()
            options.append(Option(name, command[2], line.line, text.strip()))
        elif not _CONTROL.match(text):
            effect = "is no command: refused"
            findings.append(refused(line, "no-command", effect, "write name = value"))
    return Read(tuple(options), tuple(findings)), queues


def _names(case: Case) -> Iterator[Finding]:
    used = {name.lower() for one in case.options for name in _MACRO.findall(one.value)}
    mine = {one.name for one in case.options}
    for option in case.options:
        meant = nearest(option.name, _KNOWN, alike=_TYPO)
        if meant and option.name not in {*_KNOWN, *used} and meant not in mine:
            effect = f"{option.name} is no command: ignored"
            yield problem(option, "unknown-command", effect, f"did you mean {meant}?")
        for name in _MACRO.findall(option.value):
            near = nearest(name, _AUTOMATIC, alike=_TYPO)
            if near.lower() not in {"", name.lower()} and name.lower() not in mine:
                effect = f"$({name}) is empty"
                yield problem(
                    option, "unknown-macro", effect, f"did you mean $({near})?"
                )


def _choices(case: Case) -> Iterator[Finding]:
    for name, words in _CHOICES.items():
        option = case.option(name)
        value = option.value.lower() if option else ""
        if re.fullmatch(r"[a-z_]+", value) and value not in words.split():
            effect = f"{value!r} is no {name}: refused"
            yield refused(option, "option-value", effect, f"one of: {words}")
    mail = case.option("notify_user")
    if mail is not None and case.option("notification") is None:
        effect = "no mail is sent without notification"
        yield problem(mail, "mail-without-type", effect, "notification = Complete")


def _sizes(case: Case) -> Iterator[Finding]:
    if case.option("request_memory") is None:
        effect = "no request_memory: the job gets the size of its executable"
        yield problem(None, "default-memory", effect, "request_memory = 4G")
    for option in case.options:
        value, small = option.value, whole_number(option.value) or 0
        is_size = option.name.startswith("request_")
        if (
            is_size
            and re.match(r"\d[\d.]*\s*[A-Za-z]", value)
            and _size(option) is None
        ):
            fix = f"write {re.sub(r'i?[bB]?( *#.*)?$', '', value)}"
            yield refused(option, "size", f"{value!r} is no size: refused", fix)
        elif is_size and re.fullmatch(r"[A-Za-z]\w*", value):
            effect = f"{value} is an attribute that no job has: never starts"
            yield problem(option, "undefined", effect, "write a number")
        elif option.name == "request_memory" and 0 < small < _SMALL:
            effect = f"is {small} MiB"
            yield problem(option, "memory-in-mebibytes", effect, f"{small}G")
        elif option.name == "request_disk" and 0 < small < MIB:
            effect = f"is {format_size(small * KIB)}"
            yield problem(option, "disk-in-kibibytes", effect, f"{small}G")
        elif option.name.endswith("_duration") and re.match(r"\d+[A-Za-z:]", value):
            effect = f"{value!r} is no number of seconds: refused"
            yield refused(option, "time", effect, "3600 is an hour")


def _program(case: Case) -> Iterator[Finding]:
    option = case.option("executable")
    if option is None:
        if case.option("container_image", "docker_image") is None:
            yield refused(None, "no-executable", "no executable: refused")
        return
    path = case.absolute(option.value, case.start)
    if case.is_missing(path):
        effect = f"{option.value} does not exist: refused"
        yield refused(option, "executable", effect)
    elif case.kind(path) == "directory":
        yield problem(option, "executable", f"is a directory: {_HELD}")
    elif path is not None and case.facts.executable.get(path) is False:
        effect = f"is not executable: {_HELD} where files are shared"
        yield problem(option, "not-executable", effect, f"chmod +x {option.value}")


def _files(case: Case) -> Iterator[Finding]:
    where = case.option("initialdir")
    base = case.absolute(where.value, case.start) if where else case.start
    if where is not None and case.is_missing(base):
        yield refused(where, "chdir", f"{where.value} does not exist: refused")
    for option in case.options:
        folder = option.value.rpartition("/")[0]
        if option.name in {"output", "error", "log"}:
            if re.match(r"~|\$\w|[\"']|.*%[jAaxuN]", option.value):
                effect = "no shell reads this line: the file gets this literal name"
                yield problem(
                    option, "literal-dollar", effect, "$(ClusterId), $(ProcId)"
                )
            elif folder and case.is_missing(case.absolute(folder, base)):
                result = "there will be no log" if option.name == "log" else _HELD
                effect = f"{folder}/ does not exist: {result}"
                yield problem(option, "log-directory", effect, f"mkdir -p {folder}")
        elif option.name in {"input", "transfer_input_files"}:
            for word in map(str.strip, option.value.split(",")):
                if "://" not in word and case.is_missing(case.absolute(word, base)):
                    effect = f"{word} does not exist: {_HELD}"
                    yield problem(option, "missing-path", effect)


def _values(case: Case) -> Iterator[Finding]:
    for option in case.options:
        value = option.value
        if option.name[0] == "+" and re.fullmatch(r"[A-Za-z]\w*", value):
            if value.lower() not in {"true", "false", "undefined"}:
                effect = f"{value} without quotes is an attribute, which has no value"
                yield problem(option, "undefined", effect, f'"{value}"')
        elif option.name == "environment" and re.match(r'[^";]*\s\w+=[^;]*$', value):
            effect = "without quotes it sets one variable, spaces included"
            yield problem(option, "environment", effect, f'"{value}"')


def _queues(case: Case, queues: list[Line]) -> Iterator[Finding]:
    if not queues:
        yield refused(None, "no-queue", "no queue line: refused", "queue 1")
        return
    for option in case.options:
        if option.line > queues[-1].line:
            yield problem(option, "behind-queue", "behind queue: ignored")
    count = whole_number((queues[-1].text.split() or ["1"])[0])
    if count == 0:
        yield problem(queues[-1], "no-jobs", "queue 0 submits nothing")
    for option in filter(None, (case.option("output"), case.option("error"))):
        own = _MACRO.search(_OF_CLUSTER.sub("", option.value))
        if count != 1 and not own and option.value != "/dev/null":
            effect = "all jobs of the cluster write to this file"
            yield problem(option, "log-shared", effect, "add $(ProcId) to its name")


def _size(option: Option | None) -> int | None:
    try:
        return None if option is None else parse_memory(option.value.replace(" ", ""))
    except FormatError:
        return None


def _requested(case: Case) -> Requested:
    keys = ("memory", "cpus", "gpus")
    by = {key: one for key in keys if (one := case.option(f"request_{key}"))}
    return Requested(
        memory=_size(by.get("memory")),
        cpus=whole_number(by["cpus"].value) if "cpus" in by else None,
        gpus=whole_number(by["gpus"].value) if "gpus" in by else None,
        by={**by, "time": Option("time", "", 0, "")},  # a pool has no time limit
    )
