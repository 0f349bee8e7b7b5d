"""What a fit answers, and where it refuses to answer with one number."""

import math
from typing import Any

import msgspec
import pytest
from sized_runs import BY, guide_runs, on_a_line, sized_run, sized_runs

import weigh
from weigh.errors import UsageError
from weigh.estimate.advice import FitOptions, MemoryLimit, advise_from_estimate
from weigh.estimate.curve import (
    ConstantCurve,
    InverseCurve,
    LinearCurve,
    QuadraticCurve,
    gather_size_points,
)
from weigh.estimate.estimate import SizeEstimate
from weigh.estimate.fit import Quantity, caveats, fit_curve
from weigh.model.record import (
    Allocation,
    Record,
    RecordedHost,
    RepeatedRun,
    RunOutcome,
    Usage,
)
from weigh.units import GIB, MIB

GB = 10**9
THIRTY = MemoryLimit("V100", 30 * GB, "gpu_memory")


def memory_fit(records: list[Record]) -> SizeEstimate:
    return weigh.fit(records, by=BY)


def burst(size: float, *evidence: str, **other: object) -> Record:
    out = RunOutcome("ran out of memory", evidence)
    run = sized_run(size, 100 * MIB, state="OUT_OF_MEMORY", outcome=out)
    return msgspec.structs.replace(run, **other)


def test_three_points_of_a_line_predict_the_fourth() -> None:
    made = memory_fit(on_a_line(8, 16, 32))

    assert made.predict(64) == pytest.approx(GIB + 640 * MIB, rel=1e-9)


# The guide's V100: (30 / 0.66) x 50 = 2270 was its answer


def test_the_guide_s_gpu_holds_a_range_with_its_reason_and_the_next_size() -> None:
    held = memory_fit(guide_runs()).holding(30 * GB)

    assert (held.size, held.at_most) == (1137, 1425)
    assert any("grows faster than the size" in reason for reason in held.why)
    assert held.next_size is not None
    assert 300 < held.next_size < 1137


@pytest.mark.parametrize(("near", "size"), [(0.95, 567), (0.9, 269)])
def test_the_smallest_batch_near_the_best_speed_of_the_guide(
    near: float, size: int
) -> None:
    assert memory_fit(guide_runs()).best_size(near) == size


def test_the_guide_is_recommended_the_batch_near_the_best_speed_not_the_largest() -> (
    None
):
    advice = advise_from_estimate(
        memory_fit(guide_runs()), FitOptions(limits=(THIRTY,))
    )

    assert advice.recommended is not None
    assert advice.recommended.size == 567


def test_without_the_model_s_phase_the_guide_s_totals_give_no_warning_of_growth() -> (
    None
):
    bare = [msgspec.structs.replace(run, batches=None) for run in guide_runs()]

    held = memory_fit(bare).holding(30 * GB)

    assert not any("grows faster" in reason for reason in held.why)


# Refusals


def test_two_sizes_give_a_range_and_the_next_size() -> None:
    held = memory_fit(on_a_line(50, 100)).holding(4 * GIB)

    assert held.why
    assert held.size is not None
    assert held.at_most is not None
    assert held.size < held.at_most
    assert held.next_size == 200


@pytest.mark.parametrize(
    ("sizes", "used", "room", "why"),
    [
        ([8, 16, 32], [MIB, 9 * MIB, 25 * MIB], GIB, "below zero"),
        (
            [8, 16, 24],
            [1000 * MIB, 1100 * MIB, 1250 * MIB],
            2 * GIB,
            "slope grows by 33 %",
        ),
        ([8, 16, 24], [1000 * MIB, 1100 * MIB, 1220 * MIB], 1500 * MIB, None),
    ],
)
def test_a_line_is_doubted_for_its_start_and_for_a_slope_that_changes(
    sizes: list[float], used: list[float], room: int, why: str | None
) -> None:
    found = memory_fit(sized_runs(sizes, used)).holding(room).why

    assert found == () if why is None else any(why in reason for reason in found)


def test_beyond_four_times_the_largest_size_there_is_a_reason_and_a_next_size() -> None:
    made = memory_fit(on_a_line(8, 16, 32))

    held = made.holding(GIB + 1300 * MIB)

    assert made.holding(GIB + 1280 * MIB).why == ()
    assert held.why == ("130 is 4.1 times the largest size measured",)
    assert held.next_size is not None
    assert 32 < held.next_size < 130


def test_a_target_far_beyond_is_doubted_and_has_a_next_size() -> None:
    advice = advise_from_estimate(
        memory_fit(on_a_line(8, 16, 32)), FitOptions(target=1000)
    )

    assert any("31 times the largest" in why for why in advice.why)
    assert advice.next_size is not None


def test_one_distinct_size_is_no_curve() -> None:
    with pytest.raises(UsageError, match=r"one distinct size \(8\)"):
        memory_fit([sized_run(8, GIB), sized_run(8, 2 * GIB)])


@pytest.mark.parametrize("size", ["large", math.nan, math.inf, 0, -8])
def test_a_size_that_is_no_number_above_zero_is_left_out_and_alone_refused(
    size: float | str,
) -> None:
    made = memory_fit([sized_run(size, GIB), *on_a_line(8, 16, 32)])

    assert made.records == 3
    assert made.notes == ("1 record left out: its batch_size is not a number above 0",)
    with pytest.raises(
        UsageError, match=f"batch_size='?{size}'? is not a size above 0"
    ):
        memory_fit([sized_run(size, GIB)])


@pytest.mark.parametrize(
    "impossible",
    [
        *({"memory": memory} for memory in (0, -5)),
        *({"memory": GIB, "time": t} for t in (0.0, -1.0, math.nan, math.inf)),
    ],
)
def test_what_cannot_have_been_is_left_out_and_reported(
    impossible: dict[str, float],
) -> None:
    made = memory_fit([*on_a_line(8, 16, 32), sized_run(64, **impossible)])

    quantity: Quantity = "time" if "time" in impossible else "memory"
    assert made.fit_of(quantity).largest_size == 32
    assert any("its memory or time is impossible" in note for note in made.notes)


@pytest.mark.parametrize("x", [0, -1, math.nan, math.inf])
def test_no_figure_for_a_size_that_is_none(x: float) -> None:
    with pytest.raises(UsageError, match="a size must be a number above 0"):
        memory_fit(on_a_line(8, 16, 32)).predict(x)


@pytest.mark.parametrize("level", [0, 1, 95, -1])
def test_no_bound_for_a_level_that_is_no_probability(level: float) -> None:
    with pytest.raises(UsageError, match="not a share between 0 and 1"):
        memory_fit(on_a_line(8, 16, 32)).upper(8, level)


def test_no_records_at_all_point_to_scan() -> None:
    with pytest.raises(UsageError, match="weigh scan"):
        weigh.fit([], by=BY)


def test_a_parameter_that_no_record_has_lists_those_they_have() -> None:
    with pytest.raises(UsageError, match="they have batch_size"):
        weigh.fit(on_a_line(8, 16), by="length")


def test_gpu_memory_that_was_not_measured_is_not_inferred_from_ram() -> None:
    with pytest.raises(UsageError, match="measure a run on a GPU"):
        memory_fit(on_a_line(8, 16, 32)).predict(8, "gpu_memory")


# Curves


def test_memory_that_stays_is_held_at_the_most_seen() -> None:
    made = memory_fit(sized_runs([8, 16, 32], [GIB, 1010 * MIB, 1020 * MIB]))

    assert made.predict(1000) == GIB


def test_a_limit_above_constant_memory_holds_any_size() -> None:
    made = memory_fit(sized_runs([8, 16, 32], [GIB] * 3))

    assert made.largest("4GiB") == math.inf
    assert made.largest("512MiB") == 0


def test_memory_that_comes_down_is_held_at_the_most_seen() -> None:
    made = memory_fit(sized_runs([8, 16, 32], [3 * GIB, 2 * GIB, GIB]))

    assert isinstance(made.fit_of("memory").curve, ConstantCurve)
    assert made.upper(64) >= 3 * GIB


@pytest.mark.parametrize("quantity", ["memory", "time"])
@pytest.mark.parametrize(
    ("sizes", "used"),
    [
        ((2048, 3608, 3768), (15149, 24885, 36735)),
        ((586, 666, 736, 737), (70, 86, 92, 95)),
        ((849, 868, 886, 886.1), (60, 69, 75, 78)),
    ],
)
def test_two_sizes_that_are_almost_the_same_make_no_slope(
    quantity: Quantity, sizes: tuple[float, ...], used: tuple[float, ...]
) -> None:
    pairs = zip(sizes, map(float, used), strict=True)
    made = fit_curve(gather_size_points(pairs, keep="most"), quantity)
    twice = 2 * sizes[-1]

    assert made.upper(twice) < 3 * made.predict(twice)


def test_sizes_that_are_almost_the_same_do_not_count_as_three() -> None:
    pairs = [(10, 100.0), (20, 200.0), (20.5, 204.0)]
    made = fit_curve(gather_size_points(pairs, keep="most"), "memory")

    assert "only 2 of the 3 sizes differ" in caveats(made)[0]


@pytest.mark.parametrize("most", [(5111, 6589, 8743), (100, 180, 175), (8, 20, 21)])
def test_memory_that_rises_unevenly_is_not_taken_to_stay(most: tuple[int, ...]) -> None:
    pairs = [(x, float(y)) for x, y in zip((64, 120, 136), most, strict=True)]
    made = fit_curve(gather_size_points(pairs, keep="most"), "memory")

    assert made.predict(272) > 1.2 * max(most)
    assert caveats(made)


@pytest.mark.parametrize("most", [(40, 120, 86), (120, 60, 80), (80, 60, 85)])
def test_memory_that_does_not_follow_the_size_is_a_reason_not_to_trust_it(
    most: tuple[int, ...],
) -> None:
    pairs = [(x, float(y)) for x, y in zip((40, 96, 112), most, strict=True)]
    made = fit_curve(gather_size_points(pairs, keep="most"), "memory")

    assert any("do not follow the size" in why for why in caveats(made))


def test_six_sizes_of_a_parabola_are_one_and_three_never() -> None:
    few, many = (
        memory_fit(sized_runs(sizes, [GIB + MIB * x * x for x in sizes]))
        for sizes in ([10, 20, 40], [10, 20, 40, 60, 80, 100])
    )

    assert isinstance(few.fit_of("memory").curve, LinearCurve)
    assert isinstance(many.fit_of("memory").curve, QuadraticCurve)
    assert many.predict(200) == pytest.approx(GIB + MIB * 200**2, rel=0.01)


def test_times_that_fall_have_a_floor_that_no_batch_goes_below() -> None:
    runs = [sized_run(x, GIB, time=5.41 + 161.6 / x) for x in (50, 100, 300)]

    time = memory_fit(runs).fit_of("time")

    assert isinstance(time.curve, InverseCurve)
    assert time.predict(10**6) == pytest.approx(5.41, rel=1e-3)


def test_times_that_grow_are_a_line() -> None:
    runs = [sized_run(x, GIB, time=3 + x / 10) for x in (50, 100, 300)]

    assert memory_fit(runs).predict(600, "time") == pytest.approx(63)


def test_single_times_a_tenth_apart_are_no_curve_of_speed() -> None:
    runs = [sized_run(x, GIB, time=t) for x, t in ((25, 7.8), (50, 7.5), (100, 7.1))]

    assert isinstance(memory_fit(runs).fit_of("time").curve, ConstantCurve)


def test_the_time_a_sample_counts_for_speed_where_every_size_has_it() -> None:
    made = memory_fit(guide_runs())

    assert made.speed is made.time_per_sample


def test_the_whole_run_counts_for_speed_where_one_size_has_no_batches() -> None:
    made = memory_fit([*guide_runs(), sized_run(100, GIB, gpu=3 * GB, time=7.0)])

    assert made.speed is made.time


def test_between_sizes_the_bound_is_as_far_off_as_a_size_was() -> None:
    """As tag.py took it: 187 MiB at 30, above the line through its neighbours."""
    made = memory_fit(sized_runs([25, 50, 100], [177 * MIB, 209 * MIB, 261 * MIB]))

    assert made.upper(30) >= 187 * MIB


# Repeats


def test_the_largest_of_repeated_runs_is_what_memory_has_to_hold() -> None:
    made = memory_fit([*on_a_line(8, 16, 32), sized_run(32, 2 * GIB)])

    assert made.fit_of("memory").points[-1].y == 2 * GIB


def test_the_middle_of_repeated_times_is_the_time() -> None:
    runs = [sized_run(8, GIB, time=t) for t in (1.0, 2.0, 30.0)]

    time = memory_fit([*runs, sized_run(16, GIB, time=2.0)]).fit_of("time")

    assert (time.points[0].y, time.points[0].runs) == (2.0, 3)


def test_the_repeats_within_a_record_count_each_and_its_warm_ups_do_not() -> None:
    repeats = tuple(
        RepeatedRun(Usage(wall_time=t), exit_code=0, signal=None, warmup=t > 5)
        for t in (9.0, 1.0, 1.2)
    )
    run = sized_run(8, repeats=repeats)

    made = memory_fit([run, sized_run(16, time=2.0)])

    assert (made.fit_of("time").points[0].y, made.fit_of("time").runs) == (1.1, 3)


# Out of memory is a bound too


def test_a_size_that_ran_out_is_never_held_nor_one_just_below() -> None:
    made = memory_fit([*on_a_line(8, 16, 32), burst(64)])
    near = memory_fit([*on_a_line(8, 16, 62), burst(64)])

    assert made.failed == 64
    assert made.holding("100GiB").at_most == 63
    assert made.largest("100GiB") == 57
    assert near.largest("100GiB") == 62  # it was measured


def test_a_size_that_ran_out_of_little_may_fit_in_more() -> None:
    small = Allocation("slurm", memory=4 * GIB)
    made = memory_fit([*on_a_line(8, 16, 32), burst(64, allocation=small)])

    assert made.largest("4GiB") == 57
    assert made.largest("100GiB") > 64


def test_gpu_memory_that_ran_out_prints_nothing_of_ram() -> None:
    said = "its output says 'CUDA out of memory'"
    runs = [sized_run(x, GIB + x * MIB, gpu=GIB + x * MIB) for x in (8, 16, 32)]

    made = memory_fit([*runs, burst(64, said, usage=runs[0].usage)])

    assert made.fit_of("gpu_memory").failed == 64
    assert made.fit_of("memory").failed is None


def test_a_failure_before_the_gpu_was_used_counts_with_the_runs_on_it() -> None:
    runs = [sized_run(x, GIB + x * MIB, gpu=GIB + x * MIB) for x in (8, 16, 32)]

    assert memory_fit([*runs, burst(64)]).failed == 64


def test_the_next_size_lies_between_what_ran_and_what_did_not() -> None:
    held = memory_fit([*on_a_line(8, 16), burst(64)]).holding(100 * GIB)

    assert held.next_size == 32


# Several parameters


def test_a_product_of_two_parameters_is_a_size() -> None:
    runs = [
        sized_run(
            b,
            GIB + MIB * b * n,
            command=("train.py", f"--b={b}", f"--n={n}"),
            parameters={"b": b, "n": n},
        )
        for b, n in ((8, 128), (16, 32), (32, 64), (8, 512))
    ]

    assert weigh.fit(runs, by="b*n").predict(8192) == GIB + 8192 * MIB


def test_without_a_name_the_one_parameter_that_varies_is_the_size() -> None:
    assert weigh.fit(on_a_line(8, 16, 32)).by == BY


def test_without_a_name_several_that_vary_are_refused() -> None:
    runs = [sized_run(x, GIB, parameters={BY: x, "n": x}) for x in (8, 16)]

    with pytest.raises(UsageError, match="name one of batch_size, n"):
        weigh.fit(runs)


def test_another_parameter_that_varied_is_reported() -> None:
    runs = [
        sized_run(x, GIB + x * MIB, parameters={BY: x, "seed": x}) for x in (8, 16, 32)
    ]

    assert any("seed varied too" in note for note in memory_fit(runs).notes)


# Records of different things


@pytest.mark.parametrize(
    ("other", "note"),
    [
        ({"parameters": {}}, "no parameter batch_size"),
        ({"host": RecordedHost(name="node08", system="Linux")}, "another host, node08"),
        (
            {"command": ("python", "train.py", "64")},
            "another command, python train.py {batch_size}",
        ),
        ({"state": "FAILED"}, "it did not complete"),
    ],
)
def test_records_of_something_else_are_left_out_and_reported(
    other: dict[str, Any], note: str
) -> None:
    made = memory_fit([*on_a_line(8, 16, 32), sized_run(64, GIB, **other)])

    assert (made.records, made.notes) == (3, (f"1 record left out: {note}",))
    assert made.group.host == "node07"


def test_another_gpu_s_records_are_left_out_and_reported() -> None:
    runs = [sized_run(x, GIB, gpu=GIB + x * MIB) for x in (8, 16, 32)]
    card = msgspec.structs.replace(runs[0].usage.gpus[0], name="A100")  # type: ignore[union-attr]
    usage = msgspec.structs.replace(runs[0].usage, gpus=(card,))  # type: ignore[type-var]

    made = memory_fit([*runs, sized_run(64, usage=usage)])

    assert made.notes == ("1 record left out: another GPU, A100",)


def test_another_model_given_by_name_is_another_command() -> None:
    runs = [
        sized_run(
            x,
            GIB * (1 if model == "vgg" else 9),
            command=("train.py", model, str(x)),
            parameters={BY: x, "model": model},
        )
        for x, model in ((8, "vgg"), (16, "vgg"), (32, "vgg"), (64, "bert"))
    ]

    assert memory_fit(runs).fit_of("memory").largest_size == 32


@pytest.mark.parametrize(
    "words",
    [
        ("tag.py", "out-{}.tsv", "{}"),
        ("tag.py", "--batch={}", "1", "2"),
        ("tag.py", "--gpus", "1", "bs{}/v2/log", "{}"),
        ("sh", "-c", "tag.py {} > out/{}.txt"),
    ],
)
def test_the_size_is_known_wherever_it_stands_in_the_command(
    words: tuple[str, ...],
) -> None:
    runs = [
        sized_run(x, GIB + x * MIB, command=tuple(w.format(x, x) for w in words))
        for x in (1, 2, 4)
    ]

    made = memory_fit(runs)

    assert (made.records, made.notes) == (3, ())
    named = tuple(word.replace("{}", "{batch_size}") for word in words)
    assert made.group.command == named


def test_sizes_written_differently_are_the_same_command() -> None:
    texts = {100.0: "1e2", 200.0: "200.0", 400.0: "4.0e2"}
    runs = [
        sized_run(x, GIB + x * MIB, command=("tag.py", text))
        for x, text in texts.items()
    ]

    assert memory_fit(runs).records == 3


# Accumulation is never a silent choice


@pytest.mark.parametrize(
    ("by", "room", "fits"),
    [("batch_size", 8, False), ("batch_size", 80, True), ("vocabulary", 8, False)],
)
def test_only_a_batch_that_does_not_fit_is_split_into_equal_ones_of_the_same_sum(
    by: str,
    room: int,
    fits: bool,  # noqa: FBT001
) -> None:
    runs = [
        sized_run(x, GIB, gpu=GIB + x * 100 * MIB, parameters={by: x})
        for x in (8, 16, 32)
    ]
    card = MemoryLimit("V100", room * GIB, "gpu_memory")

    advice = advise_from_estimate(
        weigh.fit(runs, by=by), FitOptions(target=128, limits=(card,))
    )

    capacity = advice.capacities[0]
    split = capacity.accumulation
    assert capacity.fits_target is fits
    assert (split is not None) == (by == "batch_size" and not fits)
    if split is not None:
        assert split.micro_batch * split.steps == 128
        assert split.micro_batch <= (capacity.holding.size or 0)


# What is recommended


def falling(*sizes: int, each: float = 100 * MIB) -> list[Record]:
    return [sized_run(x, GIB, gpu=GIB + x * each, time=3 + 40 / x) for x in sizes]


def gpu_limits(*sizes: float) -> tuple[MemoryLimit, ...]:
    return tuple(
        MemoryLimit(f"{size}", round(size * GIB), "gpu_memory") for size in sizes
    )


def test_no_more_is_recommended_than_the_largest_gpu_holds() -> None:
    made = memory_fit(falling(8, 16, 32))

    one = advise_from_estimate(made, FitOptions(limits=gpu_limits(4)))
    three = advise_from_estimate(made, FitOptions(limits=gpu_limits(4, 8, 6)))
    tiny = advise_from_estimate(made, FitOptions(limits=gpu_limits(0.1)))

    assert one.recommended is not None
    assert one.recommended.size == one.capacities[0].holding.size
    assert one.held_back == "what 4 holds"
    assert three.recommended is not None
    assert three.recommended.size == three.capacities[1].holding.size
    assert tiny.recommended is None


def test_no_size_is_recommended_for_its_speed_where_one_was_asked_for() -> None:
    made = memory_fit(falling(8, 16, 32))
    of_work = msgspec.structs.replace(made, by="workers")

    assert advise_from_estimate(made, FitOptions()).recommended is not None
    for advice in (
        advise_from_estimate(made, FitOptions(target=64)),
        advise_from_estimate(of_work, FitOptions()),
    ):
        assert (advice.recommended, advice.best_size, advice.speeds) == (None, None, ())


@pytest.mark.parametrize(("more", "size"), [([], 128), ([64], 63)])
def test_nothing_is_recommended_beyond_four_times_the_largest_nor_what_ran_out(
    more: list[int], size: int
) -> None:
    advice = advise_from_estimate(
        memory_fit([*falling(8, 16, 32), *map(burst, more)]), FitOptions()
    )

    assert advice.best_size == 253
    assert advice.recommended is not None
    assert advice.recommended.size == size


def test_a_failure_just_above_the_least_size_leaves_that_size() -> None:
    held = memory_fit([*on_a_line(0.25, 0.5, 1), burst(2)]).holding(30 * GB)

    assert (held.size, held.at_most) == (1, 1)
