"""Several views of a job's nodes and ranks are one, and each counts once."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session

from weigh.joined_ranks import (
    join_records,
    joined_nodes,
    joined_ranks,
    peak_of,
)
from weigh.model.record import (
    PeakMemory,
    Record,
    RecordedNode,
    RecordedRank,
    SampleSeries,
    Usage,
)

MIB = 1 << 20
BEGAN = "2026-11-22T10:00:00.000Z"


def a_peak(size: int, time: float = 0.0) -> PeakMemory:
    return PeakMemory(size, size, size, size, 0, 0, "sampled", time)


def a_part(
    rank: int, host: str, size: int, *, started: str = BEGAN, node: int | None = None
) -> Record:
    peak = None if node is None else a_peak(node, 1.0)
    series = SampleSeries((0.0, 1.0), (0, node or 0), (None, None))
    return Record(
        id="0" * 12,
        part=rank,
        command=("prog",),
        started=started,
        ended=BEGAN,
        state="COMPLETED",
        exit_code=0,
        usage=Usage(wall_time=2.0, cpu_time=1.0, peak_memory=a_peak(size)),
        ranks=(
            RecordedRank(
                rank, host=host, peak_memory=size, step="0", size=4, start=0.0
            ),
        ),
        nodes=(RecordedNode(name=host, peak_memory=peak, series=series, final=True),),
    )


def four() -> list[Record]:
    return [
        a_part(0, "n1", 100, node=230),
        a_part(1, "n1", 130),
        a_part(2, "n2", 150),
        a_part(3, "n2", 160, node=300),
    ]


@given(st.permutations(four()))
def test_the_order_of_the_parts_does_not_matter(parts: list[Record]) -> None:
    joined = join_records(parts)
    assert joined == join_records(four())
    # what all have in common is that of the first rank
    placed = [msgspec.structs.replace(one, cwd=f"/{one.part}") for one in parts]
    assert join_records(placed).cwd == "/0"
    assert joined.part is None
    usage = joined.usage
    assert usage is not None
    assert (usage.peak_memory, usage.total_memory) == (a_peak(300, 1.0), 530)
    assert usage.cpu_time == 4.0
    assert [node.ranks for node in joined.nodes] == [2, 2]
    assert joined.missing == ()


def test_worked_examples_of_joined_ranks() -> None:
    names = {one.__name__: one for one in (a_part, a_peak, four)}
    check_session(Path(__file__).with_name("joined_ranks.session"), names)


def largest(values: Iterable[float | None]) -> float | None:
    """The largest known value."""
    return max((value for value in values if value is not None), default=None)


FIGURE = st.none() | st.integers(0, 9)
RANKS = st.builds(
    RecordedRank,
    *(st.integers(0, 1),),
    step=st.sampled_from(["0", "1"]),
    **dict.fromkeys(("pid", "peak_memory", "cpu_time", "wall_time", "size"), FIGURE),
    host=st.sampled_from([None, "n1", "n2"]),
    start=FIGURE,
    gpus=st.sampled_from([(), ("A",), ("B",)]),
)


@given(st.lists(RANKS, max_size=5))
def test_a_rank_has_the_largest_figures_that_were_seen_of_it(
    views: list[RecordedRank],
) -> None:
    joined = joined_ranks(views)

    places = sorted({(one.step, one.rank) for one in views})
    assert [(one.step, one.rank) for one in joined] == places
    for rank in joined:
        seen = [v for v in views if (v.step, v.rank) == (rank.step, rank.rank)]
        for name in ("peak_memory", "cpu_time", "wall_time", "size"):
            assert getattr(rank, name) == largest(getattr(v, name) for v in seen)
        starts = [v.start for v in seen if v.start is not None]
        # whoever saw it first knows best when it began
        assert rank.start == (min(starts) if starts else None)
        for name in ("host", "pid"):  # as whoever saw it last
            last = [getattr(v, name) for v in seen if getattr(v, name)]
            assert (getattr(rank, name) or None) == (last[-1] if last else None)
        assert rank.gpus == next((v.gpus for v in seen if v.gpus), ())


NODES = st.builds(
    RecordedNode,
    name=st.sampled_from(["n1", "n2"]),
    peak_memory=st.none() | st.integers(0, 9).map(a_peak),
    **dict.fromkeys(("cpus", "heard"), FIGURE),
    final=st.booleans(),
)


@given(st.lists(NODES, max_size=5))
def test_a_node_has_the_largest_figures_that_were_seen_of_it(
    views: list[RecordedNode],
) -> None:
    for node in joined_nodes(views):
        seen = [one for one in views if one.name == node.name]
        assert node.cpus == largest(one.cpus for one in seen)
        assert node.heard == largest(one.heard for one in seen)
        assert node.final == any(one.final for one in seen)
        assert peak_of(node) == max(map(peak_of, seen))
