"""A scheduler's commands that are missing, slow, failing, lying, garbled: fakes."""

import json
import os
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from following import Weigh, until
from some_runs import a_run, keep_runs
from transcript import check_transcript, named_rows, named_texts
from written_programs import write_program

from weigh.model.record import Allocation, RecordedJob
from weigh.schedulers.kind import known_answer
from weigh.units import GIB, MIB

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "sinfo", "scontrol")
HERE = Path(__file__).parent


class FakedSlurm:
    """Slurm's commands as lines of bash, and a job of three elements that they took.

    The ``##`` lines of a transcript call its methods, or write the command they name.
    """

    def __init__(self, here: Weigh) -> None:
        self.here, self.bin = here, here.folder.parent / "bin"
        here.scheduler = "slurm"
        self.patch = pytest.MonkeyPatch()
        self.anew()

    def given(self, line: str) -> None:
        """Bring about what a line of the transcript states."""
        name, _, words = line.partition(" ")
        if name in COMMANDS:
            self.command(name, words)
        else:
            getattr(self, name)(*([words] if words else []))

    def command(self, name: str, body: str) -> None:
        self.patch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        write_program(self.bin / name, body)

    def without(self, _commands: str) -> None:
        self.patch.setenv("PATH", str(self.here.folder))

    def anew(self) -> None:
        """Forget all that was, and plan three tasks; nothing is submitted."""
        self.patch.undo()
        self.gone(" ".join(os.listdir(self.here.folder)))
        for name in COMMANDS:
            self.command(name, ":")
        self.here.plan("true", "true", "true")

    def job(self) -> None:
        """Submit the plan: it is job 7."""
        self.anew()
        self.command("sbatch", "echo 7")
        self.here.submit("plan/p")

    def ran(self, job: str) -> None:
        """Keep the record of its first task, which is the only line of a task file."""
        ran = RecordedJob(job, element=0, task=1)
        granted = Allocation(scheduler="slurm", memory=GIB)
        known = {"job": ran, "allocation": granted, "label": "p"}
        keep_runs(Path(), a_run("srun work", 100 * MIB, **known))
        Path("tasks").write_text("srun work\n")

    def states(self, states: str) -> None:
        """Let squeue list the elements of job 7."""
        waits = {"PENDING": "N/A||Priority"}
        lines = (
            f'echo "7|{at}|{state}|{waits.get(state, "1|node1|None")}"\n'
            for at, state in enumerate(states.split())
        )
        self.command("squeue", "".join(lines))

    def ago(self, seconds: str) -> None:
        """Make the job one that was submitted so long ago."""
        path = Path(".weigh/jobs.jsonl")
        submitted = {"submitted": time.time() - float(seconds)}
        path.write_text(json.dumps(json.loads(path.read_text()) | submitted) + "\n")
        os.utime("plan/p/plan.json", (1e9, 1e9))  # the plan is older

    def _change_poll(self, **changed: object) -> None:
        path = Path(".weigh/queue/slurm.json")
        path.write_text(json.dumps(json.loads(path.read_text()) | changed))

    def unsettled(self) -> None:
        """Let accounting not have the end of the job for very long."""
        self._change_poll(unsettled={"7": 1.0})

    def later(self, seconds: str) -> None:
        """Make the last question one that was asked so long ago."""
        tried = json.loads(Path(".weigh/queue/slurm.json").read_text())["tried"]
        self._change_poll(tried=tried - float(seconds))

    def every(self, interval: str) -> None:
        """Ask only so often."""
        self.patch.setenv("WEIGH_POLL", interval)

    def cancelled(self) -> None:
        """Make each cancellation one of long ago."""
        self.patch.setattr("weigh.schedulers.client._TO_CANCEL", 0.0)

    def most(self, elements: str) -> None:
        """Take arrays of so many elements at most."""
        limit = known_answer(int(elements))
        commands = "weigh.schedulers.slurm.scheduler.SlurmCommands"
        self.patch.setattr(f"{commands}.array_limit", lambda *_: limit)

    def patience(self, seconds: str) -> None:
        """Wait only so long for an answer."""
        for name in ("TO_SUBMIT", "_TO_ASK"):
            self.patch.setattr(f"weigh.schedulers.client.{name}", float(seconds))

    def write(self, words: str) -> None:
        name, _, text = words.partition(" ")
        Path(name).write_text(text.replace("\\n", "\n") + "\n")

    def append(self, words: str) -> None:
        name, _, text = words.partition(" ")
        with Path(name).open("a") as file:
            file.write(text)

    def gone(self, names: str) -> None:
        for name in names.split():
            shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()

    # what is so

    def lines(self, words: str) -> None:
        """Check how many lines a file has."""
        number, name = words.split()
        text = Path(name).read_text() if Path(name).exists() else ""
        assert (name, text.count("\n")) == (name, int(number))

    def wrote(self, words: str) -> None:
        """Check all that is in a file."""
        name, _, text = words.partition(" ")
        assert Path(name).read_text() == f"{text}\n"


@pytest.fixture
def faked(here: Weigh) -> Iterator[FakedSlurm]:
    faked = FakedSlurm(here)
    yield faked
    faked.patch.undo()


def test_each_fault_is_shown_with_the_way_out(here: Weigh, faked: FakedSlurm) -> None:
    faked.patch.setattr("weigh.flow.follow.resume._PAUSE", 0.01)
    masks = {
        str(here.folder): "FOLDER",
        str(faked.bin): "BIN",
        r"[\d.]+ (?:ms|s) ago": "N s ago",
        r"5 m \d\d s": "5 m 10 s",
        r"\S+ \(process \d+ on \S+\)": "SENDER",
    }
    check_transcript(HERE / "faults.transcript", here, masks, faked.given)


# what squeue lists, what sacct does, the end of the log of each element, and the states
STANDINGS = named_texts(HERE / "standings.texts")


@pytest.mark.parametrize("row", STANDINGS)
def test_what_queue_accounting_and_logs_show_is_how_the_job_stands(
    here: Weigh, faked: FakedSlurm, row: str
) -> None:
    queue, accounting, *logs, states = STANDINGS[row].splitlines()
    faked.job()
    faked.ago("100")
    faked.command("sacct", accounting)
    faked.command("squeue", queue)
    for element, words in enumerate(logs):
        faked.write(f"plan/p/log/7_{element}.out {words}")

    assert here.status("7")["tasks"] == Counter(states.split())


def test_a_job_that_was_submitted_elsewhere_is_refused_with_its_folder(
    here: Weigh, faked: FakedSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faked.job()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    monkeypatch.delenv("WEIGH_DIR", raising=False)
    faked.command(
        "scontrol",
        "echo JobId=7 JobName=p UserId=$(id -un)\\(0\\) JobState=RUNNING "
        f"WorkDir={here.folder} Command={here.folder}/plan/p/job.sh",
    )

    for verb in ("status", "logs", "resume", "cancel"):
        expected = f"weigh: job 7 was submitted elsewhere: cd {here.folder}\n"
        assert here(verb, "7") == (2, "", expected)


def test_a_local_job_of_another_machine_is_not_called_dead(here: Weigh) -> None:
    job = here.submit(here.plan("true", "true"))
    here.finish(job)
    folder = here.folder / ".weigh/local" / job
    until((folder / "exit").exists)
    process = json.loads((folder / "process").read_text())
    process["machine"] |= {"host": "far", "boot_id": "another", "machine_id": "another"}
    (folder / "process").write_text(json.dumps(process))
    (folder / "exit").unlink()
    for log in (here.folder / "plan/p/log").glob("*_1*"):
        log.unlink()

    assert here.status(job)["tasks"] == {"COMPLETED": 1, "UNKNOWN": 1}


@pytest.mark.parametrize(
    ("scheduler", "flags", "line"), named_rows(HERE / "flags.texts")["go through"]
)
def test_a_scheduler_s_own_flags_go_through(
    scheduler: str, flags: str, line: str, here: Weigh, faked: FakedSlurm
) -> None:
    faked.command("qsub", ":")

    words = (*shlex.split(flags), "plan/p", "--on", scheduler, "--dry-run")
    code, out, err = here("submit", *words)

    assert (code, f"\n{line}\n" in out) == (0, True), out + err


def test_a_dry_run_of_a_command_leaves_nothing_behind(
    here: Weigh, faked: FakedSlurm
) -> None:
    faked.gone("plan p.txt")

    code, out, _ = here("submit", "--on", "slurm", "--dry-run", "--", "true")

    assert (code, out[:11]) == (0, "#!/bin/bash")
    assert not list(here.folder.iterdir())
