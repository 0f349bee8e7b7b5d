"""What each line of the table of schedulers promises to the rest of weigh."""

import argparse
import re
import shlex
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import check_session
from some_requests import REQUESTS, SIZES, TIMES

import weigh.schedulers
from weigh.model.job import JobRequest
from weigh.model.record import Allocation, Request
from weigh.review.advice import AdviceSubject
from weigh.review.notes import report_notes
from weigh.review.runs import ElementRequest
from weigh.schedulers import KINDS
from weigh.schedulers.kind import (
    SchedulerText,
)
from weigh.units import GIB, HOUR, MIB

FOLDER = Path(weigh.schedulers.__file__).parent
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
REQUEST = JobRequest(cpus=2, memory=GIB, time_limit=HOUR, virtual_memory=2 * GIB)


TEXTS: dict[str, SchedulerText] = {name: kind.text for name, kind in KINDS.items()}
EACH_TEXT = st.sampled_from([*TEXTS.values()])


@pytest.mark.parametrize("name", KINDS)
def test_its_files_touch_no_machine_and_import_no_other_scheduler(name: str) -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    pure = next(one for one in contracts if one["name"].startswith("Pure"))
    others = {f"weigh.schedulers.{other}" for other in {*KINDS} - {name}}
    paths = [*FOLDER.glob(f"{name}.py"), *(FOLDER / name).glob("*.py")]

    for path in paths:
        names = re.findall(r"(?m)^\s*(?:from|import) ([\w.]+)", path.read_text())
        outer = {one.partition(".")[0] for one in names}
        assert not outer & {*pure["forbidden_modules"]}, path
        assert not {".".join(one.split(".")[:3]) for one in names} & others, path
    assert paths


@pytest.mark.parametrize("name", KINDS)
def test_worked_examples_of_each_scheduler(name: str) -> None:
    session = Path(__file__).with_name("kind_contract.session")
    check_session(session, {"kind": KINDS[name]})


def test_advice_on_a_job_of_an_unknown_scheduler_states_whose_flags_it_shows() -> None:
    def doubts(scheduler: str) -> list[str]:
        asked = ElementRequest(scheduler=scheduler, cpus=4, memory=GIB)
        subject = AdviceSubject(elements=(), requested=asked, measures={})
        found = report_notes(subject, ())
        return [one.words for one in found if one.about == "scheduler"]

    record = msgspec.json.decode(b'{"scheduler": "lsf"}', type=Allocation)
    assert record.scheduler == "lsf"  # it can be read
    (words,) = doubts("lsf")
    assert "'lsf' is unknown to this weigh" in words
    assert next(iter(KINDS.values())).title in words
    assert not any(doubts(known) for known in (*KINDS, "local"))


# ---- its text: sizes, times, flags, the environment of its jobs


@given(EACH_TEXT, SIZES)
def test_a_size_reads_back_as_itself_or_less_than_a_mebibyte_more(
    dialect: SchedulerText, size: int
) -> None:
    read = dialect.parse_memory(dialect.format_memory(size))

    assert size <= read < size + MIB + (size == 0)


@given(EACH_TEXT, TIMES)
def test_a_time_reads_back_as_itself(dialect: SchedulerText, seconds: int) -> None:
    assert dialect.parse_time(dialect.format_time(seconds)) == seconds


@given(EACH_TEXT, st.floats(min_value=0.001, max_value=1e7))
def test_a_time_with_a_fraction_is_rounded_up(
    dialect: SchedulerText, seconds: float
) -> None:
    read = dialect.parse_time(dialect.format_time(seconds))

    assert read is not None
    assert seconds <= read < seconds + 1


@given(EACH_TEXT, REQUESTS)
def test_directives_hold_nothing_that_a_shell_or_a_line_would_split_up(
    dialect: SchedulerText, request: Request
) -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyzMG0123456789_-=:. ")

    assert set("".join(dialect.directives(request))) <= allowed


@given(REQUESTS)
def test_a_parser_of_sbatch_flags_finds_what_was_requested(request: Request) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--mem", "--cpus-per-task", "--time", "--gres"):
        parser.add_argument(flag)
    slurm = TEXTS["slurm"]

    flags = parser.parse_args(slurm.directives(request))

    assert int(flags.cpus_per_task) == request.cpus
    if request.memory is not None:
        assert slurm.parse_memory(flags.mem) >= request.memory
    if request.time_limit is not None:
        assert slurm.parse_time(flags.time) == request.time_limit
    assert int(flags.gres.split(":")[-1] if flags.gres else 0) == request.gpus


@given(REQUESTS)
def test_all_slots_together_hold_the_virtual_memory(request: Request) -> None:
    gridengine = TEXTS["gridengine"]
    words = shlex.split(" ".join(gridengine.directives(request)))
    asked = dict(word.split("=") for word in words if "=" in word)
    slots = int(words[words.index("smp") + 1]) if "smp" in words else 1

    assert slots == request.cpus
    if request.virtual_memory is not None:
        each = gridengine.parse_memory(asked["h_vmem"])
        assert slots * each >= request.virtual_memory


@given(
    EACH_TEXT,
    st.dictionaries(
        st.sampled_from(
            [*(name for kind in KINDS.values() for name in kind.variables.in_job),
             "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_JOB_ID",
             "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU",
             "SLURM_GPUS_ON_NODE", "SLURM_JOB_GPUS", "SLURM_RESTART_COUNT",
             "JOB_ID", "SGE_TASK_ID", "NSLOTS", "NHOSTS", "QUEUE", "RESTARTED"]
        ),
        st.sampled_from(["", "0", "3", "-1", "undefined", "2(x3)", "9" * 30, "٣"]),
    ),
)  # fmt: skip
def test_no_environment_however_odd_breaks_the_job(
    dialect: SchedulerText, env: dict[str, str]
) -> None:
    allocation = dialect.allocation_from_environment(env)
    job = dialect.job_from_environment(env)

    assert (allocation is None) == (job is None)
    assert allocation is None or allocation.cpus is None or allocation.cpus > 0
