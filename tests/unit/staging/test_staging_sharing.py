"""Tasks of one job on one node: inputs once, gone with the last, whoever dies."""

import os
import signal

import msgspec
import pytest
from processes import is_running, until
from staged_node import (
    Node,
    Task,
    Tools,
    waits_for_lock,
)

from weigh.model.staging import StagingPlan
from weigh.store.identity import process_identity

WAITS = "touch ready; until [ -e go ]; do sleep 0.1; done; cat data/a >> seen"


def _inputs(node: Node) -> StagingPlan:
    node.write("data/a", "hello\n")
    to = f"{node.results}/%a"
    return msgspec.structs.replace(node.taking("data"), destination=to)


def _copies(node: Node) -> int:
    text = (node.folder / "copies").read_text()
    return sum("--copy-unsafe-links" in line for line in text.splitlines())


def _started(node: Node, count: int) -> list[Task]:
    staging, env = _inputs(node), node.counted_copies()
    tasks = [node.start(WAITS, staging, element=n, env=env) for n in range(count)]
    until(lambda: len(node.found("work.*/ready")) == count)
    return tasks


def _go(node: Node) -> None:
    for work in node.found("work.*"):
        (work / "go").touch()


def test_tasks_at_once_on_a_node_copy_in_once(node: Node) -> None:
    tasks = _started(node, 5)
    _go(node)
    assert [task.end() for task in tasks] == [0] * 5
    assert _copies(node) == 1
    for number in range(5):
        assert (node.results / f"{number}/seen").read_text() == "hello\n"
    assert node.left() == []


def test_many_tasks_come_and_go_without_harm(node: Node) -> None:
    staging = _inputs(node)
    tasks = [node.start("cat data/a > b", staging, element=n) for n in range(6)]
    assert [task.end() for task in tasks] == [0] * 6
    assert len(list(node.results.glob("*/b"))) == 6
    assert node.left() == []


def test_the_inputs_of_another_job_are_another_copy(node: Node) -> None:
    staging = _inputs(node)
    first = node.start(WAITS, staging, job="1")
    second = node.start(WAITS, staging, job="2")
    until(lambda: len(node.found("work.*/ready")) == 2)
    assert len(node.found("in/0/a")) == 2
    _go(node)
    assert [first.end(), second.end()] == [0, 0]
    assert node.left() == []


def _kill_all_of(node: Node, task: Task, element: int) -> None:
    """Kill a task's shell and what it runs, as a scheduler does in the end."""
    (link,) = node.found(f"task.4711_{element}.*.run")
    group = int(os.readlink(link).split()[1])
    task.signal(signal.SIGKILL)
    os.killpg(group, signal.SIGKILL)
    task.end()
    until(lambda: not is_running(group))


def test_a_killed_task_keeps_no_inputs_and_another_brings_its_results_home(
    node: Node,
) -> None:
    killed, other = _started(node, 2)
    (work,) = node.found("work.4711_0.*")
    (work / "result").write_text("of the killed one\n")
    _kill_all_of(node, killed, 0)
    _go(node)
    assert other.end() == 0
    assert (node.results / "1/seen").read_text() == "hello\n"
    found = node.results / "0/partial-4711_0/result"
    assert found.read_text() == "of the killed one\n"
    assert "task 4711_0 ended without copying its results back" in other.errors
    assert node.left() == []


def test_tasks_whose_shell_was_killed_keep_their_folder_while_they_run(
    node: Node,
) -> None:
    killed, other = _started(node, 2)
    (work,) = node.found("work.4711_0.*")
    killed.signal(signal.SIGKILL)
    (other_work,) = node.found("work.4711_1.*")
    (other_work / "go").touch()
    assert other.end() == 0
    (work / "go").touch()
    until(lambda: (work / "seen").exists() and (work / "seen").read_text())
    assert (work / "seen").read_text() == "hello\n"


def test_a_holder_killed_while_it_copied_is_no_hindrance(node: Node) -> None:
    staging, env = _inputs(node), node.slow("rsync", "--copy-unsafe-links")
    holder = node.start(WAITS, staging, element=0, env=env)
    until(node.is_held)
    waiting = [node.start(WAITS, staging, element=n) for n in (1, 2)]
    holder.signal(signal.SIGKILL)
    until(lambda: len(node.found("work.*/ready")) == 2)
    assert [path.name for path in node.found("in*")] == ["in"]
    _go(node)
    assert [task.end() for task in waiting] == [0, 0]
    assert (node.results / "2/seen").read_text() == "hello\n"
    assert node.left() == []


def test_a_task_that_waits_for_the_inputs_is_reported_and_can_be_stopped(
    node: Node,
) -> None:
    staging, env = _inputs(node), node.slow("rsync", "--copy-unsafe-links")
    holder = node.start("cat data/a", staging, element=0, env=env)
    until(node.is_held)
    waiting = node.start("cat data/a", staging, element=1)
    until(lambda: waits_for_lock(waiting))
    waiting.signal(signal.SIGTERM)
    assert waiting.end() == 128 + 15
    assert "another task on this node is copying the inputs" in waiting.errors
    node.let_go()
    assert holder.end() == 0
    assert node.left() == []


def test_a_task_that_comes_while_the_last_one_clears_begins_anew(node: Node) -> None:
    staging = _inputs(node)
    env = node.slow("mv", ".gone.")
    last = node.start("true", staging, element=0, env=env)
    until(node.is_held)
    comes = node.start("cat data/a", staging, element=1)
    until(lambda: waits_for_lock(comes))
    node.let_go()
    assert [last.end(), comes.end()] == [0, 0]
    assert comes.output == "hello\n"
    assert node.left() == []


@pytest.mark.parametrize(
    ("words", "keeps"),
    [
        ("earlier-boot {pid} {start}", False),
        ("{boot} {pid} 1", False),  # the number is another process's now
        ("{boot} {pid} {start}", True),
    ],
)
def test_inputs_stay_for_a_task_of_this_boot_that_lives(
    node: Node, words: str, *, keeps: bool
) -> None:
    task, *_ = _started(node, 1)
    (link,) = [path for path in node.found("task.*") if path.suffix != ".run"]
    boot, pid = os.readlink(link).split()[0], os.getpid()
    text = words.format(boot=boot, pid=pid, start=process_identity(pid).start_time)
    (link.parent / "task.4711_9.1").symlink_to(text)
    _go(node)
    assert task.end() == 0
    assert len(node.found("in/0/a")) == keeps
    assert bool(node.left()) == keeps


def test_the_next_job_clears_what_a_killed_one_left(node: Node) -> None:
    (task,) = _started(node, 1)
    _kill_all_of(node, task, 0)
    (work,) = node.found("work.*")
    after = node.run("true", _inputs(node), job="4712")
    assert node.found("in") == []
    assert (work / "ready").exists()
    assert str(work.parent) in after.errors


def test_without_locks_each_task_copies_for_itself(node: Node, tools: Tools) -> None:
    staging = _inputs(node)
    env = tools["no flock"]
    tasks = [node.start(WAITS, staging, element=n, env=env) for n in range(2)]
    until(lambda: len(node.found("work.*/ready")) == 2)
    assert len(node.found("in/0/a")) == 2
    _go(node)
    assert [task.end() for task in tasks] == [0, 0]
    assert node.left() == []
