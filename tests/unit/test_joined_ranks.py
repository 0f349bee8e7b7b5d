"""Several views of a job's nodes and ranks are one, and each counts once."""

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weigh.joined_ranks import (
    imbalance_notes,
    join_records,
    joined_gpus,
    joined_nodes,
    joined_ranks,
    name_order,
    peak_of,
    unseen_ranks,
)
from weigh.model.gpu import GpuUsage
from weigh.model.record import (
    MeasuringCost,
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


def joined_usage(parts: Iterable[Record]) -> Usage:
    usage = join_records([*parts]).usage
    assert usage is not None
    return usage


@given(st.permutations(four()))
def test_the_order_of_the_parts_does_not_matter(parts: list[Record]) -> None:
    joined = join_records(parts)
    assert joined == join_records(four())
    # what all have in common is that of the first rank
    placed = [msgspec.structs.replace(one, cwd=f"/{one.part}") for one in parts]
    assert join_records(placed).cwd == "/0"
    assert joined.part is None
    usage = joined_usage(parts)
    assert (usage.peak_memory, usage.total_memory) == (a_peak(300, 1.0), 530)
    assert usage.cpu_time == 4.0
    assert [node.ranks for node in joined.nodes] == [2, 2]
    assert joined.missing == ()


def test_who_watches_a_node_after_another_adds_nothing_to_its_peak() -> None:
    later = a_part(1, "n1", 130, started="2026-11-22T10:00:05.000Z", node=200)
    joined = join_records([four()[0], later])
    (node,) = joined.nodes
    assert node.peak_memory == a_peak(230, 1.0)
    assert node.series is not None
    assert node.series.t == (0.0, 1.0)  # of the one who saw the peak
    assert joined_usage([four()[0], later]).total_memory is None  # of several nodes


def test_a_failed_rank_fails_the_run_and_the_first_to_fail_states_why() -> None:
    parts = four()
    parts[2] = msgspec.structs.replace(
        parts[2], state="FAILED", exit_code=5, ended="2026-11-22T10:00:01Z"
    )
    parts[3] = msgspec.structs.replace(
        parts[3], state="FAILED", exit_code=143, ended="2026-11-22T10:00:03Z"
    )
    joined = join_records(parts)
    assert (joined.state, joined.exit_code) == ("FAILED", 5)


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


def test_unseen_ranks_are_counted_over_all_steps() -> None:
    ranks = [RecordedRank(0, step="3", size=4), RecordedRank(0, step="4", size=2)]
    assert unseen_ranks(ranks) == ("4 of 6 ranks of 2 steps were not seen",)
    assert unseen_ranks(ranks[:1]) == ("3 of 4 ranks were not seen",)
    assert unseen_ranks([RecordedRank(0, step="0", size=1)]) == ()
    joined = join_records(four()[:3])
    assert joined.missing == ("1 of 4 ranks were not seen",)
    assert [node.ranks for node in joined.nodes] == [2, 1]


def test_nodes_are_sorted_as_people_count() -> None:
    names = ["cn10", "cn09", "login", "cn1", "cn" + "9" * 5000]
    assert sorted(names, key=name_order)[:-1] == ["login", "cn1", "cn09", "cn10"]


def test_a_part_without_an_end_failed_last() -> None:
    parts = four()
    parts[1] = msgspec.structs.replace(
        parts[1], state="FAILED", exit_code=5, ended=None
    )
    parts[2] = msgspec.structs.replace(parts[2], state="FAILED", exit_code=143)

    joined = join_records(parts)

    assert (joined.exit_code, joined.ended) == (143, None)


def test_the_cost_of_measuring_adds_up_and_its_memory_is_the_largest() -> None:
    costs = [
        MeasuringCost(cpu_time=float(n), memory=n, samples=n, warnings=(f"w{n % 2}",))
        for n in (1, 2, 3)
    ]
    parts = [
        msgspec.structs.replace(part, monitor=cost)
        for part, cost in zip(four(), [*costs, None], strict=True)
    ]

    joined = join_records(parts).monitor

    assert joined is not None
    assert (joined.cpu_time, joined.memory, joined.samples) == (6.0, 3, 6)
    assert joined.warnings == ("w1", "w0")


@pytest.mark.parametrize(
    ("started", "later"),
    [
        ("2026-11-22T10:00:05.000Z", 5.0),
        ("2026-11-22T09:59:58.000Z", -2.0),
        ("yesterday", 0.0),
    ],
)
def test_a_part_that_began_later_ends_later(started: str, later: float) -> None:
    # whichever began first sets the start; a start that is no time shifts nothing
    part = a_part(1, "n2", 130, started=started, node=200)
    node = msgspec.structs.replace(part.nodes[0], heard=1.5)
    unknown = RecordedRank(2, step="0")
    part = msgspec.structs.replace(part, nodes=(node,), ranks=(*part.ranks, unknown))

    joined = join_records([four()[0], part])

    first, second = max(0.0, -later), max(0.0, later)
    assert joined_usage([four()[0], part]).wall_time == 2.0 + abs(later)
    assert [rank.start for rank in joined.ranks] == [first, second, None]
    (_, node) = joined.nodes
    assert node.peak_memory == a_peak(200, 1.0 + second)
    assert node.heard == 1.5 + second
    assert node.series is not None
    assert node.series.t == (second, 1.0 + second)


def test_ranks_whose_nodes_nobody_watched_have_no_peak_and_the_first_ones_curve() -> (
    None
):
    series = SampleSeries((0.0,), (1,), (None,))
    parts = [
        msgspec.structs.replace(
            part, nodes=(), series=series if not part.part else None
        )
        for part in four()
    ]

    joined, usage = join_records(parts), joined_usage(parts)

    assert (usage.peak_memory, usage.total_memory) == (None, None)
    assert (joined.nodes, joined.series) == ((), series)


def test_a_gpu_counts_once_as_who_saw_most_of_the_job_on_it_did() -> None:
    gpus = [
        GpuUsage("A", "V100", peak_memory=5),
        GpuUsage("B", "V100"),
        GpuUsage("C", "V100"),
        GpuUsage("C", "V100", peak_memory=1),
        GpuUsage("A", "V100", peak_memory=9),
        GpuUsage("A", "V100", peak_memory=7),
    ]

    assert [(one.uuid, one.peak_memory) for one in joined_gpus(gpus)] == [
        ("A", 9),
        ("B", None),
        ("C", 1),
    ]


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        # more than 1.25 times the mean
        ((32, 96, 160, 96, 96), True),
        ((70, 70, 100), False),  # as much
        ((75, 75, 105, 45), True),
        # 32 MiB are the least worth a line; ranks without a figure lower no mean
        ((1, 1, 31), False),
        ((1, 1, 32), True),
        ((0, 0, 40, 40), False),
    ],
)
def test_a_rank_far_above_the_mean_is_named(
    sizes: tuple[int, ...],
    named: bool,  # noqa: FBT001 - a table
) -> None:
    ranks = [
        RecordedRank(number, step="0", host="n1", peak_memory=size * MIB)
        for number, size in enumerate(sizes)
    ]

    notes = list(imbalance_notes(ranks))

    largest = max(range(len(sizes)), key=lambda number: sizes[number])
    most, mean = sizes[largest], sum(sizes) / len(sizes)
    size = f"{most:#.3g}".rstrip(".")
    expected = f"largest: rank {largest} on n1, {size} MiB, {most / mean:.1f} times the"
    assert [note[: len(expected)] for note in notes] == [expected] * named


def test_a_rank_of_several_steps_is_named_with_its_own() -> None:
    ranks = [
        RecordedRank(0, step="1", peak_memory=40 * MIB),
        RecordedRank(0, step="2", peak_memory=160 * MIB),
    ]

    (note,) = imbalance_notes(ranks)

    assert note.startswith("largest: rank 0 of step 2, 160 MiB")


@pytest.mark.parametrize(("wall_time", "cpus"), [(0.05, None), (0.5, 8.0)])
def test_a_mean_of_busy_cpus_needs_a_tenth_of_a_second(
    wall_time: float, cpus: float | None
) -> None:
    usage = Usage(wall_time=wall_time, cpu_time=1.0)
    parts = [msgspec.structs.replace(one, usage=usage) for one in four()]

    assert joined_usage(parts).cpus_used == cpus
