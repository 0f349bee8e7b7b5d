"""Inputs are files of the task's own: copies, moves and links of them are results."""

import os
import shutil

import pytest
from processes import until
from staged_node import Node, Tools

from weigh.model.staging import StagingPlan


def _template(node: Node, place: str = "template") -> StagingPlan:
    node.write("template/run.cfg", "cfg\n")
    node.write("template/deep/b.txt", "b\n")
    (node.home / "template/link").symlink_to("run.cfg")
    return node.taking("template", place)


@pytest.mark.few(10)  # each way to copy with one of the tools
@pytest.mark.parametrize("tool", ["cp", "rsync"])
@pytest.mark.parametrize(
    "copy",
    [
        "cp -r template run",
        "cp -a template run",
        "mv template run",
        "cp -rl template run",
        "tar cf - template | tar xf - --transform s/template/run/",
        "rsync -a template/ run/",
        "python3 -c \"import shutil as s; s.copytree('template', 'run', True)\"",
        "mkdir -p run/deep && ln template/run.cfg run && ln template/deep/* run/deep",
        'mkdir run && for f in run.cfg deep; do ln -s "$PWD/template/$f" run/$f; done',
        "mkdir run && cd run && ln -s ../template/* . && cd ..",
    ],
)
def test_a_copy_of_a_staged_folder_is_a_result_of_files(
    node: Node, tools: Tools, tool: str, copy: str
) -> None:
    if "rsync" in copy and (tool == "cp" or shutil.which("rsync") is None):
        pytest.skip("no rsync")
    payload = f"{copy} && cd run && echo 1 > answer.txt"
    task = node.run(payload, _template(node), env=tools[tool])
    assert (task.process.returncode, task.errors) == (0, "")
    results = node.result_texts()
    results.pop("run/link", None)
    assert results == {
        "run/run.cfg": "cfg\n",
        "run/deep/b.txt": "b\n",
        "run/answer.txt": "1\n",
    }
    assert node.left() == []


def test_tasks_that_change_moved_inputs_at_once_do_not_meet(node: Node) -> None:
    staging = _template(node)
    payload = (
        "touch ready; until [ -e go ]; do sleep 0.1; done; rm -f ready go;"
        " mv template run_$N; echo $N >> run_$N/run.cfg; sleep 0.1"
    )
    tasks = [
        node.start(payload, staging, element=n, env={"N": str(n)}) for n in range(2)
    ]
    until(lambda: len(node.found("work.*/ready")) == 2)
    for work in node.found("work.*"):
        (work / "go").touch()
    assert [task.end() for task in tasks] == [0, 0]
    results = node.result_texts()
    assert [results[f"run_{n}/run.cfg"] for n in range(2)] == ["cfg\n0\n", "cfg\n1\n"]
    assert (node.home / "template/run.cfg").read_text() == "cfg\n"


def test_a_large_input_takes_no_more_room_and_is_named_when_it_was_changed(
    node: Node,
) -> None:
    node.write("data/text", "a\n")
    with (node.home / "data/large").open("wb") as file:
        for _ in range(66):
            file.write(os.urandom(1 << 20))
    staging = node.taking("data")
    task = node.run(
        "stat -c %h data/large; cp -r data copy; echo >> copy/text", staging
    )
    # where the disk shares blocks instead, the file has one name
    assert task.output in {"1\n", "2\n"}
    assert sorted(os.listdir(node.results / "copy")) == ["large", "text"]
    assert not (node.results / "data").exists()
    if task.output == "1\n":
        return  # the disk shares blocks: each task changes its own
    task = node.run("echo >> data/text", staging)
    assert "data was changed in place: the tasks on this node share" in task.errors
    assert (node.results / "data/text").read_text() == "a\n\n"
