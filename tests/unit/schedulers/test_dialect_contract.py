"""What holds for every scheduler's text: each line of the table is tested."""

import argparse
import shlex
from collections.abc import Sequence
from importlib import import_module

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_requests import REQUESTS, SIZES, TIMES, a_request

from weigh.errors import FormatError, WeighError
from weigh.model.record import Allocation, Request
from weigh.schedulers import KINDS
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.kind import (
    Argv,
    SchedulerKind,
    SchedulerText,
    directive_line,
)
from weigh.schedulers.reachable import queried_limits
from weigh.units import GIB, KIB, MIB

DIALECTS: dict[str, SchedulerText] = {name: kind.text for name, kind in KINDS.items()}


@pytest.fixture(params=sorted(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> SchedulerText:
    return DIALECTS[request.param]


def each_dialect() -> st.SearchStrategy[SchedulerText]:
    return st.sampled_from([DIALECTS[name] for name in sorted(DIALECTS)])


@given(each_dialect(), SIZES)
def test_a_size_reads_back_as_itself_or_less_than_a_mebibyte_more(
    dialect: SchedulerText, size: int
) -> None:
    read = dialect.parse_memory(dialect.format_memory(size))

    assert size <= read < size + MIB + (size == 0)


@given(each_dialect(), TIMES)
def test_a_time_reads_back_as_itself(dialect: SchedulerText, seconds: int) -> None:
    assert dialect.parse_time(dialect.format_time(seconds)) == seconds


@given(each_dialect(), st.floats(min_value=0.001, max_value=1e7))
def test_a_time_with_a_fraction_is_rounded_up(
    dialect: SchedulerText, seconds: float
) -> None:
    read = dialect.parse_time(dialect.format_time(seconds))

    assert read is not None
    assert seconds <= read < seconds + 1


@given(each_dialect(), st.text(max_size=10))
def test_no_text_makes_a_parser_raise_anything_but_a_format_error(
    dialect: SchedulerText, text: str
) -> None:
    for parse in (dialect.parse_memory, dialect.parse_time):
        try:
            value = parse(text)
        except FormatError:
            continue
        assert value is None or value >= 0


@given(each_dialect(), REQUESTS)
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
    slurm = DIALECTS["slurm"]

    flags = parser.parse_args(slurm.directives(request))

    assert int(flags.cpus_per_task) == request.cpus
    if request.memory is not None:
        assert slurm.parse_memory(flags.mem) >= request.memory
    if request.time_limit is not None:
        assert slurm.parse_time(flags.time) == request.time_limit
    assert int(flags.gres.split(":")[-1] if flags.gres else 0) == request.gpus


@given(REQUESTS)
def test_all_slots_together_hold_the_virtual_memory(request: Request) -> None:
    gridengine = DIALECTS["gridengine"]
    words = shlex.split(" ".join(gridengine.directives(request)))
    asked = dict(word.split("=") for word in words if "=" in word)
    slots = int(words[words.index("smp") + 1]) if "smp" in words else 1

    assert slots == request.cpus
    if request.virtual_memory is not None:
        each = gridengine.parse_memory(asked["h_vmem"])
        assert slots * each >= request.virtual_memory


def test_zero_is_never_written_because_it_means_everything(
    dialect: SchedulerText,
) -> None:
    assert dialect.parse_memory(dialect.format_memory(0)) > 0
    assert dialect.parse_time(dialect.format_time(0)) == 1


def test_upper_case_letters_count_by_1024(dialect: SchedulerText) -> None:
    assert dialect.parse_memory("3072K") == 3072 * KIB
    assert dialect.parse_memory("500M") == 500 * MIB
    assert dialect.parse_memory("4G") == 4 * GIB
    assert dialect.parse_memory("2T") == 2048 * GIB


@pytest.mark.parametrize("text", ["", "abc", "-4G", "4X", "G", "4 G", "9" * 5000])
def test_a_size_that_is_none_is_refused(dialect: SchedulerText, text: str) -> None:
    with pytest.raises(FormatError, match="size"):
        dialect.parse_memory(text)


@pytest.mark.parametrize("text", ["", "abc", "1h", "1:2:3:4", "1.5", "9" * 5000])
def test_a_time_that_is_none_is_refused(dialect: SchedulerText, text: str) -> None:
    with pytest.raises(FormatError, match="time"):
        dialect.parse_time(text)


def test_what_is_not_known_is_not_requested(dialect: SchedulerText) -> None:
    unknown = a_request(memory=None, virtual_memory=None, time_limit=None)

    text = " ".join(dialect.directives(unknown))

    assert not any(word in text for word in ("mem", "time", "h_rt", "gpu"))


def test_outside_a_job_there_is_no_allocation_and_no_job(
    dialect: SchedulerText,
) -> None:
    env = {"HOME": "/home/ada", "JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf"}

    assert dialect.allocation_from_environment(env) is None
    assert dialect.job_from_environment(env) is None


def test_a_record_of_a_scheduler_from_another_version_can_be_read() -> None:
    stored = b'{"scheduler": "lsf", "cpus": 4}'

    assert msgspec.json.decode(stored, type=Allocation).scheduler == "lsf"


@given(
    each_dialect(),
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


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> SchedulerKind:
    return KINDS[request.param]


def test_a_line_of_the_table_has_the_name_of_its_folder(kind: SchedulerKind) -> None:
    assert import_module(f"weigh.schedulers.{kind.name}").KIND is kind


def test_what_a_scheduler_writes_is_recognized_as_its_directive(
    kind: SchedulerKind,
) -> None:
    (flag, *_) = kind.text.directives(a_request(cpus=2))
    line = directive_line(kind.text, flag)

    assert [k.name for k in KINDS.values() if k.directive.match(line)] == [kind.name]
    has_rules = kind.traits.takes_scripts
    read = kind.lint.directives(f"#!/bin/bash\n{line}\ntrue\n")
    assert read == ((line,) if has_rules else ())


def test_commands_without_an_answer_leave_the_limits_unknown(
    kind: SchedulerKind,
) -> None:
    def nobody(commands: Sequence[Argv]) -> list[CommandOutput]:
        return [CommandOutput(trouble="not found")] * len(commands)

    assert queried_limits(kind, (), nobody).trouble
    assert kind.accounting.parse("") == ()
    with pytest.raises(WeighError, match=kind.site.INSTEAD or f"{kind.title}|its own"):
        kind.site.read_cluster(nobody, {})
