"""The options of ``weigh plan`` as typed, and reading their values: sizes, GPUs."""

from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any

import msgspec

from weigh import gpu_models
from weigh.errors import FormatError, UsageError
from weigh.model.plan import TargetGpu
from weigh.planning.needs import StatedUsage, TaskNeeds
from weigh.request import gpu_type
from weigh.units import HOUR, Bytes, Seconds, parse_duration, parse_size

ALL = "all"
ANY_KIND = "auto"  # as --gpu: of the cluster's kinds the one where tasks end first
# above any site's limit: a larger number is a typing error
_LONGEST: Seconds = 10_000 * HOUR


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options as typed; None: take the value from records or defaults."""

    task_file: str
    name: str | None = None
    gpus: str | None = None
    gpu_memory: str | None = None
    memory: str | None = None
    cpus: int | None = None
    time: str | None = None
    hours: str | None = None
    records: str = ALL
    per_gpu: int | None = None  # most tasks on a GPU
    gpus_per_task: int | None = None  # whole ones
    nodes: int | None = None
    node_memory: str | None = None
    node_cpus: int | None = None  # with node_memory and node_gpus the size of a node
    node_gpus: int | None = None
    replace: bool = False
    dry_run: bool = False
    probe: bool = False


def node_size(option_text: str) -> dict[str, Any]:
    """Read ``128G,16,4``, ``16``, ``16,4`` or ``,4`` as fields of `PlanOptions`.

    Memory has a unit; the number of CPUs comes before that of GPUs.

    Raises:
        FormatError: it is none of these.
    """
    found = dict[str, Any]()
    words = option_text.split(",") if option_text else []
    if words and words[0] and not words[0].isdecimal():
        parsed_size_option("--node", words[0])
        found["node_memory"] = words.pop(0)
    names = ("node_cpus", "node_gpus")
    for name, word in zip_longest(names, words, fillvalue=""):
        if word and not (name and word.isdecimal() and int(word) > 0):
            raise FormatError(
                f"--node {option_text}: not a node (write it like 128G,16,4: memory, "
                "CPUs, GPUs)"
            )
        if word:
            found[name] = int(word)
    return found


def stated_usage(options: PlanOptions) -> StatedUsage:
    """Return what a task uses, as far as the options state it.

    Raises:
        FormatError: a size or time does not parse.
    """
    return StatedUsage(
        gpu_memory=parsed_size_option("--gpu-memory", options.gpu_memory),
        memory=parsed_size_option("--memory", options.memory),
        cpus=options.cpus,
        time=None if options.time is None else parse_duration(options.time),
        gpus=options.gpus_per_task,
        nodes=options.nodes,
    )


def parsed_size_option(option: str, option_text: str | None) -> Bytes | None:
    """Return the size in *option_text*; None where the option was not given.

    Raises:
        FormatError: *option_text* is not a size; names *option*.
    """
    if option_text is None:
        return None
    try:
        return parse_size(option_text)
    except FormatError as error:
        raise FormatError(f"{option}: {error}") from error


def parse_hours(option_text: str) -> Seconds:
    """Return the time limit of an element in seconds: ``4``, ``0.5`` or ``90m``.

    0 stands for no queue.

    Raises:
        FormatError: *option_text* is not a time.
    """
    with suppress(FormatError):
        # a plain number is hours; with a unit it is a time like that of --time
        seconds = parse_duration(option_text, bare_unit=HOUR)
        if 0 <= seconds < _LONGEST:
            return seconds
    raise FormatError(
        f"--hours {option_text}: not a time (write it like 4, 0.5 or 90m)"
    )


_LONGEST_COMMAND = 40  # characters of a command that a message repeats


class PlanTarget(msgspec.Struct, frozen=True):
    """A GPU to plan for, and the user's name for it."""

    gpu: TargetGpu | None  # None: no GPU, or whole ones of any type
    word: str | None = None  # None: any type is requested
    note: str | None = None


def plan_targets(
    names: str | None, needs: TaskNeeds, sites: Mapping[str, Bytes]
) -> list[PlanTarget]:
    """Return the GPUs to plan for: those named, or the GPU of the records.

    Raises:
        UsageError: there is no such GPU, or a task's GPU memory is not known.
        FormatError: the GPU's memory does not parse.
    """
    uses_gpu = any(kind.item.gpu_memory or kind.item.gpus for kind in needs.kinds)
    words = [word.strip() for word in (names or "").split(",") if word.strip()]
    # parsed even if no GPU is used: a misspelled name is reported in any case
    named = [_parsed_target(word, sites) for word in words]
    if names is not None:
        if not uses_gpu:
            example = task_command_as_typed(needs.kinds[0].example)
            raise UsageError(
                "how much GPU memory does a task use? --gpu-memory 2GiB, or measure "
                f"one on a GPU: weigh run -- {example}"
            )
        if named:
            return named
    if not uses_gpu:
        return [PlanTarget(None)]
    measured = needs.gpu
    if measured is None or measured.memory_total is None:
        if all(kind.item.gpus for kind in needs.kinds):
            return [PlanTarget(None)]  # whole GPUs of any type
        raise UsageError("which GPU? --gpu NAME, such as V100-32GB or a100_80gb")
    # drivers' names are not those that schedulers know: only of a known model can the
    # type be requested
    model = gpu_models.model_of_nvml_name(measured.name, measured.memory_total)
    if model is None:
        return [PlanTarget(TargetGpu(measured.name, measured.memory_total))]
    return [PlanTarget(TargetGpu(model.name, model.memory), gpu_type(measured.name))]


def task_command_as_typed(command: str) -> str:
    """Return a command to type, whole or by its name: half of one would not run."""
    return command if len(command) <= _LONGEST_COMMAND else "COMMAND"


def _parsed_target(gpu_word: str, sites: Mapping[str, Bytes]) -> PlanTarget:
    """Read ``V100-32GB``, or ``p100=11.9GiB`` for a GPU with that much memory."""
    name, equals, size = (part.strip() for part in gpu_word.partition("="))
    if not equals:
        # the one with the least memory is first: what fits it fits the others
        model, *others = gpu_models.gpu_models_called(name, sites=sites)
        also = " or ".join(other.name for other in others)
        note = f"{name} is read as {model.name}; write {also} if you mean that"
        return PlanTarget(
            TargetGpu(model.name, model.memory), name, note if others else None
        )
    memory = parse_size(size)
    if not name or not memory:
        raise UsageError(f"not a GPU: {gpu_word!r} (write it like p100=11.9GiB)")
    return PlanTarget(TargetGpu(name, memory), name)
