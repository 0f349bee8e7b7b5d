"""``--mem-update``: what sbatch 26.05.5 makes of it, and what it does to measured runs.

The values that are refused, and the settings without which nothing happens, were tried
on a real 26.05.5.
"""

from typing import Any

import msgspec
import pytest
from memory_runs import loads_then_level, run
from some_limits import SLURM
from some_scripts import sbatch

from weigh.model.lint import Finding, TaskRuns
from weigh.units import Seconds

READY = msgspec.structs.replace(SLURM, memory_update=())
LEVEL = run(loads_then_level)
LATE = run(lambda at: 3.0 if at >= 1500 else 1.2, name="late")
RULE = "mem-update"


def of(value: str, *runs: object, more: str = "--mem=4G", **known: object) -> Finding:
    """Return the finding on a value, for a job of one kind of task with these runs."""
    tasks = TaskRuns(kinds=(runs,)) if runs else TaskRuns()  # type: ignore[arg-type]
    facts: dict[str, Any] = {"limits": READY, "runs": tasks, **known}
    return sbatch(f"{more} --mem-update={value}", **facts)[RULE]


def test_nothing_measured_leaves_a_note_on_later_peaks() -> None:
    found = of("20@10")
    assert found.severity == "note"
    assert "after 10 m 00 s the limit falls to the usage + 20 %" in found.effect


def test_a_limit_below_a_later_peak_is_a_problem_that_names_both() -> None:
    found = of("20@10", LATE, LATE, LATE)
    assert found.severity == "problem"
    assert found.accepted  # by Slurm, which kills it then
    assert found.effect == (
        "at 10 m 00 s run late used 1.20 GiB, so the limit falls to 1.44 GiB; at "
        "25 m 00 s it needs 3.00 GiB: killed"
    )
    assert found.cure.startswith("leave it out: ")


def test_the_right_value_is_named_where_there_is_one() -> None:
    """The delay is over while the model still loads."""

    def slow(at: Seconds) -> float:
        return 0.5 + 2.5 * at / 600 if at < 600 else 1.0

    found = of("20@5", *(run(slow, name="slow"),) * 3)
    assert found.severity == "problem"
    assert "at 5 m 00 s run slow used 1.7" in found.effect
    assert found.cure == "--mem-update=20@20"


def test_each_kind_of_task_that_would_be_killed_is_named() -> None:
    later = run(lambda at: 3.5 if at >= 2400 else 1.2, name="later")
    kinds = TaskRuns(kinds=((LEVEL,) * 3, (LATE,) * 3, (later,) * 3))
    found = all_of("20@10", kinds)
    assert [one.effect.split("run ")[1].split()[0] for one in found] == [
        "late",
        "later",
    ]


def test_a_task_that_shares_its_element_is_doubted_not_refused() -> None:
    shared = TaskRuns(kinds=((LEVEL,) * 3, (LATE,) * 3), together=2)
    found = of("20@10", more="--mem=8G", runs=shared)
    assert found.severity == "note"


def all_of(value: str, runs: TaskRuns) -> list[Finding]:
    from some_scripts import facts, script  # noqa: PLC0415

    from weigh.schedulers.slurm import lint as slurm_lint  # noqa: PLC0415

    text = script("#SBATCH", f"--mem=4G --mem-update={value}")
    found = slurm_lint.lint(text, facts(limits=READY, runs=runs))
    return [one for one in found if one.rule == RULE]


def test_a_value_that_is_right_is_left_alone() -> None:
    assert all_of("25@10", TaskRuns(kinds=((LEVEL,) * 3,))) == []


def test_a_value_with_little_room_is_noted() -> None:
    """It would do at this moment, and not on a node of half the speed."""
    found = of("20@3", LEVEL, LEVEL, LEVEL)
    assert found.severity == "note"
    assert "level around 3 m 00 s" in found.effect
    assert found.cure == "--mem-update=20@5"


@pytest.mark.parametrize(
    ("value", "more", "words"),
    [
        ("20@90", "--mem=4G", "the measured run took 1 h 00 m"),
        ("20@30", "--mem=4G --time=20", "not below the time limit"),
        ("20@600", "--mem=4G --time=02:00:00", "not below the time limit"),
        ("20@10", "--mem=0", "all memory of the node"),
    ],
)
def test_a_limit_that_never_falls_is_noted(value: str, more: str, words: str) -> None:
    found = of(value, LEVEL, more=more)
    assert found.severity == "note"
    assert words in found.effect


def test_tasks_in_turn_are_noted() -> None:
    runs = TaskRuns(kinds=((LEVEL,) * 3,), in_turn=True)
    found = of("25@10", runs=runs)
    assert "a task that just started uses little" in found.effect


def test_a_margin_that_looks_like_a_factor_is_noted() -> None:
    assert "2 is a percentage" in of("2@10").effect


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("20", "did you mean 20@10?"),
        ("20%", "did you mean 20@10?"),
        ("20%@10", "did you mean 20@10?"),
        ("0.2@10", "did you mean 20@10?"),
        ("1.5@10", "did you mean 50@10?"),
        ("20@10m", "did you mean 20@10?"),
        ("20@1h", "did you mean 20@60?"),
        ("20@90s", "did you mean 20@2?"),
        ("auto", "type it: weigh submit"),
        ("20@", "write it like 20@10"),
        ("@10", "write it like 20@10"),
        ("0@10", "write it like 20@10"),
        ("20@0", "write it like 20@10"),
        ("-5@5", "write it like 20@10"),
        ("70000@1", "write it like 20@10"),
        ("20@unlimited", "write it like 20@10"),
        ("20@-1", "write it like 20@10"),
    ],
)
def test_what_sbatch_refuses_is_refused_with_what_was_meant(
    value: str, cure: str
) -> None:
    found = of(value)
    assert not found.accepted
    assert found.cure.startswith(cure)


def test_a_size_is_no_percentage() -> None:
    assert "1G is a size" in of("1G@60").effect


@pytest.mark.parametrize(
    ("lacks", "accepted", "words"),
    [
        (("Slurm 26.05",), False, "needs Slurm 26.05, and this is older: refused"),
        (("PrologFlags=Contain",), True, "the cluster has not PrologFlags=Contain"),
        (("CgroupPlugin=cgroup/v2",), True, "has not CgroupPlugin=cgroup/v2"),
    ],
)
def test_what_the_cluster_lacks_is_named(
    lacks: tuple[str, ...], words: str, *, accepted: bool
) -> None:
    limits = msgspec.structs.replace(SLURM, memory_update=lacks)
    found = of("20@10", LATE, limits=limits)  # nothing falls, so nothing is killed
    assert found.severity == ("note" if accepted else "problem")
    assert found.accepted == accepted
    assert words in found.effect


def test_a_step_manager_of_the_job_is_enough() -> None:
    lacks = ("SlurmctldParameters=enable_stepmgr",)
    limits = msgspec.structs.replace(SLURM, memory_update=lacks)
    assert of("20@10", LATE, limits=limits).severity == "note"
    found = of("20@10", LATE, limits=limits, more="--mem=4G --stepmgr")
    assert found.severity == "problem"
