"""What becomes of a submission without an answer, with a scheduler that is made up."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sessions import check_session
from some_requests import a_submitted_job

from weigh.errors import SchedulerError, SubmissionUnknownError, UsageError
from weigh.flow.here import Here
from weigh.flow.submit.rounds import (
    PartAnswer,
    PartFacts,
    SubmissionRound,
    SubmissionRounds,
    decide_part_outcome,
    link_new,
)
from weigh.flow.submit.rounds import settle_all as settle_store
from weigh.model.job import SubmittedJob
from weigh.schedulers.this_machine import LocalScheduler
from weigh.store import jobs
from weigh.store.identity import (
    ProcessIdentity,
    is_alive,
    process_identity,
    this_machine,
)
from weigh.units import Seconds

GONE = ProcessIdentity(pid=2**22 - 1, start_time=1)


class Queue:
    """A scheduler that keeps what it accepts, and answers as it is told to."""

    name = "slurm"

    def __init__(self) -> None:
        self.accepted: dict[str, str] = {}
        self.cancelled: list[str] = []
        self.error: BaseException | None = None
        self.loses = False
        self.silent = False
        self.before_it_answers: Callable[[], object] = lambda: None

    def submit(
        self, script: str, *, cwd: str, argv: tuple[str, ...] | None = None
    ) -> str:
        assert cwd
        assert argv is None
        if isinstance(self.error, SchedulerError) and not self.loses:
            if isinstance(self.error, SubmissionUnknownError):
                self._accept(script)
            raise self.error
        if self.error is not None:
            raise self.error
        self.before_it_answers()
        return self._accept(script)

    def _accept(self, script: str) -> str:
        job = str(len(self.accepted) + 1)
        self.accepted[Path(script).parent.name] = job
        return job

    def find(self, token: str, *, name: str) -> str | None:
        assert name
        if self.silent:
            raise SchedulerError("squeue: timed out")
        return self.accepted.get(token)

    def patience(self) -> Seconds:
        return 310.0

    def cancel(self, job: SubmittedJob, elements: object) -> None:
        assert elements is None
        self.cancelled.append(job.id)


class Bench:
    """A plan's folder and its store, with whom to send and settle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "p"
        self.folder.mkdir()
        self.store = str(folder / ".weigh")
        self.queue = Queue()
        self.said: list[str] = []

    def sendings(self) -> SubmissionRounds:
        reach = lambda _: self.queue  # noqa: E731
        return SubmissionRounds(str(self.folder), root=self.store, reach=reach)  # type: ignore[arg-type] # a part of a scheduler

    def begin(self) -> SubmissionRound:
        sendings = self.sendings()
        return sendings.begin(sendings.next_number(self.said.append))

    def send(self, sending: SubmissionRound) -> SubmittedJob:
        token, folder = sending.new_token()
        draft = a_submitted_job(
            id="",
            folder=str(self.folder),
            cwd=str(self.folder),
            script="job.sh",
            submitted=1.0,
            token=token,
        )
        return sending.send(self.queue, draft, f"{folder}/job.sh")  # type: ignore[arg-type]

    def submit(self) -> str:
        """Send one job in a round of its own; return its id."""
        with self.begin() as sending:
            return self.send(sending).id

    def change_round(self, **changed: object) -> None:
        """Write other words into the first round."""
        path = self.folder / "sent/1.round"
        document = msgspec.json.decode(path.read_bytes()) | changed
        path.write_bytes(msgspec.json.encode(document))

    def next_number(self) -> int:
        return self.sendings().next_number(self.said.append)

    def settle(self) -> list[str]:
        here = Here(cwd="/", env={}, root=self.store, notify=self.said.append)
        return settle_store(here)

    def lose(self, *, accepted: bool) -> None:
        """Send a job and get no answer."""
        self.queue.error = SubmissionUnknownError("sbatch: Socket timed out")
        self.queue.loses = not accepted
        self.queue.silent = True
        with pytest.raises(SubmissionUnknownError):
            self.submit()
        self.queue.error, self.queue.silent = None, False

    def last_words(self) -> str:
        """Return how a refusal to begin a round ends."""
        with pytest.raises(SubmissionUnknownError) as refusal:
            self.begin()
        return str(refusal.value).partition("; ")[2]

    def token(self) -> Path:
        return next(self.folder.glob("sent/w*"))

    def write(self, name: str, text: str) -> None:
        (self.folder / "sent").mkdir(exist_ok=True)
        (self.folder / "sent" / name).write_text(text)

    def forget(self, *kinds: str) -> None:
        """Remove the files of these kinds."""
        for kind in kinds:
            for path in self.folder.glob(f"sent/*.{kind}"):
                path.unlink()

    def recorded(self) -> list[str]:
        return [job.id for job in jobs.read_jobs(self.store)]

    def kill_sender(self) -> None:
        """Have the round say that a process made it which is no more."""
        self.change_round(process=msgspec.to_builtins(GONE))
        self.forget("left")

    def move_sender(self) -> None:
        """Have the round say that a process on another machine made it."""
        self.forget("left", "over")
        machine = msgspec.to_builtins(this_machine())
        self.change_round(machine=machine | {"host": "far", "boot_id": "other"})

    def later(self, seconds: float) -> None:
        """Let time go by for what was written down."""
        for path in self.folder.glob("sent/*.*"):
            now = path.stat().st_mtime
            os.utime(path, (now - seconds, now - seconds))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_worked_examples_of_rounds(tmp_path_factory: pytest.TempPathFactory) -> None:
    names = {"a_bench": lambda: Bench(tmp_path_factory.mktemp("bench"))}
    check_session(Path(__file__).with_name("rounds.session"), names)


@given(
    st.builds(
        PartFacts,
        found=st.none() | st.just("7"),
        silent=st.none() | st.just("no answer"),
        lives=st.sampled_from([None, True, False]),
        sent=st.floats(0, 1000),
        over=st.none() | st.floats(0, 1000),
        unlisted=st.floats(0, 100),
        patience=st.just(310.0),
    )
)
# sbatch may have run for two minutes since, and the request is taken for five
@example(PartFacts(sent=400.0, unlisted=60.0, patience=310.0))
def test_a_job_is_given_up_only_where_it_can_no_longer_come(facts: PartFacts) -> None:
    verdict = decide_part_outcome(facts)

    if facts.found is not None:
        assert verdict == PartAnswer("7")
    elif isinstance(verdict, PartAnswer):
        since = facts.sent - 120 if facts.over is None else facts.over
        assert verdict.id is None
        assert facts.silent is None
        assert facts.unlisted >= 10
        assert facts.lives is not True or facts.over is not None
        assert since >= 310


def test_a_sender_that_is_at_it_is_named_to_the_other(
    bench: Bench, shorten: Callable[[str, float], None]
) -> None:
    shorten("flow.submit.rounds._FOR_THE_OTHER", 0.0)
    bench.begin()

    with pytest.raises(UsageError, match=rf"by \S+ \(process {os.getpid()} on "):
        bench.begin()


def test_a_sender_that_fails_at_the_same_moment_is_waited_for(bench: Bench) -> None:
    one, other = bench.sendings(), bench.sendings()
    number = other.next_number()
    sending = one.begin(number)
    ends = threading.Timer(0.3, sending.__exit__)
    ends.start()
    with pytest.raises(UsageError, match="tried at the same moment and failed"):
        other.begin(number)
    ends.join()


def test_a_local_job_whose_starter_was_killed_is_found(tmp_path: Path) -> None:
    script = tmp_path / "wabc/job.sh"
    script.parent.mkdir()
    script.write_text("sleep 60\n")
    machine = this_machine()
    local = LocalScheduler(
        env=os.environ, root=str(tmp_path / ".weigh"), machine=machine
    )
    job = local.submit(str(script), cwd=str(tmp_path))
    folder = tmp_path / ".weigh/local" / job
    while not (folder / "pid").exists():
        pass
    (folder / "process").unlink()

    found = local.find("wabc", name="p")

    assert (found, local.find("wdef", name="p")) == (job, None)
    os.killpg(int((folder / "pid").read_text()), signal.SIGKILL)
    assert (folder / "process").exists()


def test_a_process_is_killed_with_the_one_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os\nfrom weigh.schedulers.command import run_scheduler_command\n"
        "command = ('sh', '-c', 'echo $$ >pid; exec sleep 60')\n"
        "run_scheduler_command(command, os.environ, timeout=60,"
        " submits=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert parent.poll() is None
    child = process_identity(int((tmp_path / "pid").read_text()))

    parent.kill()
    parent.wait()

    while is_alive(child):
        pass


def test_a_disk_that_takes_half_a_file_leaves_none(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from weigh.flow.submit.rounds import link_new\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))\n"
        "link_new(sys.argv[1], b'x' * 100)\n"
    )
    argv = [sys.executable, "-B", "-c", program, str(tmp_path / "1.part")]

    done = subprocess.run(argv, capture_output=True, text=True, check=False)

    assert "StoreError: cannot write " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_others_may_read_a_file_of_a_round_and_only_its_owner_writes_it(
    tmp_path: Path,
) -> None:
    before = os.umask(0o022)
    try:
        assert link_new(str(tmp_path / "1.part"), b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "1.part").stat().st_mode & 0o7777 == 0o644
