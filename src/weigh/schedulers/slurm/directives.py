"""What the directives of a Slurm script request, and what its job gets."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh.errors import FormatError
from weigh.model.lint import LintFinding
from weigh.schedulers.lint.case import (
    ArrayElements,
    LintCase,
    ReadOptions,
    ScriptOption,
    ScriptRequest,
    most_similar_word,
    refused,
)
from weigh.schedulers.lint.values import (
    parsed,
    read_directive_lines,
    read_word_lists,
    split_words,
    stray,
)
from weigh.schedulers.script import ScriptLine, ScriptText
from weigh.schedulers.slurm import TEXT
from weigh.schedulers.words import index_range, positive_number, whole_number

PREFIX = "#SBATCH"

# ---- how sbatch reads directives: short options with a value, and flags
LISTS = read_word_lists("weigh.schedulers.slurm")
_SHORT, _SHORT_FLAGS = (
    dict(pair.split("=") for pair in LISTS[name])
    for name in ("short options with a value", "short options")
)
_WITH_VALUE = {*_SHORT.values(), *LISTS["options with a value"]}
_MAYBE_VALUE = LISTS["options with or without a value"]
_KNOWN = sorted(
    {*_WITH_VALUE, *_SHORT_FLAGS.values(), *LISTS["options"], *_MAYBE_VALUE}
)
# known to no sbatch without its plugin (shifter, pyxis, uenv): not reported, since the
# site may have it
_OF_PLUGINS = LISTS["options of plugins"]
_ALIASES = {"tasks-per-node": "ntasks-per-node", "cluster": "clusters"}
_RENAMED = {"workdir": "chdir", "gpus-per-job": "gpus", "walltime": "time"}
_HETJOB = ("hetjob", "packjob")
# sbatch(1), INPUT ENVIRONMENT VARIABLES: most are called as their options
_VARIABLES = {
    name: f"SBATCH_{other or name.upper().replace('-', '_')}"
    for pair in LISTS["options that variables set"]
    for name, _, other in (pair.partition("="),)
}
_AGAINST = {"requeue": "SBATCH_NO_REQUEUE"}  # a directive


def directive_lines(script: ScriptText) -> tuple[ScriptLine, ...]:
    """Return the lines that sbatch reads: those above the first command."""
    end = script.first_command or len(script.lines) + 1
    return tuple(one for one in script.lines[: end - 1] if one.text.startswith(PREFIX))


LOG_PATTERN = re.compile(r"%(\d*)([A-Za-z%])")


def log_path_with(pattern: str, known: Mapping[str, str | None]) -> str:
    """Return a log's path with what is *known* by letter; the other patterns stay."""
    return LOG_PATTERN.sub(lambda one: known.get(one[2]) or one[0], pattern)


def read_options(
    script: ScriptText, variables: Mapping[str, str] | None = None
) -> ReadOptions:
    """Read the directives of the first component of a job.

    The user's defaults in SBATCH_ *variables* come first, without a line number, where
    no directive sets the same.
    """
    lines = directive_lines(script)
    first = itertools.takewhile(
        lambda line: line.text.removeprefix(PREFIX).strip() not in _HETJOB, lines
    )
    read = read_directive_lines([*first], _of_line, lines)
    taken = variables_replacing(read.options)
    defaults = [
        ScriptOption(name, value, 0, f"{variable}={value}")
        for name, variable in _VARIABLES.items()
        if variable not in taken and (value := (variables or {}).get(variable))
    ]
    return msgspec.structs.replace(read, options=(*defaults, *read.options))


def variables_replacing(options: Sequence[ScriptOption]) -> frozenset[str]:
    """Return the variables that sbatch would prefer to directives with *options*."""
    names, memory = {one.name for one in options}, {*MEMORY_OPTIONS.split()}
    # of two kinds of memory sbatch takes neither
    names |= memory if names & memory else set()
    found = {**_VARIABLES, **_AGAINST}
    return frozenset(found[name] for name in names & found.keys())


def _of_line(script_line: ScriptLine) -> Iterator[ScriptOption | LintFinding]:
    rest = script_line.text.removeprefix(PREFIX)
    words, is_open = split_words(rest, escape="\\")
    if is_open:
        yield refused(script_line, "stray-word", "a quote is not closed: refused")
        return
    begun = False
    while words:
        word = words.pop(0)
        if not word.startswith("-") or word == "-":
            yield stray(script_line, PREFIX, word, begun=begun)
            return
        begun, found = True, _named(script_line, word)
        if isinstance(found, LintFinding):
            yield found
            continue
        # None: the value is the next word, as in --mem 4G
        name, value = found
        if value is None and not words:
            yield refused(
                script_line, "option-value", f"{word} without a value: refused"
            )
            return
        if value is None:
            value = words.pop(0)
            word += f" {value}"
        yield ScriptOption(name, value, script_line.line, word)


def _named(script_line: ScriptLine, word: str) -> tuple[str, str | None] | LintFinding:
    """Return an option's name and value; None is the next word."""
    return (
        _long_option(script_line, word)
        if word[1] == "-"
        else _short_option(script_line, word)
    )


def _long_option(
    script_line: ScriptLine, word: str
) -> tuple[str, str | None] | LintFinding:
    written, equals, value = word[2:].partition("=")
    name = _completed(ScriptLine(script_line.line, word), written)
    if isinstance(name, LintFinding):
        return name
    if name in _WITH_VALUE:
        return name, value if equals else None
    if equals and name in _KNOWN and name not in _MAYBE_VALUE:
        return refused(script_line, "option-value", f"--{name} takes no value: refused")
    return name, value


def _short_option(
    script_line: ScriptLine, word: str
) -> tuple[str, str | None] | LintFinding:
    letter, value = word[1], word[2:]
    if letter in _SHORT_FLAGS:
        return _SHORT_FLAGS[letter], ""
    if letter not in _SHORT:
        fix = f"{PREFIX} -{word}" if len(value) > 1 else ""
        effect = f"sbatch has no option -{letter}: refused"
        return refused(script_line, "unknown-option", effect, fix)
    if word[1:].partition("=")[0] in _KNOWN:
        effect = f"one dash: read as -{letter} with {value!r}"
        return refused(script_line, "unknown-option", effect, f"{PREFIX} -{word}")
    return _SHORT[letter], value or None


def _completed(spot: ScriptLine, written: str) -> str | LintFinding:
    """Complete an abbreviated option, as getopt does."""
    # --mem-per is complete enough if only one option begins so
    begun = [name for name in _KNOWN if name.startswith(written)]
    if written in begun or len(begun) == 1:
        name = written if written in begun else begun[0]
        return _ALIASES.get(name, name)
    if begun:
        meant = "gpus" if written == "gpu" else most_similar_word(written, begun)
        effect = f"--{written} is ambiguous: refused"
        return refused(spot, "unknown-option", effect, f"did you mean --{meant}?")
    if written in _OF_PLUGINS or written.startswith("container-"):
        return written
    meant = _RENAMED.get(written) or most_similar_word(written, _KNOWN)
    effect = f"sbatch has no option --{written}: refused"
    fix = f"did you mean --{meant}?" if meant else ""
    return refused(spot, "unknown-option", effect, fix)


# the look-ahead prevents a number from matching as a type
_TYPE = r"(?P<type>(?=[^:=(]*[^:=(0-9])[^:=(]+)"
_COUNT = r"(?P<count>[0-9]{1,9})"
GPU_RESOURCE = re.compile(rf"(?:gres[/:])?gpu(?::{_TYPE})?(?::{_COUNT})?")
TYPED_COUNT = re.compile(rf"(?:{_TYPE}:)?{_COUNT}|(?P<only>[A-Za-z][\w-]*)")
MEMORY_OPTIONS = "mem mem-per-cpu mem-per-gpu"


def array_elements(value: str) -> ArrayElements | None:
    """Read ``0-9,20-30:2%5``; None if sbatch would reject it."""
    text, _, throttle = value.partition("%")
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]  # read as without them
    parts = text.removesuffix(",").split(",")
    ranges = tuple(filter(None, map(index_range, parts)))
    if len(ranges) < len(parts):
        return None
    return ArrayElements(ranges, positive_number(throttle))


def elements_of(option: ScriptOption | None) -> ArrayElements | None:
    """Read an array; None if sbatch would reject it or it is not an array."""
    return array_elements(option.value) if option is not None and option.value else None


def _has_no_end(option: ScriptOption | None) -> bool:
    try:
        return option is not None and TEXT.parse_time(option.value) is None
    except FormatError:
        return False


_SET_CPUS = ("cpus-per-task", "ntasks", "ntasks-per-node")
_UNCLEAR_CPUS = (
    *("exclusive", "mincpus", "cpus-per-gpu", "ntasks-per-gpu", "ntasks-per-core"),
    *("ntasks-per-socket", "sockets-per-node", "cores-per-socket", "extra-node-info"),
    *("threads-per-core", "hint", "overcommit", "oversubscribe"),
)


def requested_by(lint_case: LintCase) -> ScriptRequest:
    """Add up what the directives request, and what the job gets at most."""
    gres = lint_case.option("gres")
    by_count = lint_case.option(
        "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gpus"
    )
    by = {
        "array": lint_case.option("array"),
        "queues": lint_case.option("partition"),
        "memory": lint_case.option(*MEMORY_OPTIONS.split()),
        "cpus": lint_case.option("cpus-per-task")
        or lint_case.option("ntasks-per-node"),
        # --gres may request other resources than GPUs
        "gpus": gres if _gpus_of(gres) else by_count,
        "time": lint_case.option("time"),
        "account": lint_case.option("account"),
        "qos": lint_case.option("qos"),
        "nodes": lint_case.option("nodes"),
    }
    nodes, gpus = _number(by["nodes"]), _gpus_of(by["gpus"])
    cpus = _cpus(lint_case, nodes)
    count = None
    if gpus:
        count = _gpus_on_node(lint_case, by["gpus"], gpus[1], nodes or 1)
    return ScriptRequest(
        queues=_listed(by["queues"]),
        memory=_memory(by["memory"], cpus or 1, gpus[1] if gpus else 1),
        cpus=cpus,
        nodes=nodes,
        gpus=count,
        gpu_type=gpus[0] if gpus else "",
        time=parsed(by["time"], TEXT.parse_time),
        no_end=_has_no_end(by["time"]),
        account=by["account"].value if by["account"] else None,
        qos=by["qos"].value if by["qos"] else None,
        by={name: option for name, option in by.items() if option is not None},
        most_cpus=_most_cpus(lint_case, count),
        most_gpus=_most_gpus(lint_case, count),
        sets_cpus=any(map(lint_case.option, _SET_CPUS)),
        elements=elements_of(by["array"]),
    )


def _listed(option: ScriptOption | None) -> tuple[str, ...]:
    return tuple(option.value.split(",")) if option else ()


def _gpus_of(option: ScriptOption | None) -> tuple[str, int] | None:
    """Read (type, number) of ``--gres`` or one of ``--gpus...``."""
    for part in _listed(option) if option and option.name == "gres" else ():
        if found := GPU_RESOURCE.fullmatch(part):
            return found["type"] or "", int(found["count"] or 1)
    if option is None or option.name == "gres":
        return None
    found = TYPED_COUNT.fullmatch(option.value)
    return (
        (found["type"] or found["only"] or "", int(found["count"] or 1))
        if found
        else None
    )


def _gpus_on_node(
    lint_case: LintCase, option: ScriptOption | None, count: int, nodes: int
) -> int:
    name = option.name if option else ""
    tasks = _number(lint_case.option("ntasks")) or 1
    times = {"gpus": 1, "gpus-per-task": tasks}.get(name)
    return count if times is None else -(-count * times // nodes)


def _cpus(lint_case: LintCase, nodes: int | None) -> int | None:
    each, on_node = (
        _number(lint_case.option(n)) for n in ("cpus-per-task", "ntasks-per-node")
    )
    if on_node is None and nodes == 1:  # else Slurm may spread the tasks over nodes
        on_node = _number(lint_case.option("ntasks"))
    return None if each is None and on_node is None else (each or 1) * (on_node or 1)


def _memory(option: ScriptOption | None, cpus: int, gpus: int) -> int | None:
    size, name = parsed(option, TEXT.parse_memory), option.name if option else ""
    times = {"mem-per-cpu": cpus, "mem-per-gpu": gpus}.get(name, 1)
    return None if size is None else size * times


def _number(option: ScriptOption | None) -> int | None:
    return whole_number(option.value.partition("-")[0]) if option else None


def _most_cpus(lint_case: LintCase, gpus: int | None) -> int | None:
    """Return the CPUs on the node of the script; None where other options decide."""
    each, ntasks, on_node = (lint_case.option(name) for name in _SET_CPUS)
    nodes, tasks = lint_case.option("nodes"), _number(ntasks)
    # several tasks without a number of nodes: Slurm decides how many nodes
    count = 1 if not ntasks or on_node or tasks == 1 else None
    if nodes:
        count = None if "-" in nodes.value else _number(nodes)
    if tasks is None and count is not None:
        tasks = count * (_number(on_node) or 1)
    cpus = (_number(each) or 1) * ((_number(on_node) if on_node else tasks) or 1)
    # they change the number in ways that depend on the node
    is_unclear = any(lint_case.option(name) for name in _UNCLEAR_CPUS)
    by_gpus = gpus and each is None  # sites set CPUs for each GPU
    return None if is_unclear or by_gpus or tasks is None else cpus


def _most_gpus(lint_case: LintCase, requested: int | None) -> int | None:
    """Return the GPUs of the job; None if something else may bring them."""
    if requested is not None:
        is_known = lint_case.option("ntasks") or not lint_case.option("gpus-per-task")
        return requested if is_known else None
    asks = lint_case.option("gres", "tres-per-task", "exclusive", "constraint", "qos")
    # partitions such as gpu or a100 may bring GPUs by themselves
    in_queue = re.search(r"gpu|cuda|[avh]\d+", lint_case.value("partition").lower())
    return None if asks or in_queue or not lint_case.options else 0
