import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_to_compare import V100, guide_run, repeated, run, usage

from weigh.errors import UsageError
from weigh.flow.records.compare import ComparedRecords, compare_record_groups
from weigh.model.gpu import GpuUsage
from weigh.model.record import CodeProvenance, Record, RecordedHost, RepeatedRun
from weigh.render.comparison_lines import ComparedFigure, FigureChange, RunComparison
from weigh.units import GIB


def compared(*records: Record) -> RunComparison:
    return compare_record_groups(
        [ComparedRecords(record.label or "?", (record,)) for record in records]
    )


def change(comparison: RunComparison, name: str, side: int = 1) -> FigureChange:
    row = comparison.row(name)
    assert row is not None
    found = row.changes[side]
    assert found is not None
    return found


def figure(comparison: RunComparison, name: str, side: int = 1) -> ComparedFigure:
    row = comparison.row(name)
    assert row is not None
    found = row.figures[side]
    assert found is not None
    return found


# The guide's numbers


@pytest.fixture
def guide() -> RunComparison:
    return compared(guide_run(50), guide_run(300))


def test_batch_300_takes_31_per_cent_less_time(guide: RunComparison) -> None:
    assert change(guide, "wall_time").ratio == pytest.approx(1 - 0.3115, abs=1e-4)


def test_batch_300_takes_256_per_cent_more_gpu_memory_in_all(
    guide: RunComparison,
) -> None:
    assert change(guide, "gpu_memory").ratio == pytest.approx(3.556, abs=1e-3)


def test_the_batches_own_share_leaves_the_model_out(guide: RunComparison) -> None:
    small, large = (figure(guide, "batch_gpu_memory", side).median for side in (0, 1))
    assert (small / GIB, large / GIB) == pytest.approx((0.6641, 5.7539), abs=1e-6)


def test_a_sample_is_quicker_though_a_batch_is_slower(guide: RunComparison) -> None:
    sample, batch = change(guide, "time_per_sample"), change(guide, "time_per_batch")
    assert (sample.ratio or 0) < 1 < (batch.ratio or 0)


def test_the_parameter_that_differs_is_named_and_explains_the_command(
    guide: RunComparison,
) -> None:
    assert [(d.name, d.values) for d in guide.differences] == [
        ("batch_size", (50, 300))
    ]


# Spread


def test_one_run_each_makes_no_claim_about_noise(guide: RunComparison) -> None:
    told = change(guide, "wall_time")
    assert (told.distinguishable, told.low, told.high) == (None, None, None)
    assert any(note.startswith("one run each: no spread known") for note in guide.notes)


def test_three_runs_each_that_lie_apart_are_distinguished() -> None:
    told = compared(repeated("a", [8.6, 8.7, 8.5]), repeated("b", [5.9, 6.0, 5.95]))
    assert change(told, "wall_time").distinguishable is True


def test_runs_that_overlap_are_not_distinguishable() -> None:
    told = compared(repeated("a", [8.6, 8.7, 8.5]), repeated("b", [8.55, 8.66, 8.8]))
    assert change(told, "wall_time").distinguishable is False


def test_a_gpu_that_was_never_used_does_not_halve_the_share_of_gpu_time() -> None:
    used = GpuUsage(uuid="1", name=V100, peak_memory=GIB, utilization_mean=0.8)
    idle = GpuUsage(uuid="2", name=V100, peak_memory=0, utilization_mean=0.0)
    comparison = compared(
        run("a", usage(gpus=(used,))), run("b", usage(gpus=(used, idle)))
    )
    assert figure(comparison, "gpu_utilization", 0).median == 0.8
    assert figure(comparison, "gpu_utilization").median == 0.8


def test_one_run_is_held_against_the_spread_of_the_others() -> None:
    near = compared(repeated("a", [8.6, 8.7, 8.5]), run("b", usage(8.8)))
    far = compared(repeated("a", [8.6, 8.7, 8.5]), run("b", usage(5.9)))
    told = [change(one, "wall_time").distinguishable for one in (near, far)]
    assert told == [False, True]


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=7))
def test_a_figure_lies_within_its_own_spread(times: list[float]) -> None:
    told = figure(compared(run(), repeated("b", times)), "wall_time")
    assert told.least <= told.median <= told.most
    assert told.runs == len(times)


# Which runs count


def test_warm_ups_and_failed_runs_are_left_out() -> None:
    runs = (
        RepeatedRun(usage(99.0), exit_code=0, signal=None, warmup=True),
        RepeatedRun(usage(5.0), exit_code=0, signal=None),
        RepeatedRun(usage(1.0), exit_code=3, signal=None),
    )
    told = compared(run(), run("b", repeats=runs))
    assert figure(told, "wall_time") == ComparedFigure(5.0, 5.0, 5.0, 1)
    assert any("1 run failed and left out" in note for note in told.notes)


def test_records_of_one_name_are_repeats() -> None:
    several = tuple(run(f"b{n}", usage(time)) for n, time in enumerate((5.0, 6.0, 7.0)))
    told = compare_record_groups(
        [ComparedRecords("a", (run(),)), ComparedRecords("b", several)]
    )
    assert figure(told, "wall_time") == ComparedFigure(6.0, 5.0, 7.0, 3)


def test_a_run_that_failed_is_reported_to_be_no_measure() -> None:
    told = compared(run(), run("b", state="FAILED", exit_code=3))
    assert any(
        n.startswith("B did not complete (FAILED, exit code 3)") for n in told.notes
    )


# What else is different


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (
            {"host": RecordedHost(name="node09", system="Linux")},
            "different hosts",
        ),
        ({"command": ("python", "other.py")}, "different commands"),
        (
            {"usage": usage(gpus=(GpuUsage(uuid="1", name=V100, peak_memory=1),))},
            "different GPUs: A none, B Tesla",
        ),
        ({"provenance": CodeProvenance(git_commit="b" * 40)}, "different commits"),
    ],
)
def test_what_makes_a_comparison_doubtful_is_reported(
    other: dict[str, object], note: str
) -> None:
    base = run(provenance=CodeProvenance(git_commit="a" * 40))
    told = compared(base, msgspec.structs.replace(base, id="b", **other))
    assert any(one.startswith(note) for one in told.notes)


def test_runs_alike_in_everything_are_doubted_for_nothing_but_their_number() -> None:
    told = compared(run(), msgspec.structs.replace(run(), id="b"))
    assert len(told.notes) == 1
    assert not told.differences


def test_a_parameter_of_one_side_only_is_a_difference() -> None:
    told = compared(run(), run("b", parameters={"lr": 0.1}))
    assert ("lr", (None, 0.1)) in [(d.name, d.values) for d in told.differences]


def test_what_one_side_did_not_measure_has_no_change() -> None:
    told = compared(run(), guide_run(50))
    row = told.row("gpu_memory")
    assert row is not None
    assert row.figures[0] is None
    assert row.changes == (None, None)


@pytest.mark.parametrize("groups", [[], [ComparedRecords("a", (run(),))]])
def test_nothing_to_compare_with_is_refused(groups: list[ComparedRecords]) -> None:
    with pytest.raises(UsageError, match="two records or more"):
        compare_record_groups(groups)


def test_a_record_without_a_measurement_is_named() -> None:
    empty = msgspec.structs.replace(run("b"), usage=None)
    with pytest.raises(UsageError, match="b has no measurement"):
        compared(run(), empty)


def test_a_parameter_that_differs_within_a_side_names_all_its_values() -> None:
    mixed = (run("b", parameters={"n": 1}), run("c", parameters={"n": 2}), run("d"))

    found = compare_record_groups(
        [
            ComparedRecords("a", (run("a", parameters={"n": 1}),)),
            ComparedRecords("b", mixed),
        ]
    )

    [difference] = [one for one in found.differences if one.name == "n"]
    assert difference.values == (1, "1, 2, not recorded")


def test_of_a_run_that_kept_its_repeats_alone_no_gpus_are_known() -> None:
    bare = msgspec.structs.replace(repeated("b", [10.0, 11.0]), usage=None)

    found = compared(run("a"), bare)

    assert not any("different GPUs" in note for note in found.notes)
