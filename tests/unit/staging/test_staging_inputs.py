"""Inputs are files of the task's own: copies, moves and links of them are results."""

import os
import shutil
from pathlib import Path

import pytest
from staged_node import Node, Tools, until

from weigh.model.staging import StagingPlan


def _template(node: Node, place: str = "template") -> StagingPlan:
    node.write("template/run.cfg", "cfg\n")
    node.write("template/deep/b.txt", "b\n")
    (node.home / "template/link").symlink_to("run.cfg")
    return node.taking("template", place)


def _result_files(node: Node) -> dict[str, str]:
    found = node.results.rglob("*")
    return {
        str(path.relative_to(node.results)): path.read_text()
        for path in found
        if path.is_file()
    }


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
    results = _result_files(node)
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
        "touch ready; until [ -e go ]; do sleep 0.05; done; rm -f ready go;"
        " mv template run_$N; echo $N >> run_$N/run.cfg; sleep 0.1"
    )
    tasks = [
        node.start(payload, staging, element=n, env={"N": str(n)}) for n in range(2)
    ]
    until(lambda: len(node.found("work.*/ready")) == 2)
    for work in node.found("work.*"):
        (work / "go").touch()
    assert [task.end() for task in tasks] == [0, 0]
    results = _result_files(node)
    assert [results[f"run_{n}/run.cfg"] for n in range(2)] == ["cfg\n0\n", "cfg\n1\n"]
    assert (node.home / "template/run.cfg").read_text() == "cfg\n"


@pytest.mark.parametrize("place", ["template", "in/template", "."])
def test_an_untouched_input_is_no_result_and_a_changed_one_is(
    node: Node, place: str
) -> None:
    payload = f"cd {place} && echo more >> deep/b.txt && rm run.cfg"
    task = node.run(payload, _template(node, place))
    assert (task.process.returncode, task.errors) == (0, "")
    changed = os.path.normpath(f"{place}/deep/b.txt")
    assert _result_files(node) == {changed: "b\nmore\n"}
    assert [path.name for path in node.results.rglob("link")] == []


@pytest.mark.parametrize("tool", ["rsync", "cp"])
def test_an_input_that_was_changed_before_a_requeue_keeps_its_change(
    node: Node, tools: Tools, tool: str
) -> None:
    staging = _template(node)
    node.run("echo 1 >> template/run.cfg; false", staging, env=tools[tool])
    task = node.run(
        "cat template/run.cfg template/deep/b.txt", staging, env=tools[tool]
    )
    assert task.output == "cfg\n1\nb\n"
    assert _result_files(node) == {"template/run.cfg": "cfg\n1\n"}


@pytest.mark.parametrize(
    ("payload", "link"),
    [
        ("ln -s nowhere out.csv", "out.csv -> nowhere"),
        ("mkdir a; ln -s ../gone a/b; echo x > c", "a/b -> ../gone"),
        ('echo x > c; ln -s "$PWD/c" d; rm c', "d -> "),
        ("ln -s /nonexistent/model.bin m", "m -> /nonexistent/model.bin"),
    ],
)
def test_a_dangling_link_among_the_results_fails_the_task_by_name(
    node: Node, payload: str, link: str
) -> None:
    task = node.run(payload, _template(node))
    assert task.process.returncode == 125
    assert f"a link to what does not exist: {link}" in task.errors
    assert [path.name for path in node.results.iterdir()] == ["partial-4711"]
    assert node.left() == []


def test_links_between_results_lead_to_each_other_where_they_are_copied_to(
    node: Node,
) -> None:
    payload = (
        "mkdir ckpt; echo 3 > ckpt/3; ln -s 3 ckpt/last; ln -s $PWD/ckpt/3 best;"
        " ln -s kept latest"
    )
    node.write("results/kept", "old\n")
    task = node.run(payload, _template(node))
    assert (task.process.returncode, task.errors) == (0, "")
    assert os.readlink(node.results / "best") == "ckpt/3"
    assert (node.results / "latest").read_text() == "old\n"
    assert (node.results / "ckpt/last").read_text() == "3\n"


def test_a_link_to_a_folder_elsewhere_stays_a_link(node: Node) -> None:
    node.write("corpus/big")
    task = node.run(f"ln -s {node.home}/corpus corpus", _template(node))
    assert task.process.returncode == 0
    assert os.readlink(node.results / "corpus") == f"{node.home}/corpus"


def _large(node: Node) -> StagingPlan:
    node.write("data/text", "a\n")
    with (node.home / "data/large").open("wb") as file:
        for _ in range(66):
            file.write(os.urandom(1 << 20))
    return node.taking("data")


def test_a_large_input_takes_no_more_room_per_task(node: Node) -> None:
    staging = _large(node)
    task = node.run(
        "stat -c %h data/large; cp -r data copy; echo >> copy/text", staging
    )
    # where the disk shares blocks instead, the file has one name
    assert task.output in {"1\n", "2\n"}
    assert sorted(os.listdir(node.results / "copy")) == ["large", "text"]
    assert not (node.results / "data").exists()


def test_a_large_input_that_is_changed_in_place_is_named(node: Node) -> None:
    staging = _large(node)
    task = node.run("stat -c %h data/large; echo >> data/text", staging)
    if task.output == "1\n":
        pytest.skip("the disk shares blocks: each task changes its own")
    assert "data was changed in place: the tasks on this node share" in task.errors
    assert (node.results / "data/text").read_text() == "a\n\n"


def test_a_result_that_is_a_copy_of_the_input_file_is_a_file(node: Node) -> None:
    node.write("model.bin", "weights\n")
    node.run("cp -a m.bin a; mv m.bin b", node.taking("model.bin", "m.bin"))
    assert _result_files(node) == {"a": "weights\n", "b": "weights\n"}
    assert not any(path.is_symlink() for path in Path(node.results).iterdir())
