"""What was requested for an element, by a submitted job or by records."""

from collections.abc import Iterable, Sequence

import msgspec

from weigh.model.job import SubmittedJob
from weigh.model.plan import Plan
from weigh.model.record import Allocation, Record, Request
from weigh.units import Bytes

_AMOUNTS = ("cpus", "memory", "virtual_memory", "time_limit", "gpus", "gpu_memory")


class ElementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request of one element; None is not requested, or unknown.

    ``gpu_memory`` is the memory of a GPU of the requested type; ``scheduler`` decides
    on the flags that change it, ``per_cpu`` on how memory is written. ``nodes`` are
    those that the CPUs of accounting are on, together.
    """

    scheduler: str | None = None
    cpus: int | None = None
    memory: Bytes | None = None
    virtual_memory: Bytes | None = None
    time_limit: int | None = None  # seconds
    gpus: int = 0
    gpu_memory: Bytes | None = None
    nodes: int = 1  # 1 also if unknown
    per_cpu: bool = False

    @property
    def is_nothing(self) -> bool:
        """Return whether no resource is known to be requested."""
        return not (self.memory or self.time_limit or self.cpus)


def requested_by_job(submitted_job: SubmittedJob, plan: Plan | None) -> ElementRequest:
    """Return what each element of a job requested."""
    wanted = submitted_job.request
    gpu = plan.gpu if plan else None
    return ElementRequest(
        scheduler=submitted_job.scheduler.partition("@")[
            0
        ],  # without the cluster's name
        cpus=wanted.cpus,
        memory=wanted.memory,
        virtual_memory=wanted.virtual_memory,
        time_limit=wanted.time_limit,
        gpus=wanted.gpus,
        # a plan may name a GPU whose job requests none
        gpu_memory=gpu.memory if gpu and wanted.gpus else None,
        per_cpu=wanted.site.per_cpu,
    )


def most_requested(several: Sequence[ElementRequest]) -> ElementRequest:
    """Return the maximum of each amount over *several*, of one scheduler."""
    most = {
        field: _largest_amount(getattr(one, field) for one in several)
        for field in _AMOUNTS
    }
    return ElementRequest(
        scheduler=several[0].scheduler,
        gpus=most.pop("gpus") or 0,
        nodes=max(one.nodes for one in several),
        per_cpu=any(one.per_cpu for one in several),
        **most,
    )


def requested_by_records(records: Sequence[Record]) -> ElementRequest:
    """Return what records requested or were granted; of several the maximum."""
    requests = [record.requested for record in records if record.requested]
    grants = [record.allocation for record in records if record.allocation]
    both: list[Request | Allocation] = [*requests, *grants]
    gpu_memory = [
        gpu.memory_total
        for record in records
        if record.usage
        for gpu in record.usage.gpus
    ]
    return ElementRequest(
        scheduler=grants[0].scheduler if grants else None,
        cpus=_largest_amount(one.cpus for one in both),
        memory=_largest_amount(one.memory for one in both),
        virtual_memory=_largest_amount(one.virtual_memory for one in requests),
        time_limit=_largest_amount(one.time_limit for one in requests),
        gpus=_largest_amount(one.gpus for one in both) or 0,
        gpu_memory=_largest_amount(gpu_memory),
    )


def _largest_amount(amounts: Iterable[int | None]) -> int | None:
    return max((value for value in amounts if value), default=None)
