"""Parts of nodes as lines: mixed, damaged, late."""

import random

from hypothesis import given
from hypothesis import strategies as st

from weigh.measure.async_command import PartReader
from weigh.measure.node_agent import part_lines
from weigh.model.record import (
    PeakMemory,
    RecordedNode,
    RecordedRank,
    RunMeasurement,
    SampleSeries,
    Usage,
)


def part(node: str, points: int, *, final: bool = False) -> RunMeasurement:
    draw = random.Random(points)
    times = tuple(draw.random() for _ in range(points))
    sizes = tuple(draw.randrange(1 << 40) for _ in range(points))
    series = SampleSeries(times, sizes, (None,) * points)
    peak = PeakMemory(9, 8, 10, 7, 1, 1, "sampled")
    return RunMeasurement(
        started=1.5,
        ended=None,
        exit_code=None,
        signal=None,
        usage=Usage(wall_time=3.5),
        nodes=(RecordedNode(name=node, peak_memory=peak, series=series, final=final),),
        ranks=(RecordedRank(3, step="0", size=4),),
    )


def test_no_line_is_longer_than_what_a_scheduler_keeps_whole() -> None:
    lines = list(part_lines(part("n" * 60, 500), 12))
    assert len(lines) > 3
    assert max(map(len, lines)) < 1000


@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.randoms(), st.data())
def test_lines_of_several_nodes_may_be_mixed_and_cut_anywhere(
    points: list[int], order: random.Random, data: st.DataObject
) -> None:
    parts = [part(f"n{i}", count) for i, count in enumerate(points)]
    lines = [line for one in parts for line in part_lines(one, 1)]
    order.shuffle(lines)
    text = b"".join(lines)
    cut = data.draw(st.integers(0, len(text)))
    reader = PartReader()
    found = [*reader.feed(text[:cut]), *reader.feed(text[cut:])]
    assert sorted(found, key=lambda one: one.nodes[0].name) == parts


@given(st.data())
def test_a_damaged_line_costs_its_part_only(data: st.DataObject) -> None:
    first, second = part("a", 50), part("a", 20, final=True)
    lines = list(part_lines(first, 1))
    lost = data.draw(st.integers(0, len(lines) - 1))
    torn = lines[lost][: data.draw(st.integers(0, len(lines[lost]) - 2))] + b"\n"
    lines[lost] = torn
    reader = PartReader()
    assert reader.feed(b"".join(lines)) == []
    assert reader.feed(b"".join(part_lines(second, 2))) == [second]


@given(st.binary(max_size=300))
def test_noise_is_no_part(noise: bytes) -> None:
    assert PartReader().feed(noise + b"\n") == []
