"""Jobs on this machine: as many elements at once as it holds, found without --on."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from following import Weigh
from transcript import check_transcript, file_writer
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
def no_cluster(here: Weigh, monkeypatch: pytest.MonkeyPatch) -> Weigh:
    """``weigh`` where the commands of each scheduler find no cluster."""
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{here.folder}/bin:/usr/bin:/bin")
    for names, line in (
        ("sbatch squeue scontrol sinfo", NO_CONFIG),
        ("qsub qstat qhost qconf", NO_CELL),
        ("condor_submit condor_status condor_q", NO_POOL),
    ):
        for name in names.split():
            write_program(here.folder / "bin" / name, line)
    return here


def at_once(here: Weigh, plan: str, *words: str) -> int:
    """Return how many elements the job script runs at once."""
    code, out, err = here("submit", plan, "--on", "local", "--dry-run", *words)
    assert code == 0, err
    return int(out.partition('wc -l)" -ge ')[2].partition(" ")[0])


def given_for(here: Weigh, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """Return what sets a variable, or writes a file, as a transcript states."""

    def given(words: str) -> None:
        name, _, text = words.partition(" ")
        if not name.isupper():
            file_writer(here.folder)(words)
        elif text:
            monkeypatch.setenv(name, text)
        else:
            monkeypatch.delenv(name)

    return given


def test_where_a_job_goes_is_shown(
    no_cluster: Weigh, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_cluster.plan("true")
    no_cluster.plan("true", name="q", memory="100M")
    path = Path(__file__).with_name("machine.transcript")

    check_transcript(path, no_cluster, {}, given_for(no_cluster, monkeypatch))


def test_a_dry_run_shows_the_script_of_the_scheduler_that_has_a_cluster(
    no_cluster: Weigh,
) -> None:
    code, out, err = no_cluster("submit", no_cluster.plan("true"), "--dry-run")

    assert (code, "#SBATCH" in out) == (0, False)
    assert "would run on this machine (no cluster: sbatch, qsub" in err


def test_a_plan_of_another_project_is_followed_there_and_not_sent_again(
    here: Weigh,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = os.path.abspath(here.plan("true"))
    here.submit(plan)
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    monkeypatch.chdir(tmp_path_factory.mktemp("other"))

    code, _, err = here("status", plan)

    assert (code, err.endswith(f": cd {here.folder}\n")) == (2, True), err


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_elements_run_side_by_side_each_with_the_threads_of_its_own_cpus(
    here: Weigh,
) -> None:
    notes = "echo $OMP_NUM_THREADS >> threads; "
    plan = here.plan(notes + MEETS.format("a", "b"), notes + MEETS.format("b", "a"))

    assert here.finish(here.submit(plan)) == {"COMPLETED": 2}
    assert (here.folder / "threads").read_text() == "1\n1\n"


def test_no_more_elements_run_at_once_than_the_machine_holds(here: Weigh) -> None:
    cpus, memory = len(os.sched_getaffinity(0)), read_host().memory
    assert memory is not None
    plan = here.plan(*(["true"] * 3 * cpus))

    assert at_once(here, plan) == cpus
    assert at_once(here, plan, "--cpus", str(cpus)) == 1
    assert at_once(here, plan, "--cpus", str(9 * cpus)) == 1
    assert at_once(here, plan, "--memory", f"{memory * 2 // 3}B") == 1
    assert at_once(here, plan, "--gpus", "1") == 1  # they take turns
    assert at_once(here, plan, "--jobs", "1") == 1
    assert at_once(here, plan, "--jobs", "3") == 3


@pytest.mark.parametrize("path", ["plan/p/tasks_0.txt", "p.txt"])
def test_a_plan_whose_task_file_was_edited_resumes_the_tasks_as_they_were(
    here: Weigh, path: str
) -> None:
    job = here.submit(here.plan("cat nothing-here", "true"))
    assert here.finish(job) == {"FAILED": 1, "COMPLETED": 1}
    os.utime("p.txt", (time.time() + 10,) * 2)  # the same lines, saved once more
    assert "was changed since" not in here("resume", job, "--dry-run")[2]
    Path("p.txt").rename("kept")
    os.mkfifo("p.txt")  # as of a plan that was read from <(...)
    assert here("resume", job, "--dry-run")[0] == 0
    Path("kept").rename("p.txt")
    with Path(path).open("w") as file:  # into the same file, as some editors do
        file.write("cat nothing\ntrue\n")
    os.utime(path, (time.time() + 10,) * 2)

    code, out, err = here("resume", job)

    assert (code, "resumed 1 task" in out) == (0, True)
    words = f"{path} was changed since job {job}, whose tasks run as they were"
    assert words in " ".join(err.split())


def test_a_task_file_that_was_edited_after_the_plan_is_noted(here: Weigh) -> None:
    plan, later = here.plan("true", "false"), (time.time() + 10,) * 2
    dry_run = ("submit", plan, "--on", "local", "--dry-run")
    os.utime("p.txt", later)  # the same lines, saved once more
    assert "was changed" not in here(*dry_run)[2]
    Path("p.txt").write_text("true\ntrue\n")
    os.utime("p.txt", later)

    code, _, err = here(*dry_run)

    said = " ".join(err.split())
    assert (code, "p.txt was changed since it was planned" in said) == (0, True)
    assert "p.txt --replace, with its options as before)" in said


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


DOUBTS = {
    "--memory 900T": "of the 900 TiB requested: tasks that use more are",
    "--cpus 9999": "of the 9999 CPUs requested: its tasks take turns",
    "--memory 1M": "",
    "--memory 10M --time 20s": "they are stopped at once",
    "--memory 10M --time 21s": "",
}


@pytest.mark.parametrize("words", DOUBTS)
def test_what_this_machine_or_the_time_does_not_allow_is_one_line(
    here: Weigh, words: str
) -> None:
    said = ("submit", "--on", "local", "--dry-run", *words.split(), "--", "true")
    code, out, err = here(*said)
    printed = " ".join((out + err).split())
    assert (code, DOUBTS[words] in printed) == (0, True)
    doubts = [one for one in ("requested:", "stopped at once") if one in printed]
    assert len(doubts) == bool(DOUBTS[words])


@pytest.mark.parametrize(
    ("name", "way_out"), [("train", "chmod +x ./train"), ("a.py", "python3 ./a.py")]
)
def test_a_command_that_is_not_executable_is_refused_as_such(
    here: Weigh, name: str, way_out: str
) -> None:
    (here.folder / name).write_text("echo\n")
    refused = f"weigh: cannot execute ./{name}: it is not executable ({way_out})\n"
    assert here("submit", "--on", "local", "--", f"./{name}") == (2, "", refused)


def test_a_task_may_begin_with_a_word_of_the_shell_and_a_missing_program_ends_only_it(
    here: Weigh,
) -> None:
    lines = ("cd . && true", "if true; then true; fi", "A=1 true")
    plan = here.plan(*lines, "no-such-program", "./missing")
    assert here.finish(here.submit(plan)) == {"COMPLETED": 3, "FAILED": 2}


@pytest.mark.parametrize(
    ("task", "reasons"),
    [
        ("./train --epochs 3", ("not executable: chmod +x ./train",)),
        ("./bin/train", ("not found on", "Not a directory")),
    ],
)
def test_a_program_that_cannot_be_run_shows_why(
    here: Weigh, task: str, reasons: tuple[str, ...]
) -> None:
    for name in ("train", "bin"):  # a file, which root cannot enter either
        (here.folder / name).write_text("echo\n")
    job = here.submit(here.plan(task))
    assert here.finish(job) == {"FAILED": 1}
    (failure,) = here.status(job)["failures"]
    assert all(reason in failure["reason"] for reason in reasons)
    # it will not be found again: status and resume leave it to a person
    assert here.status(job)["way_out"].endswith("--also bugs")
    assert here.resume(job)["again"] == []
