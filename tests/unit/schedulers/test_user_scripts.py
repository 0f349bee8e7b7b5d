"""Scripts that users wrote, read as their scheduler does; jobs that it describes."""

from types import SimpleNamespace

import pytest
from some_requests import a_submitted_job

from weigh.model.job import OwnScript, SubmittedJob
from weigh.model.lint import ScriptFacts
from weigh.schedulers import KINDS
from weigh.schedulers.command import CommandOutput
from weigh.schedulers.slurm.script import parse_scontrol_job
from weigh.units import GIB

FACTS = ScriptFacts(cwd="/w", home="/home/me", user="me")
SLURM = KINDS["slurm"].user_scripts
GRID = KINDS["gridengine"].user_scripts
CONDOR = KINDS["htcondor"].user_scripts


def job(scheduler: str, name: str = "train.sh", **own: object) -> SubmittedJob:
    return a_submitted_job(
        scheduler=scheduler,
        id="42",
        name=name,
        folder="/s",
        cwd="/w",
        script=f"/w/{name}",
        submitted=1000.0,
        request=SimpleNamespace(),
        own=OwnScript(**own),  # type: ignore[arg-type]
        token="w0a",
    )


def test_flags_overrule_directives_and_variables_in_names_are_filled_in() -> None:
    text = "#!/bin/bash\n#SBATCH -t 10 -J a --array=0-3 -o l/%x-%A_%3a.txt\ntrue\n"

    found = SLURM.describe(text, ("--array", "2,8-9%2", "-t", "1:00:00"), "/w/t", FACTS)

    assert (found.name, found.indices, found.throttle) == ("a", "2,8-9", 2)
    assert found.request.time_limit == 3600
    own = job("slurm", indices=found.indices, output=found.output)
    assert SLURM.log(own, 8, None) == "/w/l/a-42_008.txt"


@pytest.mark.parametrize(
    ("pattern", "logs"),
    [
        ("/w/slurm-%j-%n-%a.out", {"3": "/w/slurm-45-0-3.out"}),
        ("/w/%6j_%2a%%.txt", {"3": "/w/000045_03%.txt"}),
        # the first node runs the script; what has not started has no log
        ("/w/%N-%j.out", {"3": "/w/rack1n7-45.out", "1": None}),
    ],
)
def test_logs_with_the_job_id_of_an_element_have_its_other_values_too(
    pattern: str, logs: dict[str, str | None]
) -> None:
    sent = job("slurm", indices="0-3", output=pattern)
    rows = "42_3|45|rack1n[7-8]\n42_1|46|None assigned\n42_3.batch|45.batch|rack1n7\n"

    logs_of_rows = SLURM.raw_logs(sent).read([rows])

    assert {k: logs_of_rows.get(k) for k in logs} == logs


def test_a_comment_of_the_users_is_kept_next_to_the_token() -> None:
    text = '#!/bin/sh\n#SBATCH --comment="grant 7"\ntrue\n'
    found = SLURM.describe(text, (), "/w/t.sh", FACTS)

    sent = SLURM.submit_script_argv(
        "-t.sh", OwnScript(arguments=("a b",)), token="w1", comment=found.comment
    )

    assert sent[2:] == ("--comment=grant 7 weigh:w1", "./-t.sh", "a b")


@pytest.mark.parametrize(
    ("text", "flags", "log"),
    [
        ("#$ -cwd\n", (), "/w/train.sh.o42"),
        ("#$ -N fit\n", (), "/home/me/fit.o42"),
        ("#$ -cwd -o logs/\n", ("-t", "1-9"), "/w/logs/train.sh.o42.3"),
        ("#$ -wd /d -o $USER.$TASK_ID.log\n", ("-t", "1-9"), "/d/me.3.log"),
        ("#$ -cwd -o host:/l/x.$JOB_ID\n", (), "/l/x.42"),
    ],
)
def test_the_log_is_where_grid_engine_writes_it(
    text: str, flags: tuple[str, ...], log: str
) -> None:
    found = GRID.describe(f"#!/bin/bash\n{text}true\n", flags, "/w/train.sh", FACTS)
    own = job("gridengine", found.name, indices=found.indices, output=found.output)

    assert GRID.log(own, 3 if found.indices else None, None) == log


def test_failed_indices_are_one_job_in_slurm_and_few_in_grid_engine() -> None:
    assert [*SLURM.only((3, 7, 8, 9), 2)] == [("--array=3,7-9%2",)]
    assert [*GRID.only((3, 7, 8, 9), 2)] == [
        ("-t", "3-7:4", "-tc", "2"),
        ("-t", "8-9", "-tc", "2"),
    ]
    assert [*GRID.only((5,), 2)] == [("-t", "5-5")]


@pytest.mark.parametrize("numbers", [(1,), (1, 2), (2, 4, 5), (1, 3, 5, 9, 10, 40)])
def test_the_ranges_of_grid_engine_cover_each_index_once(
    numbers: tuple[int, ...],
) -> None:
    covered: list[int] = []
    for flags in GRID.only(numbers, None):
        first, _, rest = flags[1].partition("-")
        last, _, step = rest.partition(":")
        covered += range(int(first), int(last or first) + 1, int(step or 1))

    assert covered == list(numbers)


def test_a_wrapper_has_the_directives_as_written_and_no_command_of_the_script() -> None:
    text = '#!/bin/bash -l\n# a note\n#SBATCH --comment="a  b" # why\n\ntrue\n'
    assert SLURM.wrapper(text, "body").splitlines() == [
        "#!/bin/bash",
        '#SBATCH --comment="a  b" # why',
        "body",
    ]
    below = "#!/bin/sh\ntrue\n#$ -cwd\n"  # qsub reads directives below commands
    assert "#$ -cwd" in GRID.wrapper(below, "body")


@pytest.mark.parametrize(
    ("err", "why"),
    [
        ("", None),
        ("42_1: Job has already finished\n42_2-4: No error\n", None),
        ("42_1-4: Access/permission denied\n", "42_1-4: Access/permission denied"),
    ],
)
def test_a_change_succeeds_if_what_still_waits_was_changed(
    err: str, why: str | None
) -> None:
    assert SLURM.parse_refusal(CommandOutput(int(bool(err)), "", err)) == why


SHOWN = (
    "JobId=44 ArrayJobId=42 ArrayTaskId=4 JobName=a b UserId=me(1) "
    "SubmitTime=1795254181 TimeLimit=00:05:00 NumNodes=1 NumCPUs=1 "
    "Command=/w/a.sh x y WorkDir=/w StdOut=/w/o-42_4.txt Power=\n"
)


def test_an_element_known_by_an_id_of_its_own_is_a_part_of_its_array() -> None:
    found = SLURM.known("44").read((SHOWN, ""))

    assert found is not None
    assert (found.id, found.part, found.user, found.name) == ("42", "4", "me", "a b")
    assert (found.script, found.arguments) == ("/w/a.sh", ("x", "y"))
    assert found.logs == {"4": "/w/o-42_4.txt"}


def accounted(*fields: str) -> str:
    return "\x1f".join(fields) + "\n"


def test_a_job_long_gone_is_read_from_accounting_with_its_command_line() -> None:
    command = "sbatch -t 5 a.sh x"
    rows = "".join(
        accounted(f"42_{n}", str(42 + n), "me", "1795254181", "a", "/w", command)
        for n in (1, 7)
    )

    found = SLURM.known("42_7").read(("", rows))

    assert found is not None
    assert (found.indices, found.part) == ("1,7", "7")
    assert found.line == ("-t", "5", "a.sh", "x")


def test_of_jobs_with_the_same_id_grid_engine_means_the_latest() -> None:
    block = "=" * 30 + "\njobnumber 42\ntaskid {}\nowner me\njobname {}\nqsub_time {}\n"
    old = block.format("undefined", "old", "Mon Nov 23 04:37:16 2015")
    new = block.format("3", "new", "Mon Nov 23 04:37:16 2026")

    found = GRID.known("42").read(("", old + new))

    assert found is not None
    assert (found.name, found.indices) == ("new", "3")


@pytest.mark.parametrize(
    ("path", "flags", "name"),
    [
        ("/w/my job.sh", (), "my_job.sh"),
        ("/w/1a.sh", (), "j1a.sh"),
        ("/w/my job.sh", ("-N", "mine"), ""),
        ("/w/a(b),%.sh", (), ""),
    ],
)
def test_a_script_whose_name_qsub_refuses_is_refused_with_one_that_it_takes(
    path: str, flags: tuple[str, ...], name: str
) -> None:
    found = GRID.describe("#!/bin/bash\ntrue\n", flags, path, FACTS)

    hint = f"qsub takes no job of this name: add -N {name}"
    assert found.refusals == ((hint,) if name else ())


def test_a_lost_submission_is_found_in_accounting_after_its_end() -> None:
    sent = job("slurm", indices="")
    assert SLURM.sent(sent, "me").read(["7_1|sbatch --comment=weigh:w0a x\n"]) == "7"
    assert SLURM.sent(sent, "me").read(["7|sbatch x\n"]) is None


def test_htcondor_takes_no_scripts_and_no_jobs_of_others() -> None:
    assert CONDOR.known("42.1").argvs == ()
    assert not KINDS["htcondor"].traits.takes_scripts


def test_a_job_s_name_of_two_lines_does_not_hide_its_request() -> None:
    shown = (
        "JobId=7 JobName=a\nb UserId=u(1) Mem=9G TimeLimit=00:10:00 NumNodes=1 "
        "NumCPUs=2 TRES=cpu=2,mem=1G,node=1 WorkDir=/p Command=(null)\n"
    )
    request = parse_scontrol_job(shown)
    known = SLURM.known("7").read((shown, ""))

    assert request is not None
    assert (request.cpus, request.memory, request.time_limit) == (2, GIB, 600)
    assert known is not None
    assert (known.name, known.user, known.cwd) == ("a\nb", "u", "/p")


def test_accounting_s_rows_of_several_lines_are_those_of_one_job() -> None:
    line = "sbatch --wrap=x\ny job.sh"
    row = accounted("7_1", "8", "u", "1795248320", "a\nb", "/p", line)
    known = SLURM.known("7").read(("", row))
    sent = "6|sbatch --wrap=a\nb\n7|sbatch --export=A=x\ny --comment=weigh:w0a j.sh\n"

    assert known is not None
    assert (known.name, known.line[-1]) == ("a\nb", "job.sh")
    assert SLURM.sent(job("slurm"), "u").read([sent]) == "7"


def test_the_first_part_of_a_heterogeneous_job_stands_for_it() -> None:
    shown = "".join(
        accounted(f"3+{n}", f"{3 + n}", "me", "1", "h.sh", "/w", "sbatch h.sh")
        for n in range(3)
    )

    known = SLURM.known("3").read(("", shown))

    assert known is not None
    assert (known.id, known.name, known.indices) == ("3", "h.sh", "")
