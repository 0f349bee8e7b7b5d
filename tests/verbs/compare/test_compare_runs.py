"""What comparisons of two runs show: comparisons.texts, and laws over any runs."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_to_compare import V100, repeated, run, usage
from terminal_columns import columns_of
from transcript import check_texts

from weigh.errors import UsageError
from weigh.flow.records.compare import (
    ComparedRecords,
    compare_record_groups,
    figure_change,
)
from weigh.model.gpu import GpuUsage
from weigh.model.record import CodeProvenance, Record, RecordedHost, RepeatedRun
from weigh.render.comparison_lines import RunComparison, comparison_text
from weigh.units import GIB

USED = GpuUsage(uuid="1", name=V100, peak_memory=GIB, utilization_mean=80.0)
IDLE = GpuUsage(uuid="2", name=V100, peak_memory=0, utilization_mean=0.0)
FIRST = run(provenance=CodeProvenance(git_commit="a" * 40))
OF_THREE = repeated("a", [8.6, 8.7, 8.5])
REPEATS = (
    RepeatedRun(usage(99.0), exit_code=0, signal=None, warmup=True),
    RepeatedRun(usage(5.0), exit_code=0, signal=None),
    RepeatedRun(usage(1.0), exit_code=3, signal=None),
)
# the records of each side
PAIRS: dict[str, tuple[list[Record], list[Record]]] = {
    "alike but for the command": ([run()], [run("b")]),
    "three runs each that lie apart": ([OF_THREE], [repeated("b", [5.9, 6.0, 5.95])]),
    "three runs each that overlap": ([OF_THREE], [repeated("b", [8.55, 8.66, 8.8])]),
    "one run near the spread of the others": ([OF_THREE], [run("b", usage(8.8))]),
    "one run far from the others": ([OF_THREE], [run("b", usage(5.9))]),
    "a GPU that was never used halves no share of its time": (
        [run("a", usage(gpus=(USED,)))],
        [run("b", usage(gpus=(USED, IDLE)))],
    ),
    "warm-ups and failed runs are left out": ([run()], [run("b", repeats=REPEATS)]),
    "records of one name are repeats": (
        [run()],
        [run(f"b{n}", usage(time)) for n, time in enumerate((5.0, 6.0, 7.0))],
    ),
    "a run that failed": ([run()], [run("b", state="FAILED", exit_code=3)]),
    **{
        f"another {what}": ([FIRST], [msgspec.structs.replace(FIRST, id="b", **other)])
        for what, other in (
            ("host", {"host": RecordedHost(name="node09", system="Linux")}),
            ("GPU", {"usage": usage(gpus=(USED,))}),
            ("commit", {"provenance": CodeProvenance(git_commit="b" * 40)}),
        )
    },
    "a parameter that differs within a side": (
        [run("a", parameters={"n": 1})],
        [run("b", parameters={"n": 1}), run("c", parameters={"n": 2}), run("d")],
    ),
    # of which no GPUs are known
    "repeats without a usage of the whole": (
        [run("a")],
        [msgspec.structs.replace(repeated("b", [10.0, 11.0]), usage=None)],
    ),
    "wide letters": (
        [run("a", parameters={"corpus": "結果" * 8 + "a"})],
        [run("b", parameters={"corpus": "結果" * 8 + "b"})],
    ),
}


def compared(*groups: Sequence[Record]) -> RunComparison:
    return compare_record_groups(
        [ComparedRecords(group[0].label or "?", tuple(group)) for group in groups]
    )


def test_comparisons_are_as_they_were_reviewed() -> None:
    """The first two whole, of the others the lines that the first lacks."""
    whole = [comparison_text(compared(*sides)) for sides in PAIRS.values()]
    plain = set(whole[0].splitlines())
    shown = [
        "\n".join(row for row in text.splitlines() if row not in plain)
        for text in whole[2:]
    ]
    texts = zip(PAIRS, [*whole[:2], *shown], strict=True)
    path = Path(__file__).with_name("comparisons.texts")
    check_texts(path, {name: f"{text}\n" for name, text in texts})


def test_a_ratio_is_the_same_in_each_unit_and_has_no_interval_with_a_zero() -> None:
    base, other = [2.0, 3.0], [5.0, 6.0]
    milli = figure_change([x / 1e3 for x in base], [x / 1e3 for x in other])
    assert milli.low == pytest.approx(figure_change(base, other).low)
    assert figure_change([0.0, 3.0], other).low is None


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([], "two records or more"),
        ([[run()]], "two records or more"),
        (
            [[run()], [msgspec.structs.replace(run("b"), usage=None)]],
            "b has no measurement",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(
    groups: list[list[Record]], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        compared(*groups)


@given(
    st.lists(
        st.builds(
            lambda name, time, memory, words, value: run(
                name,
                usage(time, memory),
                id=f"{name}{time}",
                command=tuple(words),
                parameters={name: value},
            ),
            st.text(min_size=1, max_size=60),
            st.floats(1e-6, 1e8),
            st.integers(0, 1 << 50),
            st.lists(st.text(max_size=60), min_size=1, max_size=6),
            st.text(max_size=90) | st.integers(),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_no_line_is_wider_than_a_terminal_nor_steers_it(records: list[Record]) -> None:
    text = comparison_text(compared(*([record] for record in records)))
    for line in text.splitlines():
        assert columns_of(line) <= 80
        assert line.isprintable()
