"""A login node: a machine that submits to other nodes, said once a day."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from run_captured import run_captured

from weigh.flow.run.login_node import WARNING, is_login_node, login_node_warning
from weigh.schedulers.command import CommandOutput
from weigh.units import DAY, HOUR

REMOTE = {"SSH_CONNECTION": "192.0.2.1 4 192.0.2.2 22", "PATH": "/usr/bin"}


class Nodes:
    """Answers with the names of nodes, and counts the questions."""

    def __init__(self, slurm: str | None, gridengine: str | None = None) -> None:
        self.answers = {"sinfo": slurm, "qconf": gridengine}
        self.asked = 0

    def __call__(self, argv: Sequence[str], **_: object) -> CommandOutput:
        self.asked += 1
        answer = self.answers.get(argv[0])
        if answer is None:
            return CommandOutput(trouble="no such command")
        return CommandOutput(0, answer, "")


IN_A_JOB = {**REMOTE, "SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("host", "nodes", "env", "is_one"),
    [
        ("login1.cluster.org", Nodes("n1 n1\nn2 n2\n"), {}, True),
        ("login1", Nodes(None, "node1.cluster.org\nnode2.cluster.org\n"), {}, True),
        ("login1", Nodes("", "node1\n"), REMOTE, True),
        ("n2", Nodes("n1 n1\nn2 n2\n"), REMOTE, False),  # a shell on a compute node
        ("box", Nodes("gpu0 box.lab.org\n"), REMOTE, False),  # its node's other name
        ("box", Nodes(None), REMOTE, False),  # a client without its cluster
        ("box", Nodes(""), REMOTE, False),  # a cluster of no node
        ("login1", Nodes("n1 n1\n"), IN_A_JOB, False),
    ],
)
def test_a_host_that_submits_to_others_is_a_login_node(
    host: str, nodes: Nodes, env: Mapping[str, str], *, is_one: bool
) -> None:
    assert is_login_node(host, env, nodes) == is_one


def test_the_scheduler_is_queried_and_the_warning_shown_once_a_day(
    tmp_path: Path,
) -> None:
    nodes = Nodes("n1 n1\n")

    def warning(since: float) -> str | None:
        for stamp in tmp_path.iterdir():  # shown so many seconds ago
            os.utime(stamp, (time.time() - since,) * 2)
        return login_node_warning(
            given=None,
            root=str(tmp_path),
            host_name="login1",
            env={},
            run_command=nodes,
        )

    assert warning(0) == WARNING
    asked = nodes.asked
    assert warning(HOUR) is None
    assert nodes.asked == asked
    assert warning(DAY + HOUR) == WARNING


def test_the_setting_decides_without_a_question(tmp_path: Path) -> None:
    nodes = Nodes("n1 n1\n")
    known = {"root": str(tmp_path), "host_name": "x", "env": {}, "run_command": nodes}
    assert login_node_warning(given=True, **known) == WARNING  # type: ignore[arg-type]
    assert nodes.asked == 0


def weigh_run(folder: Path, **env: str | None) -> str:
    """Run ``true`` under weigh with a client of three nodes on PATH."""
    bin_ = folder / "bin"
    if not bin_.exists():
        bin_.mkdir()
        for name, line in (("sbatch", ":"), ("sinfo", "printf 'n1 n1\\nn2 n2\\n'")):
            (bin_ / name).write_text(f"#!/bin/sh\n{line}\n")
            (bin_ / name).chmod(0o755)
    variables = {
        **os.environ,
        **REMOTE,
        "PATH": f"{bin_}:/usr/bin:/bin",
        "HOME": str(folder),
        "WEIGH_DIR": str(folder / "store"),
        **env,
    }
    done = run_captured(
        [sys.executable, "-m", "weigh", "run", "--", "true"],
        cwd=folder,
        check=True,
        env={n: v for n, v in variables.items() if v is not None},
    )
    return done.stderr


@pytest.mark.parametrize(
    ("env", "warned"),
    [
        ({}, [True, False]),
        ({"WEIGH_LOGIN_NODE": "false"}, [False]),
        ({"SSH_CONNECTION": None}, [False]),  # a workstation
    ],
)
def test_a_run_on_a_login_node_warns_once(
    tmp_path: Path, env: dict[str, str | None], warned: list[bool]
) -> None:
    assert [WARNING in weigh_run(tmp_path, **env) for _ in warned] == warned
