"""Jobs on this machine: as many elements at once as it holds, found without --on."""

import os
import time
from pathlib import Path

import pytest
from following import Weigh
from written_programs import processes_with, write_program

from weigh.probe.host import read_host

NO_CONFIG = (
    "echo 'sbatch: fatal: Could not establish a configuration source' >&2; exit 1"
)
NO_CELL = (
    "echo 'error: unable to read qmaster name: qmaster hostname in "
    '"/var/lib/gridengine/default/common/act_qmaster" has zero length'
    "' >&2; exit 1"
)
NO_POOL = "echo 'Neither the environment variable CONDOR_CONFIG, ...' >&2; exit 1"
MEETS = "touch {}; for i in $(seq 1200); do [ -e {} ] && exit; sleep .1; done; exit 1"


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in front of PATH, whose sbatch and qsub find no cluster."""
    folder = tmp_path / "bin"
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    write_program(folder / "sbatch", NO_CONFIG)
    write_program(folder / "qsub", NO_CELL)
    write_program(folder / "condor_submit", NO_POOL)
    return folder


def at_once(here: Weigh, plan: str, *words: str) -> int:
    """Return how many elements the job script runs at once."""
    code, out, err = here("submit", plan, "--on", "local", "--dry-run", *words)
    assert code == 0, err
    return int(out.partition('wc -l)" -ge ')[2].partition(" ")[0])


def take_clusters_away(commands: Path) -> None:
    """Let what asks a cluster fail, too, as the commands that submit do."""
    for names, line in (
        ("squeue scontrol sinfo", NO_CONFIG),
        ("qstat qhost qconf", NO_CELL),
        ("condor_status condor_q", NO_POOL),
    ):
        for name in names.split():
            write_program(commands / name, line)


@pytest.mark.parametrize(("typed", "notes"), [("90M", 1), ("200M", 0)])
def test_less_memory_than_the_plan_has_is_noted(
    here: Weigh, typed: str, notes: int
) -> None:
    plan = here.plan("true", memory="100M")

    code, out, err = here("submit", plan, "--on", "local", "--memory", typed)

    assert code == 0, err
    assert (out + err).count("tasks may be killed") == notes


@pytest.mark.parametrize("line", ["cd . && true", "if true; then true; fi", "A=1 true"])
def test_a_task_may_begin_with_a_word_of_the_shell(here: Weigh, line: str) -> None:
    assert here.finish(here.submit(here.plan(line))) == {"COMPLETED": 1}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_elements_run_side_by_side_on_the_cpus_of_this_machine(here: Weigh) -> None:
    plan = here.plan(MEETS.format("a", "b"), MEETS.format("b", "a"))

    assert here.finish(here.submit(plan)) == {"COMPLETED": 2}


def test_each_of_several_elements_has_the_threads_of_its_own_cpus(here: Weigh) -> None:
    plan = here.plan(*["echo $OMP_NUM_THREADS >> threads"] * 2)
    job = here.submit(plan)
    here.finish(job)
    assert (here.folder / "threads").read_text() == "1\n1\n"


def test_no_more_elements_run_at_once_than_there_are_cpus(here: Weigh) -> None:
    cpus = len(os.sched_getaffinity(0))
    plan = here.plan(*(["true"] * 3 * cpus))

    assert at_once(here, plan) == cpus
    assert at_once(here, plan, "--cpus", str(cpus)) == 1
    assert at_once(here, plan, "--cpus", str(9 * cpus)) == 1


def test_elements_that_fill_the_memory_run_one_after_the_other(here: Weigh) -> None:
    memory = read_host().memory
    assert memory is not None
    plan = here.plan("true", "true", memory=f"{memory * 2 // 3}B")

    assert at_once(here, plan) == 1


def test_the_throttle_is_what_was_typed(here: Weigh) -> None:
    plan = here.plan("true", "true", "true")

    assert at_once(here, plan, "--jobs", "1") == 1
    assert at_once(here, plan, "--jobs", "3") == 3


def test_elements_with_gpus_take_turns(here: Weigh) -> None:
    plan = here.plan("true", "true")

    assert at_once(here, plan, "--gpus", "1") == 1


@pytest.mark.usefixtures("commands")
def test_a_job_runs_here_where_no_scheduler_has_a_cluster(here: Weigh) -> None:
    code, out, err = here("submit", here.plan("touch ran"))

    assert (code, err) == (0, "")
    assert "on this machine (no cluster: sbatch, qsub" in " ".join(out.split())
    assert here.finish("p") == {"COMPLETED": 1}


def test_a_job_goes_to_the_scheduler_that_answers(here: Weigh, commands: Path) -> None:
    write_program(commands / "qsub", "echo 7")

    code, out, err = here("submit", here.plan("true"))

    assert (code, "job 7 (no cluster: sbatch)" in out) == (0, True)
    assert "sbatch" not in err


def test_a_job_that_waits_goes_to_the_scheduler_that_answers_too(
    here: Weigh, commands: Path
) -> None:
    write_program(commands / "qsub", "echo 7")
    here("submit", here.plan("true"))
    write_program(commands / "qsub", "echo 8")
    write_program(commands / "qconf", "echo all.q")

    code, out, err = here("submit", "--after", "7", "--name", "c", "--", "true")

    assert (code, "job 8" in out) == (0, True), err


@pytest.mark.usefixtures("commands")
def test_a_command_without_a_plan_goes_on_too(here: Weigh) -> None:
    code, out, _ = here("submit", "--name", "c", "--", "true")

    assert (code, "local-1" in out) == (0, True)


@pytest.mark.usefixtures("commands")
def test_what_may_be_a_login_node_runs_no_job(
    here: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 4 192.0.2.2 22")

    code, _, err = here("submit", here.plan("true"))

    assert (code, "with --on local here" in err) == (125, True)


@pytest.mark.usefixtures("commands")
def test_a_script_without_a_cluster_is_not_sent_to_the_option_that_refuses_it(
    here: Weigh, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/bash\n#SBATCH --time=2\ntrue\n")

    code, _, err = here("submit", str(script))

    assert (code, "weigh run -- bash" in err, "--on local" in err) == (125, True, False)


@pytest.mark.usefixtures("commands")
def test_a_scheduler_that_was_typed_is_not_exchanged(here: Weigh) -> None:
    code, _, err = here("submit", here.plan("true"), "--on", "slurm")

    assert (code, "sbatch finds no cluster" in err) == (125, True)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_flag_is_refused_for_this_machine_not_for_a_scheduler_without_a_cluster(
    here: Weigh, commands: Path, dry: tuple[str, ...]
) -> None:
    take_clusters_away(commands)

    code, _, err = here("submit", "--qos", "high", *dry, "--", "true")

    assert (code, err) == (2, "weigh: jobs on this machine have no --qos: omit it\n")


def test_a_dry_run_shows_the_script_of_the_scheduler_that_has_a_cluster(
    here: Weigh, commands: Path
) -> None:
    take_clusters_away(commands)

    code, out, err = here("submit", here.plan("true"), "--dry-run")

    assert code == 0
    assert "#SBATCH" not in out
    assert "would run on this machine (no cluster: sbatch, qsub" in err


def test_a_plan_whose_task_file_was_edited_resumes_the_tasks_as_they_were(
    here: Weigh,
) -> None:
    job = here.submit(here.plan("cat nothing-here", "true"))
    assert here.finish(job) == {"FAILED": 1, "COMPLETED": 1}
    edited = here.folder / "plan/p/tasks_0.txt"
    with edited.open("w") as file:  # into the same file, as some editors do
        file.write("echo fixed\n")
    os.utime(edited, (time.time() + 10,) * 2)

    code, out, err = here("resume", job)

    assert (code, "resumed 1 task" in out) == (0, True)
    assert f"was changed since job {job}" in err


@pytest.mark.parametrize(
    ("command", "mark"),
    [
        (r'"bash \"\$1\""', '"$2/cancelled"'),  # the job itself is about to start
        (r'"element \"\$number\""', '"$own/cancelled"'),  # or its element
        (r"tasks=\$!", '"$own/cancelled"'),  # or weigh exec, not noted yet
    ],
)
def test_a_job_that_is_cancelled_while_it_starts_does_not_go_on(
    here: Weigh, monkeypatch: pytest.MonkeyPatch, command: str, mark: str
) -> None:
    startup = here.folder / "startup.sh"
    # as if the signal of weigh cancel came between two commands of the script
    case = f"case $BASH_COMMAND in {command}*) touch {mark}; kill $BASHPID ;; esac"
    startup.write_text(f"set -T; trap '{case}' DEBUG\n")
    monkeypatch.setenv("BASH_ENV", str(startup))
    began = time.monotonic()

    job = here.submit(here.plan("sleep 40"))

    assert here.finish(job) == {"CANCELLED": 1}
    while processes_with(cwd=here.folder):
        assert time.monotonic() - began < 30
        time.sleep(0.05)


def test_a_time_in_which_tasks_are_stopped_as_they_begin_is_noted(here: Weigh) -> None:
    for limit, is_noted in (("20s", True), ("21s", False)):
        words = ("--on", "local", "--time", limit, "--dry-run", "--memory", "10M")
        code, out, err = here("submit", *words, "--", "true")
        printed = " ".join((out + err).split())
        assert (code, "they are stopped at once" in printed) == (0, is_noted)


@pytest.mark.parametrize(
    ("words", "lacks"),
    [
        (("--memory", "900T"), "of the 900 TiB requested: tasks that use more are"),
        (("--cpus", "9999"), "of the 9999 CPUs requested: its tasks take turns"),
        (("--memory", "1M"), None),
    ],
)
def test_what_this_machine_does_not_have_is_one_line(
    here: Weigh, words: tuple[str, ...], lacks: str | None
) -> None:
    said = ("submit", "--on", "local", "--dry-run", *words, "--", "true")
    code, out, err = here(*said)
    printed = " ".join((out + err).split())
    assert (code, "requested:" in printed) == (0, lacks is not None)
    assert lacks is None or lacks in printed


@pytest.mark.parametrize(
    ("name", "way_out"), [("train", "chmod +x ./train"), ("a.py", "python3 ./a.py")]
)
def test_a_command_that_is_not_executable_is_refused_as_such(
    here: Weigh, name: str, way_out: str
) -> None:
    (here.folder / name).write_text("echo\n")
    code, _, err = here("submit", "--on", "local", "--", f"./{name}")
    assert code == 2
    assert err == (
        f"weigh: cannot execute ./{name}: it is not executable ({way_out})\n"
    )


def test_a_program_that_is_missing_ends_only_its_own_tasks(here: Weigh) -> None:
    plan = here.plan("true", "no-such-program", "./missing", "echo 1")
    job = here.submit(plan)
    assert here.finish(job) == {"COMPLETED": 2, "FAILED": 2}


def test_a_task_that_is_not_executable_is_reported_as_such(here: Weigh) -> None:
    (here.folder / "train").write_text("echo\n")
    job = here.submit(here.plan("./train --epochs 3"))
    assert here.finish(job) == {"FAILED": 1}
    (failure,) = here.status(job)["failures"]
    assert failure["reason"] == "not executable: chmod +x ./train"
    assert here.resume(job)["again"] == []
