"""The options and variables that limit a program's memory, as a run had them set.

Runs with different ones are different programs as far as memory goes, so what is
learnt from some does not hold for the others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from weigh.model.record import Record, Usage
from weigh.units import format_size

_IN_COMMAND = re.compile(
    r"(?:^|[\s'\"=])(-Xmx|-XX:MaxRAMPercentage=|-XX:MaxHeapSize="
    r"|--max-old-space-size[= ]"
    r"|--heap-size-hint[= ]|--buffer-size=|GOMEMLIMIT=|MALLOC_ARENA_MAX="
    r"|XLA_PYTHON_CLIENT_MEM_FRACTION=|XLA_PYTHON_CLIENT_PREALLOCATE="
    r"|TF_FORCE_GPU_ALLOW_GROWTH=|--gpu-memory-utilization[= ])([^\s'\";|&]+)"
)

_OF_JAVA = ("JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS")  # its flags count


def knobs_of(record: Record) -> tuple[str, ...]:
    """Return the knobs that were set, in order: ``-Xmx=64m``, ``GOMEMLIMIT=1GiB``.

    Those whose value is a parameter's are left out: the parameter tells them apart.
    """
    found = {} if record.usage is None else dict(_of_usage(record.usage))
    return _known(record.command, record.parameters, found)


def knobs_in(
    command: Sequence[str], parameters: Mapping[str, int | float | str]
) -> tuple[str, ...]:
    """Return the knobs that a command sets, as :func:`knobs_of` does."""
    return _known(command, parameters, {})


def _known(
    command: Sequence[str],
    parameters: Mapping[str, int | float | str],
    of_usage: Mapping[str, str],
) -> tuple[str, ...]:
    found = {**dict(_IN_COMMAND.findall(" ".join(command))), **of_usage}
    values = {str(value) for value in parameters.values()}
    return tuple(
        sorted(
            f"{name.rstrip('= ')}={value}"
            for name, value in found.items()
            if value not in values and value.rstrip("kKmMgGtTiB") not in values
        )
    )


def _of_usage(usage: Usage) -> Iterator[tuple[str, str]]:
    for flag in usage.jvm.flags if usage.jvm is not None else ():
        for match in _IN_COMMAND.finditer(flag):
            yield match[1], match[2]
    sign = usage.sign
    # options are words of the command; a variable is seen in longer runs only
    if sign is None or sign.knob is None or sign.value is None:
        return
    if sign.knob.isupper() and sign.knob not in _OF_JAVA:
        yield sign.knob, sign.value


def sign_words(usage: Usage) -> Iterator[str]:
    """Yield what a run's largest program is known to do with memory."""
    sign = usage.sign
    if sign is not None and usage.jvm is None:  # Java's heap has words of its own
        knob = ""
        if sign.knob is not None:
            knob = f" ({sign.knob}={sign.value})" if sign.value else f" ({sign.knob})"
        yield f"{sign.name}: {sign.advice}{knob}"


def cache_words(usage: Usage) -> Iterator[str]:
    """Yield that a run needs page cache, if it read its files again and again."""
    cache = usage.cache
    if cache is not None:
        yield (
            f"read {format_size(cache.read)} of files of {format_size(cache.files)}: "
            "it rereads them from the page cache, which the job's memory holds too"
        )
