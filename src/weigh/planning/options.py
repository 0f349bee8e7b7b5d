"""The options of ``weigh plan`` as the user typed them, and reading their values."""

import msgspec

from weigh.errors import FormatError
from weigh.planning.needs import StatedUsage
from weigh.units import HOUR, Bytes, Seconds, parse_limit, parse_size

ALL = "all"
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
    headroom: str | None = None
    records: str = ALL
    per_gpu: int | None = None  # most tasks on a GPU
    gpus_per_task: int | None = None  # whole ones
    nodes: int | None = None
    node_memory: str | None = None
    node_cpus: int | None = None  # with node_memory and node_gpus the size of a node
    node_gpus: int | None = None
    leave_out: bool = False
    replace: bool = False
    ignore_directives: bool = False
    dry_run: bool = False
    probe: bool = False


def stated_usage(options: PlanOptions) -> StatedUsage:
    """Return what a task uses, as far as the options state it.

    Raises:
        FormatError: a size or time does not parse.
    """
    return StatedUsage(
        gpu_memory=parsed_size_option("--gpu-memory", options.gpu_memory),
        memory=parsed_size_option("--memory", options.memory),
        cpus=options.cpus,
        time=None if options.time is None else parse_limit(options.time),
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
    try:
        # a plain number is hours; with a unit it is a time like that of --time
        seconds = float(option_text) * HOUR
    except ValueError:
        seconds = float(parse_limit(option_text))
    if not 0 <= seconds < _LONGEST:
        raise FormatError(
            f"--hours {option_text}: not a time (write it like 4, 0.5 or 90m)"
        )
    return seconds
