"""How far a limit can fall: replayed by what Slurm 26.05 does at each moment.

`replay` is that in a few lines (slurmstepd's account, checked on a real 26.05.5 with
control groups of version 2): one look, usage plus margin, a tenth of the request at
least, no change upwards.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_runs import Curve, loads_then_level, run

from weigh.estimate.settled import FEWEST, fall, longest, lowered, needed_margin
from weigh.model.growth import Lowered
from weigh.model.record import (
    Jvm,
    Node,
    PageCache,
    Record,
    Series,
    Sign,
)
from weigh.units import GIB, MIB, MINUTE, Bytes, Seconds

DATA = Path(__file__).parents[2] / "support/data"


def replay(
    curve: Curve, minutes: float, cut: Lowered, request: Bytes, *, late: Seconds = 0.0
) -> bool:
    """Return whether Slurm would kill a run that starts *late* after its job."""
    limit = request
    looked = False
    for second in range(int(minutes * MINUTE) + 1):
        used = int(curve(second) * GIB)
        if not looked and second + late >= cut.delay * MINUTE:
            looked = True
            new = max(used // MIB * (100 + cut.margin) // 100, request // MIB // 10)
            limit = min(limit, new * MIB)
        if used > limit:
            return True
    return False


def three(curve: Curve, **more: float) -> tuple[Record, ...]:
    return (run(curve, **more),) * FEWEST  # type: ignore[arg-type]


def choose(
    *kinds: Sequence[Record], request: Bytes = 4 * GIB, together: int = 1
) -> Lowered | str:
    return lowered(kinds, request, 0.2, together)


def test_what_only_loading_needed_is_given_back() -> None:
    found = choose(three(loads_then_level))

    assert isinstance(found, Lowered)
    assert found.delay * MINUTE >= 2 * 120
    assert found.margin == 20
    assert GIB < found.limit <= 1.3 * GIB
    for late in (0.0, 30.0, found.delay * MINUTE / 2):
        assert not replay(loads_then_level, 60, found, 4 * GIB, late=late)


def test_a_later_peak_that_all_runs_have_is_left_room() -> None:
    def curve(at: Seconds) -> float:
        return loads_then_level(at) + (0.3 if 3000 < at < 3030 else 0.0)

    found = choose(three(curve))

    assert isinstance(found, Lowered)
    assert not replay(curve, 60, found, 4 * GIB)
    assert found.margin >= 56  # 1.3 x 1.2 of 1.0


def test_a_rare_trough_does_not_make_the_limit_too_small() -> None:
    """Thinning keeps the peaks of a curve: the look may meet what it left out."""

    def curve(at: Seconds) -> float:
        return loads_then_level(at) - (0.25 if at >= 120 and at % 20 == 0 else 0.0)

    record = run(curve)
    assert record.series is not None
    assert min(record.series.memory[100:-1]) == GIB  # the peaks show none of it
    found = choose((record,) * FEWEST)

    assert isinstance(found, Lowered)
    assert all(
        not replay(curve, 60, found, 4 * GIB, late=float(late)) for late in range(41)
    )


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (lambda at: 0.5 + at / 3600, "rises at the end"),
        (
            lambda at: 3.0 if at > 1800 else 1.0,
            "later 3.00 GiB (the peak is 3.00 GiB at 30 m",
        ),
        (lambda at: 1.0 + 2.0 * (at % 60 < 30), "not level"),
        (lambda at: min(1.0, at / 30), "little to release"),
    ],
    ids=["grows", "late peak", "saw-tooth", "all of it is needed"],
)
def test_memory_that_is_not_level_is_left_alone(curve: Curve, why: str) -> None:
    request = 4 * GIB if "little" not in why else int(1.2 * GIB)
    found = choose(three(curve), request=request)
    assert isinstance(found, str)
    assert why in found


def test_each_kind_of_task_has_to_be_level() -> None:
    late = three(lambda at: 3.0 if at > 1800 else 1.0)

    assert isinstance(choose(three(loads_then_level)), Lowered)
    assert isinstance(choose(three(loads_then_level), late), str)


def test_the_slowest_start_of_several_kinds_decides() -> None:
    def slow(at: Seconds) -> float:
        return loads_then_level(at / 5)

    alone, both = (
        choose(three(loads_then_level)),
        choose(three(loads_then_level), three(slow)),
    )

    assert isinstance(alone, Lowered)
    assert isinstance(both, Lowered)
    assert both.delay >= 4 * alone.delay
    assert not replay(slow, 60, both, 4 * GIB)
    assert not replay(loads_then_level, 60, both, 4 * GIB)


def test_tasks_that_run_together_share_the_limit() -> None:
    one, four = (
        choose(three(loads_then_level)),
        choose(three(loads_then_level), request=16 * GIB, together=4),
    )

    assert isinstance(one, Lowered)
    assert isinstance(four, Lowered)
    assert four == msgspec.structs.replace(one, limit=4 * one.limit)


def recorded(label: str) -> list[Record]:
    """Return runs that weigh recorded: of a program that builds an index of a JSON
    file and then looks words up, and of one that allocates more after 100 seconds.
    """
    lines = (DATA / "memory/falling_limit.jsonl").read_text().splitlines()
    runs = [msgspec.json.decode(line, type=Record) for line in lines]
    return [one for one in runs if one.label == label]


def test_a_recorded_program_gives_back_what_its_start_needed() -> None:
    runs = recorded("index")

    found = choose(runs, request=400 * MIB)

    assert isinstance(found, Lowered)
    assert found.limit < 180 * MIB
    for one in runs:
        assert one.series is not None
        after = [
            size
            for at, size in zip(one.series.t, one.series.memory, strict=True)
            if at > found.delay * MINUTE / 2
        ]
        files = one.usage.peak_memory.file or 0  # type: ignore[union-attr]
        assert max(after) * 1.2 <= (min(after[:-1]) - files) * (1 + found.margin / 100)
        assert fall(one, found.margin, found.delay, 400 * MIB) is None


def test_a_recorded_late_peak_would_be_killed() -> None:
    (late,) = recorded("late")

    found = fall(late, 20, 1, 400 * MIB)

    assert found is not None
    assert found.limit < 140 * MIB
    assert found.peak > 300 * MIB
    assert 100 <= found.peak_time <= 113
    assert isinstance(choose([late] * FEWEST, request=400 * MIB), str)


def test_few_runs_do_not_show_how_far_memory_varies() -> None:
    found = choose(three(loads_then_level)[1:])
    assert isinstance(found, str)
    assert f"2 completed runs of it are known, and {FEWEST}" in found


def test_a_run_that_failed_shows_nothing_of_its_end() -> None:
    failed = run(loads_then_level, state="FAILED")
    assert isinstance(choose((*three(loads_then_level)[1:], failed)), str)


def test_runs_of_less_than_a_minute_have_no_delay() -> None:
    found = choose(three(lambda at: 3.0 if at < 2 else 1.0, minutes=0.8, step=0.1))
    assert isinstance(found, str)
    assert "the longest run took 48.0 s: the limit falls a minute after" in found


def test_mapped_files_do_not_count_as_in_use() -> None:
    """Slurm would see 0.2 of 1 GiB, and lower the limit to that."""
    found = choose(three(loads_then_level, files=int(0.8 * GIB)))
    assert isinstance(found, str)
    assert "mapped files" in found


def usage_of(record: Record, **changes: object) -> Record:
    assert record.usage is not None
    return msgspec.structs.replace(
        record, usage=msgspec.structs.replace(record.usage, **changes)
    )


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda r: usage_of(r, growing=None), "too short"),
        (lambda r: usage_of(r, jvm=Jvm(heap_limit=GIB)), "all memory that it is given"),
        (
            lambda r: usage_of(r, sign=Sign("sort", "elastic", "")),
            "all memory that it is given",
        ),
        (lambda r: usage_of(r, cache=PageCache(GIB, GIB)), "reads its files again"),
        (lambda r: usage_of(r, peak_memory=None), "no curve"),
        (lambda r: msgspec.structs.replace(r, series=None), "no curve"),
        (
            lambda r: msgspec.structs.replace(
                r, series=msgspec.structs.replace(r.series, low=())
            ),
            "least memory of run train was not recorded",
        ),
        (lambda r: msgspec.structs.replace(r, nodes=(Node(name="n"),)), "other nodes"),
        (lambda r: msgspec.structs.replace(r, missing=("rank 3",)), "other nodes"),
        (
            lambda r: usage_of(
                r, peak_memory=msgspec.structs.replace(r.usage.peak_memory, file=None)
            ),
            "mapped files is not known",
        ),
    ],
)
def test_what_is_not_known_of_one_run_leaves_the_limit(
    changed: Callable[[Record], Record], why: str
) -> None:
    runs = three(loads_then_level)
    found = choose((*runs[1:], changed(runs[0])))
    assert isinstance(found, str)
    assert why in found


@given(
    level=st.floats(0.2, 3.0),
    noise=st.floats(0.0, 0.5),
    late=st.floats(0.0, 0.4),
    when=st.floats(0.1, 0.95),
    load=st.floats(1.0, 900.0),
    speed=st.floats(0.55, 1.9),
    delay=st.floats(0.0, 20.0),
)
def test_no_run_like_the_measured_ones_is_killed(  # noqa: PLR0913, PLR0917
    level: float,
    noise: float,
    late: float,
    when: float,
    load: float,
    speed: float,
    delay: float,
) -> None:
    """Noise with a trough each 7 s, one later peak, a node of another speed."""

    def curve(at: Seconds) -> float:
        if at < load:
            return 3.5 * at / load
        trough = noise * level if int(at) % 7 == 0 else 0.0
        peak = late * level if abs(at - when * 3600) < 20 else 0.0
        return level + peak - trough

    found = choose(three(curve, step=2.0))
    if isinstance(found, str):
        return
    assert not replay(lambda at: curve(at * speed), 60 / speed, found, 4 * GIB)
    assert not replay(curve, 60, found, 4 * GIB, late=delay)


def test_a_fall_names_what_the_run_had_and_what_it_needs_later() -> None:
    late = run(lambda at: 3.0 if at >= 1500 else 1.2)

    found = fall(late, 20, 10, 4 * GIB)

    assert found is not None
    assert found.run == "train"
    assert found.time == 600
    assert found.peak_time == pytest.approx(1500, abs=10)
    assert found.used == int(1.2 * GIB)
    assert found.limit == pytest.approx(1.44 * GIB, rel=0.01)
    assert found.peak == 3 * GIB


@pytest.mark.parametrize(
    ("margin", "delay", "share"),
    [
        (200, 10, 4 * GIB),  # enough
        (20, 10, GIB),  # it falls to no less than was requested
        (20, 30, 4 * GIB),  # after the peak
        (20, 90, 4 * GIB),  # after the end
    ],
)
def test_a_limit_that_covers_the_rest_kills_nothing(
    margin: int, delay: int, share: Bytes
) -> None:
    late = run(lambda at: 3.0 if 1500 <= at < 1600 else 1.2)
    assert fall(late, margin, delay, share) is None


def test_a_tenth_of_the_request_always_stays() -> None:
    late = run(lambda at: 0.3 if at >= 1500 else 0.01)
    assert fall(late, 20, 10, 4 * GIB) is None
    assert fall(late, 20, 10, 2 * GIB) is not None


def test_pages_of_files_do_not_kill() -> None:
    mapped = run(lambda at: 3.0 if at >= 1500 else 1.2, files=2 * GIB)
    assert fall(mapped, 20, 10, 4 * GIB) is None


def test_the_needed_margin_covers_a_node_of_another_speed() -> None:
    runs = three(loads_then_level)
    assert needed_margin(runs, 10, 0.2) == 20
    assert needed_margin(runs, 3, 0.2) is None  # at half of it the model still loads


def test_a_run_that_was_stopped_may_have_needed_longer() -> None:
    runs = three(loads_then_level)
    assert longest(runs) == 3600
    assert longest((*runs, run(loads_then_level, state="TIMEOUT"))) is None
    assert longest(()) is None


def test_the_empty_series_of_a_short_task_is_no_curve() -> None:
    bare = msgspec.structs.replace(run(loads_then_level), series=Series())
    assert isinstance(choose((bare,) * FEWEST), str)
    assert fall(bare, 20, 10, None) is None
