"""A site's file from what its scheduler tells: TOML for a person to correct."""

import json
from collections.abc import Iterator, Mapping

from weigh.catalogue import called
from weigh.dialect import slurm
from weigh.errors import UsageError
from weigh.model.cluster import UNTYPED, Cluster, GpuCount, Queue
from weigh.report.printable import printable
from weigh.units import MIB


def render_site(
    cluster: Cluster, scratch: str | None, complexes: Mapping[str, str]
) -> str:
    """Write the site file: scheduler, scratch, GPUs and their memory, queues.

    *complexes* are the words of a Grid Engine cell, by what they stand for.
    """
    lines = [
        f"# what {cluster.scheduler} told weigh on {cluster.time[:10]}: correct it,",
        "# then keep it as /etc/weigh/config.toml for everyone here, or as",
        "# ~/.config/weigh/config.toml for yourself",
        "",
        "[cluster]",
        f"scheduler = {_text(cluster.scheduler)}",
        *([f"name = {_text(cluster.name)}"] if cluster.name else []),
        *_scratch(scratch),
        "",
        "[gpus]  # what programs can use of each, by the scheduler's names",
        *(line for gpu in cluster.gpus for line in _gpu(gpu)),
    ]
    if complexes:
        lines += ["", "[cluster.gridengine]  # what to ask for GPUs, CPUs, slots by"]
        lines += [f"{key} = {_text(word)}" for key, word in complexes.items()]
    for queue in cluster.queues:
        lines += ["", *_queue(queue)]
    return "\n".join(lines) + "\n"


def _scratch(scratch: str | None) -> Iterator[str]:
    if scratch is None:
        yield "# none was found here; nodes may have one:"
        yield '# scratch = "/disk/scratch/$USER"'
    else:
        yield f"scratch = {_text(scratch)}  # found here: is it on the nodes?"


def _gpu(gpu: GpuCount) -> Iterator[str]:
    name = _text(gpu.name)
    if gpu.name == UNTYPED:
        yield f'# the type of {gpu.total} GPUs is not told: V100 = "32510MiB"'
        return
    try:
        models = called(gpu.name)
    except UsageError:
        yield f'# {name} = "?GiB"  # {gpu.total} of them; weigh does not know it'
        return
    sizes = " or ".join(model.name for model in models)
    doubt = f", taken for the smaller: {sizes}" if len(models) > 1 else ""
    yield f'{name} = "{models[0].memory // MIB}MiB"  # {gpu.total} of them{doubt}'


def _queue(queue: Queue) -> Iterator[str]:
    limits = queue.limits
    yield f"[cluster.queues.{_text(limits.name)}]"
    if limits.default:
        yield "default = true"
    if not limits.open:
        yield "open = false"
    values = {
        "time_limit": _time(limits.time_limit),
        "default_time": _time(limits.default_time),
        "memory": _size(limits.memory),
        "default_memory": _size(limits.default_memory),
        "default_memory_per_cpu": _size(limits.default_memory_per_cpu),
        "cpus": limits.cpus,
        "nodes": limits.nodes,
        "gpus_per_user": queue.gpus_per_user,
    }
    for key, value in values.items():
        if value is not None:
            yield f"{key} = {value}"
    if limits.accounts:
        yield f"accounts = [{', '.join(map(_text, limits.accounts))}]"
    if queue.gpus:
        kinds = ", ".join(f"{_text(one.name)} = {one.total}" for one in queue.gpus)
        yield f"gpus = {{ {kinds} }}"
    yield f"# nodes: {queue.nodes}, CPUs: {queue.cpus}"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else _text(slurm.format_time(seconds))


def _size(size: int | None) -> str | None:
    return None if size is None else f'"{size // MIB}MiB"'


def _text(value: str) -> str:
    """Write a TOML string; it has JSON's escapes."""
    return json.dumps(printable(value), ensure_ascii=False)
