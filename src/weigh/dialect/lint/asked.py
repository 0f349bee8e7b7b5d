"""What a script asks for, in the words that both schedulers share."""

import msgspec

from weigh.dialect.lint.case import Option
from weigh.units import Bytes


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, and the option that did, by the same name in ``by``.

    ``memory``, ``cpus`` and ``gpus`` are one node's, None where nothing was said;
    ``slot_memory`` is what a queue's limit is on, where that is a slot's memory;
    ``elements`` and ``last_index`` are an array's; ``no_end`` is a time without limit.
    """

    queues: tuple[str, ...] = ()
    memory: Bytes | None = None
    slot_memory: Bytes | None = None
    cpus: int | None = None
    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str = ""
    time: int | None = None
    no_end: bool = False
    account: str | None = None
    qos: str | None = None
    features: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    parallel: str | None = None
    project: str | None = None
    node_names: tuple[str, ...] = ()
    elements: int | None = None
    last_index: int | None = None
    by: dict[str, Option] = {}
