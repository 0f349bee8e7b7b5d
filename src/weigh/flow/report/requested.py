"""What an element asked for: of a submitted job, or as records say."""

from collections.abc import Iterable, Sequence

import msgspec

from weigh.flow.site.schedulers import kind_of
from weigh.model.job import Submitted
from weigh.model.plan import Plan
from weigh.model.record import Allocation, Record, Request
from weigh.units import Bytes

_AMOUNTS = ("cpus", "memory", "virtual_memory", "time_limit", "gpus", "gpu_memory")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What one element was to get; None is not asked for, or not known.

    ``gpu_memory`` is that of a card of the kind asked for; ``scheduler`` whose flags
    change it.
    """

    scheduler: str | None = None
    cpus: int | None = None
    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    time_limit: int | None = None
    gpus: int = 0
    gpu_memory: Bytes | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether no resource was requested, as far as is known."""
        return not (self.memory or self.time_limit or self.cpus)


def asked_of_job(job: Submitted, plan: Plan | None) -> Asked:
    """Give what each element of a job asked for."""
    wanted = job.request
    gpu = plan.gpu if plan else None
    return Asked(
        scheduler=kind_of(job.scheduler),
        cpus=wanted.cpus,
        memory=wanted.memory,
        virtual_memory=wanted.virtual_memory,
        time_limit=wanted.time_limit,
        gpus=wanted.gpus,
        gpu_memory=gpu.memory if gpu and wanted.gpus else None,
    )


def most_asked(several: Sequence[Asked]) -> Asked:
    """Give the most of each that any of *several* asked for, of one scheduler."""
    most = {field: _most(getattr(one, field) for one in several) for field in _AMOUNTS}
    return Asked(
        scheduler=several[0].scheduler,
        gpus=most.pop("gpus") or 0,
        **most,
    )


def asked_of_records(records: Sequence[Record]) -> Asked:
    """Give what records say was asked for or granted; of several the most."""
    requests = [record.request for record in records if record.request]
    grants = [record.allocation for record in records if record.allocation]
    both: list[Request | Allocation] = [*requests, *grants]
    cards = [
        gpu.memory_total
        for record in records
        if record.usage
        for gpu in record.usage.gpus
    ]
    return Asked(
        scheduler=grants[0].scheduler if grants else None,
        cpus=_most(one.cpus for one in both),
        memory=_most(one.memory for one in both),
        virtual_memory=_most(one.virtual_memory for one in requests),
        time_limit=_most(one.time_limit for one in requests),
        gpus=_most(one.gpus for one in both) or 0,
        gpu_memory=_most(cards),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value), default=None)
