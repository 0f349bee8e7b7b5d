"""The words that a Grid Engine site has for what can be asked for."""

import msgspec


class Complexes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Grid Engine site's words: for GPUs, their type, the CPUs beside them, a node.

    ``parallel`` is the parallel environment whose slots are all on one node.
    """

    gpus: str = "ngpus"
    gpu_type: str = "gpu_type"
    cpus: str = "ncpus"
    parallel: str = "smp"
