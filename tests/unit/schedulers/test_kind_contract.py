"""What each line of the table of schedulers promises to the rest of weigh."""

import ast
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
from some_requests import PLAIN

import weigh.schedulers
from weigh.errors import FormatError, UsageError
from weigh.flow.run.progress import (
    asking,
    limit_query,
    queried_time_left,
    time_until_limit,
)
from weigh.flow.submit.job_request import refuse_own
from weigh.model.job import JobRequest
from weigh.model.report import AccountedElement, ReportMeasure
from weigh.render.request_lines import FORMS, packed_lines, request_form_lines
from weigh.review.advice import AdviceSubject, cpu_flag, memory_flag, time_flag
from weigh.review.figures import with_other_figures
from weigh.review.notes import gpu_flag, report_notes
from weigh.review.runs import ElementRequest
from weigh.runner.slots import gpus_named
from weigh.schedulers import JOB_VARIABLES, KINDS, kind_of_job
from weigh.schedulers.kind import AccountingWords, SchedulerKind
from weigh.units import GIB, HOUR

FOLDER = Path(weigh.schedulers.__file__).parent
PROJECT = Path(__file__).parents[3] / "pyproject.toml"
REQUEST = JobRequest(cpus=2, memory=GIB, time_limit=HOUR, virtual_memory=2 * GIB)


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> SchedulerKind:
    return KINDS[request.param]


def files_of(kind: SchedulerKind) -> list[Path]:
    """Return the files of a scheduler: one, or those in its folder."""
    paths = [*FOLDER.glob(f"{kind.name}.py"), *(FOLDER / kind.name).glob("*.py")]
    assert paths
    return paths


def subject(name: str, cpus: int = 4) -> AdviceSubject:
    asked = ElementRequest(scheduler=name, cpus=cpus, memory=GIB)
    return AdviceSubject(elements=(), requested=asked, measures={})


def test_a_folder_touches_no_machine(kind: SchedulerKind) -> None:
    project = tomllib.loads(PROJECT.read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    pure = next(one for one in contracts if one["name"].startswith("Pure"))
    forbidden = {*pure["forbidden_modules"]}

    for path in files_of(kind):
        tree = ast.parse(path.read_text())
        plain = [n for n in ast.walk(tree) if isinstance(n, ast.Import)]
        others = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names = {one.name for node in plain for one in node.names}
        names |= {(node.module or "") for node in others}
        assert not forbidden & {name.partition(".")[0] for name in names}, path


def test_a_folder_imports_no_other_scheduler(kind: SchedulerKind) -> None:
    others = tuple(f"weigh.schedulers.{name}" for name in KINDS if name != kind.name)

    for path in files_of(kind):
        text = path.read_text()
        assert not any(f"{other} import" in text for other in others), path
        assert not any(f"{other}." in text for other in others), path


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


def test_a_limit_is_written_as_its_option(kind: SchedulerKind) -> None:
    flag = asking({JOB_VARIABLES[kind.name]: "1"})(3600)

    assert kind.text.format_time(3600) in flag
    assert flag == time_flag(subject(kind.name), 3600)


def test_advice_is_in_its_options(kind: SchedulerKind) -> None:
    flags = (
        memory_flag(subject(kind.name), 2 * GIB),
        cpu_flag(subject(kind.name), 3),
        gpu_flag(subject(kind.name), 5),
        gpu_flag(subject(kind.name), 0),
    )

    assert "{" not in " ".join(flags)
    assert "3" in flags[1]
    assert "5" in flags[2]
    assert flags[3].startswith("no ")


def test_memory_advice_is_at_least_what_is_needed(kind: SchedulerKind) -> None:
    before, _, after = kind.text.OPTIONS.memory.partition("{}")
    flag = memory_flag(subject(kind.name), 3 * GIB)
    slots = 4 if kind.traits.address_space else 1

    size = kind.text.parse_memory(flag.removeprefix(before).removesuffix(after))

    assert size * slots >= 3 * GIB


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

    (note,) = (one for one in found if one.about == "scheduler")
    assert "'lsf' is unknown to this weigh" in note.words
    assert next(iter(KINDS.values())).title in note.words
    for known in (*KINDS, "local"):
        assert all(one.about != "scheduler" for one in report_notes(subject(known), ()))
