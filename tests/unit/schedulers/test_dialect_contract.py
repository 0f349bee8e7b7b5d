"""What holds for every scheduler's text: each line of the table is tested."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_requests import REQUESTS, SIZES, TIMES, a_request

from weigh.errors import FormatError, WeighError
from weigh.model.record import Allocation, Request
from weigh.schedulers import (
    JOB_VARIABLES,
    KINDS,
    SUBMITS,
    gridengine,
    htcondor,
    slurm,
)
from weigh.schedulers.dialect import Dialect, directive_line
from weigh.schedulers.gridengine import accounting as gridengine_accounting
from weigh.schedulers.gridengine import commands as gridengine_commands
from weigh.schedulers.gridengine import lint as gridengine_lint
from weigh.schedulers.gridengine import reasons as gridengine_reasons
from weigh.schedulers.gridengine import user_script as gridengine_user_script
from weigh.schedulers.htcondor import scheduler as htcondor_scheduler
from weigh.schedulers.protocol import (
    Accounting,
    Argv,
    Backend,
    Kind,
    Lint,
    Reasons,
    Reply,
    UserScripts,
    Who,
)
from weigh.schedulers.slurm import accounting as slurm_accounting
from weigh.schedulers.slurm import commands as slurm_commands
from weigh.schedulers.slurm import lint as slurm_lint
from weigh.schedulers.slurm import reasons as slurm_reasons
from weigh.schedulers.slurm import user_script as slurm_user_script
from weigh.units import GIB, HOUR, KIB, MIB

DIALECTS: dict[str, Dialect] = {name: kind.text for name, kind in KINDS.items()}


def is_clock(dialect: Dialect) -> bool:
    """Return whether times are written with colons, not as a number of seconds."""
    return ":" in dialect.format_time(60)


@pytest.fixture(params=sorted(DIALECTS))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return DIALECTS[request.param]


def each_dialect() -> st.SearchStrategy[Dialect]:
    return st.sampled_from([DIALECTS[name] for name in sorted(DIALECTS)])


@given(each_dialect(), SIZES)
def test_a_size_reads_back_as_at_least_itself(dialect: Dialect, size: int) -> None:
    assert dialect.parse_memory(dialect.format_memory(size)) >= size


@given(each_dialect(), st.integers(min_value=1, max_value=1 << 50))
def test_a_size_reads_back_as_less_than_a_mebibyte_more(
    dialect: Dialect, size: int
) -> None:
    assert dialect.parse_memory(dialect.format_memory(size)) - size < MIB


@given(each_dialect(), TIMES)
def test_a_time_reads_back_as_itself(dialect: Dialect, seconds: int) -> None:
    assert dialect.parse_time(dialect.format_time(seconds)) == seconds


@given(each_dialect(), st.floats(min_value=0.001, max_value=1e7))
def test_a_time_with_a_fraction_is_rounded_up(dialect: Dialect, seconds: float) -> None:
    read = dialect.parse_time(dialect.format_time(seconds))

    assert read is not None
    assert seconds <= read < seconds + 1


@given(each_dialect(), st.text(max_size=10))
def test_no_text_makes_a_parser_raise_anything_but_a_format_error(
    dialect: Dialect, text: str
) -> None:
    for parse in (dialect.parse_memory, dialect.parse_time):
        try:
            value = parse(text)
        except FormatError:
            continue
        assert value is None or value >= 0


@given(each_dialect(), REQUESTS)
def test_directives_hold_nothing_that_a_shell_or_a_line_would_split_up(
    dialect: Dialect, request: Request
) -> None:
    allowed = set("abcdefghijklmnopqrstuvwxyzMG0123456789_-=:. ")

    assert set("".join(dialect.directives(request))) <= allowed


def test_zero_is_never_written_because_it_means_everything(dialect: Dialect) -> None:
    assert dialect.parse_memory(dialect.format_memory(0)) > 0
    assert dialect.parse_time(dialect.format_time(0)) == 1


def test_upper_case_letters_count_by_1024(dialect: Dialect) -> None:
    assert dialect.parse_memory("3072K") == 3072 * KIB
    assert dialect.parse_memory("500M") == 500 * MIB
    assert dialect.parse_memory("4G") == 4 * GIB
    assert dialect.parse_memory("2T") == 2048 * GIB


@pytest.mark.parametrize("name", [n for n, d in DIALECTS.items() if is_clock(d)])
def test_three_clock_fields_are_hours_minutes_seconds(name: str) -> None:
    assert DIALECTS[name].parse_time("01:30:05") == HOUR + 30 * 60 + 5


@pytest.mark.parametrize("text", ["", "abc", "-4G", "4X", "G", "4 G", "9" * 5000])
def test_a_size_that_is_none_is_refused(dialect: Dialect, text: str) -> None:
    with pytest.raises(FormatError, match="size"):
        dialect.parse_memory(text)


@pytest.mark.parametrize("text", ["", "abc", "1h", "1:2:3:4", "1.5", "9" * 5000])
def test_a_time_that_is_none_is_refused(dialect: Dialect, text: str) -> None:
    with pytest.raises(FormatError, match="time"):
        dialect.parse_time(text)


def test_what_is_not_known_is_not_requested(dialect: Dialect) -> None:
    unknown = a_request(memory=None, virtual_memory=None, time_limit=None)

    text = " ".join(dialect.directives(unknown))

    assert not any(word in text for word in ("mem", "time", "h_rt", "gpu"))


def test_outside_a_job_there_is_no_allocation_and_no_job(dialect: Dialect) -> None:
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
    dialect: Dialect, env: dict[str, str]
) -> None:
    allocation = dialect.allocation_from_environment(env)
    job = dialect.job_from_environment(env)

    assert (allocation is None) == (job is None)
    assert allocation is None or allocation.cpus is None or allocation.cpus > 0


@pytest.fixture(params=sorted(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_the_files_of_each_folder_are_what_their_protocols_demand() -> None:
    """Compare them: at run time by name, and in these lines by mypy."""
    backends: list[Backend] = [slurm_commands, gridengine_commands, htcondor_scheduler]
    lints: list[Lint] = [slurm_lint, gridengine_lint, htcondor_scheduler]
    accounts: list[Accounting] = [
        slurm_accounting,
        gridengine_accounting,
        htcondor_scheduler,
    ]
    reasons: list[Reasons] = [slurm_reasons, gridengine_reasons, htcondor_scheduler]
    scripts: list[UserScripts] = [
        slurm_user_script,
        gridengine_user_script,
        htcondor_scheduler,
    ]

    assert [kind.backend for kind in KINDS.values()] == backends
    assert [kind.lint for kind in KINDS.values()] == lints
    assert [kind.accounting for kind in KINDS.values()] == accounts
    assert [kind.reasons for kind in KINDS.values()] == reasons
    assert [kind.user_scripts for kind in KINDS.values()] == scripts


def test_a_line_of_the_table_is_as_its_folder(kind: Kind) -> None:
    kinds: list[Kind] = [slurm.KIND, gridengine.KIND, htcondor.KIND]  # mypy compares

    assert [*KINDS.values()] == kinds
    assert JOB_VARIABLES[kind.name] == kind.job_variable
    assert SUBMITS[kind.name] == kind.submits


def test_a_line_of_the_table_has_the_name_of_its_folder(kind: Kind) -> None:
    assert kind.text.__name__ == f"weigh.schedulers.{kind.name}.text"  # type: ignore[attr-defined] # a module
    assert kind.backend.NAME == kind.text.NAME == kind.name


def test_what_a_scheduler_writes_is_recognized_as_its_directive(kind: Kind) -> None:
    (flag, *_) = kind.text.directives(a_request(cpus=2))
    line = directive_line(kind.text, flag)

    assert [k.name for k in KINDS.values() if k.directive.match(line)] == [kind.name]
    has_rules = kind.traits.takes_scripts
    assert kind.lint.directives(f"#!/bin/bash\n{line}\ntrue\n") == int(has_rules)


def test_commands_without_an_answer_leave_the_limits_unknown(kind: Kind) -> None:
    def nobody(commands: Sequence[Argv]) -> list[Reply]:
        return [Reply(trouble="not found")] * len(commands)

    assert kind.read_limits(Who(user="ada"), nobody).trouble == "not found"
    assert kind.resource_names(nobody) == {}
    assert kind.accounting.parse("") == ()
    with pytest.raises(WeighError, match=kind.title):
        kind.read_cluster(nobody, {})
