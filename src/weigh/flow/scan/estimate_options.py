"""The options of an estimate: as typed, and parsed before anything is run."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from weigh import gpu_models
from weigh.errors import FormatError, UsageError
from weigh.estimate.advice import GPU, HOST, MemoryLimit
from weigh.estimate.curve import LARGEST_SIZE
from weigh.model.gpu import GpuUsage
from weigh.model.record import Record
from weigh.units import Bytes, parse_size

ALL = "all"
# memory in place of a name; no name of a GPU is written so
_GPU_SIZE = re.compile(r"[\d.]+\s?[KMGT](?:i?B)?", re.IGNORECASE)


class TypedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """As typed; see ``weigh scan --help``."""

    target: str | None = None
    gpus: tuple[str, ...] = ()  # models or sizes, several with commas
    memory: tuple[str, ...] = ()  # sizes


class ParsedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The same as numbers; ``target_name`` is None where the value stood alone."""

    target_name: str | None = None
    target: float | None = None
    limits: tuple[MemoryLimit, ...] = ()

    @property
    def has_gpu(self) -> bool:
        """Return whether the user named a GPU or its memory."""
        return any(limit.of == GPU for limit in self.limits)

    def target_of(self, size_name: str) -> tuple[float | None, tuple[str, ...]]:
        """Return the target as a size of *size_name*, or the error where it is none."""
        if self.target is None or self.target_name in {None, size_name}:
            return self.target, ()
        note = f"--target {self.target_name} left out: the sizes are of {size_name}"
        return None, (f"{note} (write --target '{size_name}=1000')",)


def parse_options(
    typed_options: TypedOptions, size_name: str | None, sites: Mapping[str, Bytes]
) -> ParsedOptions:
    """Read what was typed; *size_name* as typed too, *sites* a site's own GPU names.

    Raises:
        UsageError: no such GPU, or the target is of another parameter.
        FormatError: a size, share or target does not parse.
    """
    name, target = _target_name_and_value(typed_options.target, size_name)
    limits = (
        *_gpu_limits(typed_options, sites),
        *(
            MemoryLimit("RAM", _memory_limit_size(word, f"--memory {word}"), HOST)
            for word in typed_options.memory
        ),
    )
    return ParsedOptions(
        target_name=name,
        target=target,
        limits=tuple(dict.fromkeys(limits)),
    )


def limits_measured_on(records: Sequence[Record]) -> tuple[MemoryLimit, ...]:
    """Return the GPUs that *records* used, each model once."""
    gpus = (gpu for record in records if record.usage for gpu in record.usage.gpus)
    limits = [
        MemoryLimit(*_gpu_memory_named(gpu, gpu.memory_total), GPU)
        for gpu in gpus
        # a GPU that the job did not use is no limit of it
        if gpu.memory_total is not None and gpu.job_peak != 0
    ]
    return tuple(dict.fromkeys(limits))


def _gpu_memory_named(gpu_usage: GpuUsage, total: Bytes) -> tuple[str, Bytes]:
    model = gpu_models.model_of_nvml_name(gpu_usage.name, total)
    return (gpu_usage.name, total) if model is None else (model.name, model.memory)


def _target_name_and_value(
    text: str | None, size_name: str | None
) -> tuple[str | None, float | None]:
    """Read ``NAME=VALUE``, or the value alone."""
    if text is None:
        return None, None
    name, equals, value = (part.strip() for part in text.rpartition("="))
    if equals and size_name is not None and name != size_name:
        raise UsageError(
            f"--target {text}: the sizes are of {size_name} (write --target "
            f"{size_name}=1000)"
        )
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= LARGEST_SIZE:
        raise FormatError(f"--target {text}: {value!r} is no size above 0")
    return name if equals else None, number


def _gpu_limits(
    typed_options: TypedOptions, sites: Mapping[str, Bytes]
) -> Iterator[MemoryLimit]:
    words = [word.strip() for words in typed_options.gpus for word in words.split(",")]
    for word in filter(None, words):
        if word.lower() == ALL:
            # a site's figures come before those of the table
            yield from (MemoryLimit(name, sites[name], GPU) for name in sites)
            yield from (
                MemoryLimit(model.name, model.memory, GPU)
                for model in gpu_models.MODELS
                if model.name not in sites
            )
        else:
            yield from _gpu_limit(word, sites)


def _gpu_limit(word: str, sites: Mapping[str, Bytes]) -> Iterator[MemoryLimit]:
    """Read ``V100-32GB``, ``v100`` of either size, ``p100=11.9GiB`` or ``30GiB``."""
    name, equals, size = (part.strip() for part in word.partition("="))
    if equals and not name:
        raise UsageError(f"not a GPU: {word!r} (write it like p100=11.9GiB)")
    if equals:
        yield MemoryLimit(name, _memory_limit_size(size, f"--gpu {word}"), GPU)
        return
    if _GPU_SIZE.fullmatch(word):
        yield MemoryLimit("a GPU", _memory_limit_size(word, f"--gpu {word}"), GPU)
        return
    # a name may stand for several sizes of memory
    for model in gpu_models.gpu_models_called(word, sites=sites):
        yield MemoryLimit(model.name, model.memory, GPU)


def _memory_limit_size(text: str, option: str) -> Bytes:
    try:
        size = parse_size(text)
    except FormatError as error:
        raise FormatError(f"{option}: {error}") from None
    if not size:
        raise FormatError(f"{option}: must be above 0")
    return size
