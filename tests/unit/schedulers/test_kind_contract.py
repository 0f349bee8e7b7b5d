"""What each line of the table of schedulers promises to the rest of weigh."""

import argparse
import re
import shlex
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from some_requests import PLAIN, REQUESTS, SIZES, TIMES, a_request

import weigh.schedulers
from weigh.errors import FormatError, UsageError, WeighError
from weigh.flow.run.progress import (
    asking,
    limit_query,
    queried_time_left,
    time_until_limit,
)
from weigh.flow.submit.job_request import refuse_own
from weigh.model.job import JobRequest
from weigh.model.record import Allocation, Request
from weigh.model.report import AccountedElement, ReportMeasure
from weigh.render.request_lines import FORMS, packed_lines, request_form_lines
from weigh.review.advice import AdviceSubject, cpu_flag, memory_flag, time_flag
from weigh.review.figures import with_other_figures
from weigh.review.notes import gpu_flag, report_notes
from weigh.review.runs import ElementRequest
from weigh.runner.slots import gpus_named
from weigh.schedulers import JOB_VARIABLES, KINDS, kind_of_job
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.kind import (
    AccountingWords,
    Argv,
    SchedulerKind,
    SchedulerText,
    directive_line,
)
from weigh.schedulers.reachable import queried_limits
from weigh.units import GIB, HOUR, KIB, MIB

FOLDER = Path(weigh.schedulers.__file__).parent
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
REQUEST = JobRequest(cpus=2, memory=GIB, time_limit=HOUR, virtual_memory=2 * GIB)


TEXTS: dict[str, SchedulerText] = {name: kind.text for name, kind in KINDS.items()}
EACH_TEXT = st.sampled_from([*TEXTS.values()])


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> SchedulerKind:
    return KINDS[request.param]


@pytest.fixture
def dialect(kind: SchedulerKind) -> SchedulerText:
    return kind.text


def subject(name: str, cpus: int = 4) -> AdviceSubject:
    asked = ElementRequest(scheduler=name, cpus=cpus, memory=GIB)
    return AdviceSubject(elements=(), requested=asked, measures={})


def test_its_files_touch_no_machine_and_import_no_other_scheduler(
    kind: SchedulerKind,
) -> None:
    contracts = tomllib.loads(PROJECT.read_text())["tool"]["importlinter"]["contracts"]
    pure = next(one for one in contracts if one["name"].startswith("Pure"))
    others = {f"weigh.schedulers.{name}" for name in {*KINDS} - {kind.name}}
    paths = [*FOLDER.glob(f"{kind.name}.py"), *(FOLDER / kind.name).glob("*.py")]

    for path in paths:
        names = re.findall(r"(?m)^\s*(?:from|import) ([\w.]+)", path.read_text())
        outer = {one.partition(".")[0] for one in names}
        assert not outer & {*pure["forbidden_modules"]}, path
        assert not {".".join(one.split(".")[:3]) for one in names} & others, path
    assert paths


def test_its_commands_are_among_those_that_users_need(kind: SchedulerKind) -> None:
    assert {kind.submits, kind.lists, kind.accounts, kind.probe[0]} <= {*kind.commands}


def test_a_job_is_known_by_its_variable(kind: SchedulerKind) -> None:
    assert kind_of_job({JOB_VARIABLES[kind.name]: "1"}) is kind
    assert JOB_VARIABLES[kind.name] in kind.variables.in_job
    assert kind_of_job({}) is None


def test_no_limit_is_known_outside_of_a_job_or_without_an_answer(
    kind: SchedulerKind,
) -> None:
    assert kind.text.end_time({}) is None
    assert kind.text.limit_argv({}) is None
    assert time_until_limit(None, {}) is None
    env = {JOB_VARIABLES[kind.name]: "12", "JOB_ID": "12"}
    assert limit_query(env) in {None, kind.text.limit_argv(env)}
    assert queried_time_left(env, lambda _argv: "") is None
    with suppress(FormatError):
        assert kind.text.parse_left("no limit is in here\n", 0) is None


def test_advice_is_in_its_options_and_of_memory_at_least_what_is_needed(
    kind: SchedulerKind,
) -> None:
    of_job = subject(kind.name)
    limit = asking({JOB_VARIABLES[kind.name]: "1"})(3600)
    memory = memory_flag(of_job, 3 * GIB)
    flags = (memory, limit, cpu_flag(of_job, 3), gpu_flag(of_job, 5))

    assert "{" not in " ".join(flags)
    assert kind.text.format_time(3600) in limit == time_flag(of_job, 3600)
    assert ("3" in flags[2], "5" in flags[3]) == (True, True)
    assert gpu_flag(of_job, 0).startswith("no ")
    before, _, after = kind.text.OPTIONS.memory.partition("{}")
    size = kind.text.parse_memory(memory.removeprefix(before).removesuffix(after))
    assert size * (4 if kind.traits.address_space else 1) >= 3 * GIB


def test_flags_of_its_job_scripts_are_refused(kind: SchedulerKind) -> None:
    assert kind.backend.OWN
    for flag in kind.backend.OWN:
        with pytest.raises(UsageError, match="set by the job script"):
            refuse_own([(flag, "x")], kind.name)
    refuse_own([("x-unknown", "y")], kind.name)


def test_a_shell_on_a_node_runs_the_words_as_they_are(kind: SchedulerKind) -> None:
    if not kind.traits.queues:  # only its own command can open one
        with pytest.raises(UsageError, match=kind.submits):
            kind.backend.session_flags(REQUEST)
        return
    flags = kind.backend.session_flags(REQUEST)
    words = tuple(word for flag in flags for word in flag)

    argv = kind.backend.session_argv(words, ("python", "a b"))

    # qrsh joins the words, and a shell on the node takes them apart again
    last = shlex.quote("a b") if argv[0] == "qrsh" else "a b"
    assert argv[-2:] == ("python", last)
    assert argv[0] == kind.backend.session_argv((), ("x",))[0]
    assert set(words) <= set(argv)
    assert kind.backend.session_argv(words, ())


def test_a_job_that_is_not_listed_on_a_host_does_not_run_there(
    kind: SchedulerKind,
) -> None:
    question = kind.backend.runs_on_host("12", "node7")

    assert question.argvs[0][0] in kind.commands
    assert not question.read([""])


def test_an_unknown_reason_stays_as_it_is(kind: SchedulerKind) -> None:
    assert kind.backend.in_words("SomethingNew") == "SomethingNew"
    assert not kind.backend.is_hopeless("SomethingNew")


def test_figures_of_accounting_are_named_by_its_command(kind: SchedulerKind) -> None:
    words = kind.accounting.WORDS

    assert isinstance(words, AccountingWords)
    names = (words.memory, words.cpu_time, words.wall_time)
    assert all(name.startswith(kind.accounts) for name in names)


@pytest.mark.parametrize("theirs", [GIB // 2, 3 * GIB])
@pytest.mark.parametrize("killed", [False, True])
def test_a_different_figure_states_which_to_trust(
    kind: SchedulerKind, theirs: int, *, killed: bool
) -> None:
    ours = ReportMeasure(name="memory", unit="bytes", most=float(GIB))
    accounted = AccountedElement(element=0, state="COMPLETED", max_rss=theirs)

    (told,) = with_other_figures(
        (ours,), (accounted,), (), scheduler=kind.name, killed=killed
    )

    (figure,) = told.others
    assert figure.source == kind.accounting.WORDS.memory
    assert figure.word


def test_gpus_of_a_job_are_read_from_its_variables(kind: SchedulerKind) -> None:
    job = {JOB_VARIABLES[kind.name]: "7"}
    for name in kind.variables.gpus:
        assert gpus_named(job | {name: "0,3"}) == ("0", "3")
        assert gpus_named(job | {name: "GPU-6a1b-2c"}) == ("GPU-6a1b-2c",)


def test_a_request_can_be_written_in_its_form(kind: SchedulerKind) -> None:
    assert kind.name in FORMS
    lines = request_form_lines(PLAIN, kind.name)
    packed = packed_lines(PLAIN, kind.name, 80)

    assert all(line.startswith(kind.text.PREFIX) for line in (*lines, *packed))
    assert len(packed) <= len(lines)
    assert request_form_lines(PLAIN, "flags", scheduler=kind.name)


def test_advice_on_a_job_of_an_unknown_scheduler_states_whose_flags_it_shows() -> None:
    found = report_notes(subject("lsf"), ())

    record = msgspec.json.decode(b'{"scheduler": "lsf"}', type=Allocation)
    assert record.scheduler == "lsf"  # it can be read
    (note,) = (one for one in found if one.about == "scheduler")
    assert "'lsf' is unknown to this weigh" in note.words
    assert next(iter(KINDS.values())).title in note.words
    for known in (*KINDS, "local"):
        assert all(one.about != "scheduler" for one in report_notes(subject(known), ()))


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


def test_upper_case_letters_count_by_1024_and_zero_is_never_written(
    dialect: SchedulerText,
) -> None:
    sizes = {"3072K": 3072 * KIB, "500M": 500 * MIB, "4G": 4 * GIB, "2T": 2048 * GIB}
    assert {text: dialect.parse_memory(text) for text in sizes} == sizes
    # because it means everything
    assert dialect.parse_memory(dialect.format_memory(0)) > 0
    assert dialect.parse_time(dialect.format_time(0)) == 1


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
