"""A run of several ranks on several nodes, as its record has it."""

from collections.abc import Sequence

from weigh.model.record import (
    MeasuringCost,
    PeakMemory,
    Record,
    RecordedNode,
    RecordedRank,
    Usage,
)


def run_of_ranks(  # noqa: PLR0913 - a record in a line
    hosts: Sequence[Sequence[int]],
    *,
    command: str = "srun prog",
    script: int = 0,
    launcher: str = "step",
    cpus: float = 1.0,
    wall_time: float = 10.0,
    own_weigh: int | None = None,
    missing: tuple[str, ...] = (),
) -> Record:
    """Return a run with a rank of each size on each host; the first has the script."""
    ranks: list[RecordedRank] = []
    nodes: list[RecordedNode] = []
    for number, sizes in enumerate(hosts):
        held = sum(sizes) + (0 if number else script)
        peak = PeakMemory(held, held, held, held, 0, 0, "sampled")
        nodes.append(RecordedNode(name=f"n{number}", peak_memory=peak, final=True))
        for size in sizes:
            rank = RecordedRank(
                len(ranks),
                host=f"n{number}",
                peak_memory=size,
                cpu_time=cpus * wall_time,
                size=sum(map(len, hosts)),
                launcher=launcher,
                start=0.0,
                wall_time=wall_time,
            )
            ranks.append(rank)
    top = max((node.peak_memory for node in nodes), key=lambda p: p.value if p else 0)
    return Record(
        id=command.encode().hex()[:12],
        command=tuple(command.split()),
        started="2026-11-22T10:00:00Z",
        state="COMPLETED",
        exit_code=0,
        usage=Usage(
            wall_time=wall_time,
            cpu_time=cpus * wall_time * len(ranks),
            peak_memory=top,
        ),
        ranks=tuple(ranks),
        nodes=tuple(nodes),
        missing=missing,
        monitor=MeasuringCost(rank_memory=own_weigh),
    )
