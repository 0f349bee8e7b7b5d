"""A job script that stages: what it is given, and what becomes of it."""

import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from staged_node import Node, Task, Tools

from weigh.model.staging import StagedInput

PROMISES = tomllib.loads(Path(__file__).with_name("staged_jobs.toml").read_text())


def filled(given: Any, node: Node) -> Any:
    """Return what a table has, with the folders of the node."""
    if isinstance(given, dict):
        return {name: filled(value, node) for name, value in given.items()}
    if not isinstance(given, str):
        return given
    for name in ("home", "results", "scratch"):
        given = given.replace(f"{{{name}}}", str(getattr(node, name)))
    return given


def task_of_table(node: Node, given: dict[str, Any], tool: dict[str, str]) -> Task:
    """Run what a table gives, and take from it all but what is expected."""
    files = given.pop("files", {})
    inputs = given.pop("inputs", {})
    if "template" in given:
        files |= {"template/run.cfg": "cfg\n", "template/deep/b.txt": "b\n"}
        inputs["template"] = given.pop("template")
    for name, text in files.items():
        node.write(name, text)
    for name, target in given.pop("home_links", {}).items():
        (node.home / name).symlink_to(target)
    if "read_only" in given:
        (node.home / given.pop("read_only")).chmod(0o555)
    folders = {
        name: given.pop(name) for name in ("destination", "scratch") & given.keys()
    }
    sources = (StagedInput(f"{node.home}/{name}", to) for name, to in inputs.items())
    staging = node.staging(
        sources=tuple(sources),
        **{name: place or None for name, place in folders.items()},
    )
    words = {
        name: given.pop(name) for name in ("element", "job", "before") & given.keys()
    }
    env = {**tool, **given.pop("env", {})}
    return node.run(given.pop("payload"), staging, env=env, **words)


def cases() -> Iterator[Any]:
    for promise, (first, *_) in PROMISES.items():
        for tool in first.get("tools", ["rsync"]):
            marks = [pytest.mark.integrations] if tool == "cp" else []
            yield pytest.param(promise, tool, marks=marks, id=f"{promise}-{tool}")


@pytest.mark.parametrize(("promise", "tool"), [*cases()])
def test_a_staged_job_keeps(node: Node, tools: Tools, promise: str, tool: str) -> None:
    for table in PROMISES[promise]:
        expected = filled(dict(table), node)
        expected.pop("tools", None)
        task = task_of_table(node, expected, dict(tools[tool]))
        assert task.process.returncode == expected.pop("code", 0), task.errors
        assert node.result_texts() == expected.pop("results", {})
        if "kept" in expected:  # with the other results, where the message names it
            for name, text in expected.pop("kept").items():
                (path,) = node.found(f"work.*/{name}")
                assert path.read_text() == text
                assert str(path.parent) in task.errors
        else:
            assert node.left() == []
        for name, text in expected.pop("home", {}).items():
            assert (node.home / name).read_text() == text
        if "links" in expected:
            paths = [path for path in node.results.rglob("*") if path.is_symlink()]
            links = {str(p.relative_to(node.results)): os.readlink(p) for p in paths}
            assert links == expected.pop("links")
        assert not (node.home / "ran").exists()
        for key, value in expected.items():
            text = getattr(task, key.removesuffix("_has"))
            assert value in text if key.endswith("_has") else value == text, key
