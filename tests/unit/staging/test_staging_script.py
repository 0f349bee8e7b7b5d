"""A job script that stages: one task, real bash, real copies, real signals."""

import signal

import pytest
from processes import pending_signals, until
from staged_node import Node, Tools

from weigh.model.staging import EarlierAttempts

STAYS = "trap 'touch told' TERM; touch ready; until [ -e told ]; do sleep 0.1"


def _ready(node: Node) -> None:
    until(lambda: node.found("work.*/ready"))


@pytest.mark.parametrize(
    ("number", "own", "code"),
    [
        (signal.SIGTERM, 9, 9),
        (signal.SIGUSR1, 9, 9),
        (signal.SIGUSR2, 0, 128 + 12),  # a job stopped half way never ends with zero
    ],
)
def test_a_signal_reaches_the_tasks_and_results_come_home(
    node: Node, number: int, own: int, code: int
) -> None:
    task = node.start(f'bash -c "{STAYS}; done; exit {own}"')
    _ready(node)
    task.signal(number)
    assert task.end() == code
    assert (node.results / "partial-4711/told").exists()
    assert node.left() == []


def test_a_warning_and_then_the_end_are_borne(node: Node) -> None:
    task = node.start(
        'bash -c \'trap "touch told" TERM; touch ready; until [ -e go ]; do '
        "sleep 0.1; done; exit 4'"
    )
    _ready(node)
    task.signal(signal.SIGUSR1)
    until(lambda: node.found("work.*/told"))
    task.signal(signal.SIGTERM)
    # bash may lose the exit code of a task that ends as the signal arrives
    until(lambda: not pending_signals(task.process.pid))
    (work,) = node.found("work.*")
    (work / "go").touch()
    assert task.end() == 4
    assert (node.results / "partial-4711/told").exists()


def test_tasks_that_do_not_listen_are_killed_and_results_come_home(node: Node) -> None:
    task = node.start(
        "bash -c 'trap \"\" TERM; touch ready; while :; do sleep 0.1; done'",
        node.staging(grace=-5),
    )
    _ready(node)
    task.signal(signal.SIGTERM)
    assert task.end() == 128 + 9
    assert (node.results / "partial-4711/ready").exists()


def test_results_are_seen_whole_or_not_at_all_whatever_signal_comes(node: Node) -> None:
    env = node.slow("rsync", "--copy-unsafe-links", at_end=True)
    task = node.start("echo all > a", env=env)
    until(node.is_held)
    assert not (node.results / "a").exists()
    task.signal(signal.SIGTERM)
    node.let_go()
    assert task.end() == 0
    assert (node.results / "a").read_text() == "all\n"


def test_a_signal_while_inputs_are_copied_ends_the_job_at_once(node: Node) -> None:
    node.write("data/a")
    env = node.slow("rsync", "--copy-unsafe-links")
    task = node.start("touch ran", node.taking("data"), env=env)
    until(node.is_held)
    task.signal(signal.SIGTERM)
    assert task.end() == 128 + 15
    assert "stopped by TERM while inputs were copied" in task.errors
    assert not list(node.results.iterdir())
    assert node.left() == []


def test_a_job_goes_on_where_the_one_named_stopped(node: Node) -> None:
    node.run("echo 1 > step; exit 1", element=3)
    before = EarlierAttempts(("4711_3",), "4711", 3)
    staging = node.staging(continues=(before,))
    task = node.run("cat step", staging, job="4712", element=0)
    assert task.output == "1\n"
    assert [path.name for path in node.results.iterdir()] == ["step"]


@pytest.mark.parametrize("tool", ["rsync", "cp"])
def test_results_have_the_modes_they_were_given_and_can_be_removed(
    node: Node, tools: Tools, tool: str
) -> None:
    payload = "umask 027; touch a b; chmod 664 a; mkdir d; chmod 555 d; false"
    node.run(payload, env=tools[tool], before="umask 027")
    partial = node.results / "partial-4711"
    modes = {p.name: p.stat().st_mode & 0o777 for p in (*partial.iterdir(), partial)}
    assert modes == {"a": 0o664, "b": 0o640, "d": 0o755, "partial-4711": 0o750}
    assert node.left() == []
