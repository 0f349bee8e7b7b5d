"""The names of a Grid Engine site's resources."""

import msgspec


class Complexes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Grid Engine site's names for GPUs, their type, their CPUs and a node.

    ``parallel`` is the parallel environment whose slots are all on one node.
    """

    gpus: str = "ngpus"
    gpu_type: str = "gpu_type"
    cpus: str = "ncpus"
    parallel: str = "smp"
