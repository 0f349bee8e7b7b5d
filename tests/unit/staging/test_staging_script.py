"""A job script that stages: one task, real bash, real copies, real signals."""

import signal

import pytest
from staged_node import Node, Task, Tools, until

from weigh.model.staging import EarlierAttempts

STAYS = "trap 'echo told > told; exit 9' TERM; touch ready; while :; do sleep 0.1; done"


def _stays(code: int = 9) -> str:
    return f'bash -c "{STAYS.replace("exit 9", f"exit {code}")}"'


def _ready(node: Node, *elements: int) -> None:
    until(lambda: len(node.found("work.*/ready")) >= max(1, len(elements)))


def _stopped(node: Node, number: int, code: int = 9) -> Task:
    task = node.start(_stays(code))
    _ready(node)
    task.signal(number)
    task.end()
    return task


def test_output_of_the_tasks_is_the_scripts(node: Node) -> None:
    task = node.run("echo out; echo err >&2")
    assert (task.output, task.errors) == ("out\n", "err\n")


@pytest.mark.parametrize("code", [1, 3, 125, 200, 255])
def test_failure_passes_its_exit_code_through(node: Node, code: int) -> None:
    assert node.run(f"bash -c 'exit {code}'").process.returncode == code


def test_results_of_a_failure_are_kept_apart(node: Node) -> None:
    task = node.run("echo half > a; false")
    assert (node.results / "partial-4711/a").read_text() == "half\n"
    assert not (node.results / "a").exists()
    assert str(node.results / "partial-4711") in task.errors
    assert node.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_reaches_the_tasks_and_results_come_home(
    node: Node, number: int
) -> None:
    task = _stopped(node, number)
    assert task.process.returncode == 9
    assert (node.results / "partial-4711/told").exists()
    assert node.left() == []


def test_a_job_stopped_half_way_never_ends_with_zero(node: Node) -> None:
    assert _stopped(node, signal.SIGUSR1, code=0).process.returncode == 128 + 10


def test_a_warning_and_then_the_end_are_borne(node: Node) -> None:
    task = node.start(
        'bash -c \'trap "touch told" TERM; touch ready; until [ -e go ]; do '
        "sleep 0.1; done; exit 4'"
    )
    _ready(node)
    task.signal(signal.SIGUSR1)
    until(lambda: node.found("work.*/told"))
    task.signal(signal.SIGTERM)
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


def test_a_signal_while_results_are_copied_does_not_stop_that(node: Node) -> None:
    env = node.slow("rsync", "--copy-unsafe-links", unless=True)
    task = node.start("echo all > a", env=env)
    until(node.is_held)
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


def test_results_are_seen_whole_or_not_at_all(node: Node) -> None:
    env = node.slow("rsync", "--copy-unsafe-links", unless=True, after=True)
    task = node.start("seq 1000 > a", env=env)
    until(node.is_held)
    assert not (node.results / "a").exists()
    node.let_go()
    assert task.end() == 0
    assert (node.results / "a").exists()


def test_results_join_what_is_there_already(node: Node) -> None:
    node.write("results/out/old", "old\n")
    node.write("results/out/again", "old\n")
    node.run("mkdir out; echo new > out/new; echo new > out/again; touch .hidden")
    texts = {p.name: p.read_text() for p in (node.results / "out").iterdir()}
    assert texts == {"old": "old\n", "new": "new\n", "again": "new\n"}
    assert (node.results / ".hidden").exists()


def test_a_result_in_the_way_of_a_folder_loses_nothing(node: Node) -> None:
    node.write("results/out/old", "old\n")
    task = node.run("echo new > out")
    assert task.process.returncode == 125
    assert (node.results / "out/old").read_text() == "old\n"
    (kept,) = node.found("work.*/out")
    assert kept.read_text() == "new\n"
    assert str(kept.parent) in task.errors


def test_a_requeued_task_goes_on_with_its_results(node: Node) -> None:
    node.run("echo 1 > step; exit 1")
    task = node.run('echo $(($(cat step) + 1)) > step; [ "$(cat step)" = 2 ]')
    assert task.process.returncode == 0
    assert [path.name for path in node.results.iterdir()] == ["step"]
    assert (node.results / "step").read_text() == "2\n"


def test_another_job_begins_afresh(node: Node) -> None:
    node.run("echo 1 > step; exit 1")
    assert node.run("[ ! -e step ]", job="4712").process.returncode == 0


def test_a_job_goes_on_where_the_one_named_stopped(node: Node) -> None:
    node.run("echo 1 > step; exit 1", element=3)
    before = EarlierAttempts(("4711_3",), "4711", 3)
    staging = node.staging(continues=(before,))
    task = node.run("cat step", staging, job="4712", element=0)
    assert task.output == "1\n"
    assert [path.name for path in node.results.iterdir()] == ["step"]


def test_results_go_to_a_folder_for_each_element(node: Node) -> None:
    staging = node.staging(destination=f"{node.results}/%j/100%%/%a")
    node.run("touch a", staging, element=7)
    assert (node.results / "4711/100%/7/a").exists()


def test_without_a_destination_results_go_where_the_job_was_submitted(
    node: Node,
) -> None:
    node.run("echo x > made", node.staging(destination=None))
    assert (node.home / "made").exists()


def test_the_environment_of_the_script_is_the_tasks(node: Node) -> None:
    task = node.run('echo "$MINE"', before="set -euo pipefail\nexport MINE='a  b'")
    assert task.output == "a  b\n"


def test_a_script_that_is_strict_stages_all_the_same(node: Node) -> None:
    task = node.run("touch a; false", before="set -euf; shopt -s failglob")
    assert task.process.returncode == 1
    assert (node.results / "partial-4711/a").exists()


def test_what_the_script_states_at_its_exit_is_reported(node: Node) -> None:
    assert node.run("true", before="trap 'echo ended $?' EXIT").output == "ended 0\n"


def test_folders_in_scratch_are_the_owners_alone(node: Node) -> None:
    node.run(f"stat -c %a . .. ../.. > {node.home}/modes", before="umask 000")
    assert (node.home / "modes").read_text().split() == ["700"] * 3


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


def test_a_shared_folder_that_is_read_only_is_cleaned_away(node: Node) -> None:
    node.write("data/deep/a")
    (node.home / "data/deep").chmod(0o555)
    assert node.run("true", node.taking("data")).process.returncode == 0
    assert node.left() == []


def test_a_job_on_several_nodes_learns_that_one_has_the_inputs(node: Node) -> None:
    task = node.run("true", env={"SLURM_JOB_NUM_NODES": "2"})
    assert "the first of 2 nodes only" in task.errors
