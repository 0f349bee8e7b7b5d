"""Runs that only asked others to do the work, and those that did it themselves."""

import pytest

from weigh.model.gpu import GpuUsage
from weigh.model.record import ProgramSign, Record, Usage
from weigh.units import MIB
from weigh.work_done_elsewhere import outside_work, outside_work_of

ELSEWHERE = {
    "docker": ("docker", "run", "--rm", "img", "python", "a.py"),
    "a path": ("/usr/bin/docker", "compose", "up"),
    "podman": ("podman", "run", "img", "./a"),
    "kubectl": ("kubectl", "exec", "pod", "--", "./a"),
    "sbatch": ("sbatch", "--wait", "job.sh"),
    "qsub": ("qsub", "-sync", "y", "job.sh"),
    "srun": ("srun", "-n", "4", "./a"),
    "tmux": ("tmux", "new-session", "-d", "python a.py"),
    "screen": ("screen", "-dmS", "name", "./a"),
    "ssh": ("ssh", "node7", "python a.py"),
    "a GPU service": ("curl", "-s", "http://localhost:8000/v1", "-d", "{}"),
    "ollama": ("ollama", "run", "llama3", "hello"),
    "a shell": ("bash", "-euc", "cd a && docker run img > log"),
    "a wrapper": ("timeout", "60", "nice", "-n", "5", "ssh", "-q", "node7", "./a"),
    "weigh around it": ("weigh", "run", "-q", "--", "docker", "run", "img"),
    "an assignment": ("env", "A=1", "kubectl", "apply", "-f", "a.yaml"),
}
HERE = {
    "a program": ("python", "docker.py", "run"),
    "a login": ("ssh", "node7"),
    "a list": ("docker", "ps"),
    "a download": ("curl", "-O", "https://example.org/a.tar"),
    "text": ("bash", "-c", "echo 'docker run img'"),
    "a list of sessions": ("tmux", "ls"),
    "weigh itself": ("weigh", "status", "docker", "run"),
}


@pytest.mark.parametrize("command", ELSEWHERE.values(), ids=ELSEWHERE)
def test_a_client_that_used_next_to_nothing_did_not_do_the_work(
    command: tuple[str, ...],
) -> None:
    who = outside_work_of(command, 60.0, 0.3, 30 * MIB)
    assert who is not None
    assert "not measured" in who


@pytest.mark.parametrize("command", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize(("cpu", "peak"), [(50.0, 30 * MIB), (0.3, 900 * MIB)])
def test_where_processes_of_the_run_did_the_work_it_counts(
    command: tuple[str, ...], cpu: float, peak: int
) -> None:
    assert outside_work_of(command, 60.0, cpu, peak) is None


@pytest.mark.parametrize("command", HERE.values(), ids=HERE)
def test_other_commands_do_their_work_themselves(command: tuple[str, ...]) -> None:
    assert outside_work_of(command, 60.0, 0.3, 30 * MIB) is None


def test_a_client_in_a_script_counts_where_it_was_seen() -> None:
    script = ("bash", "run.sh")
    assert outside_work_of(script, 60.0, 0.3, 30 * MIB) is None
    who = outside_work_of(script, 60.0, 0.3, 30 * MIB, known="docker")
    assert who is not None
    assert who.startswith("docker handed the work to a daemon")
    assert outside_work_of(script, 60.0, 0.3, 30 * MIB, known="gmx") is None


@pytest.mark.parametrize(
    ("is_client", "who"),
    [(True, "docker handed the work to a daemon"), (False, None)],
)
def test_the_largest_process_is_a_client_by_its_sign(
    is_client: bool,  # noqa: FBT001 - a parameter of the test
    who: str | None,
) -> None:
    sign = ProgramSign("docker", "", is_client=is_client)
    usage = Usage(wall_time=60.0, cpu_time=0.3, sign=sign)
    record = Record(id="a", command=("bash", "run.sh"), started="", usage=usage)

    found = outside_work(record)

    assert (found and found.partition(",")[0]) == who


@pytest.mark.parametrize(
    ("own", "others", "who"),
    [
        (0, 8 << 30, "the run asked a service for the work"),
        (0, 0, None),
        (1 << 30, 1, None),
    ],
)
def test_a_gpu_that_a_service_of_the_user_kept_busy_did_the_work(
    own: int, others: int, who: str | None
) -> None:
    gpu = GpuUsage(
        uuid="GPU-1",
        name="V100",
        utilization_mean=60.0,
        peak_memory=own,
        other_memory=others,
    )
    usage = Usage(wall_time=60.0, cpu_time=0.4, gpus=(gpu,))
    record = Record(
        id="a",
        command=("python", "ask.py"),
        started="",
        state="COMPLETED",
        usage=usage,
    )
    found = outside_work(record)
    assert (found and found.partition(",")[0]) == who
