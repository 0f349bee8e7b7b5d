"""Which launches count as missed, where the agents of nodes come one after another."""

from types import SimpleNamespace
from typing import Any

import pytest

from weigh.model.record import RecordedNode, RunMeasurement, Usage
from weigh.runner import node_watch
from weigh.runner.node_watch import NodeWatch

LAUNCHER = 7  # a process


class Agents:
    """Agents of nodes: when each has its first figures read, and began to watch."""

    def __init__(self, nodes: dict[str, tuple[float, float]]) -> None:
        self.nodes = nodes
        self.parts: dict[str, RunMeasurement] = {}
        self.began = {name: began for name, (_, began) in nodes.items()}

    def read(self, now: float) -> None:
        for name, (read_at, _) in self.nodes.items():
            if now >= read_at:
                node = RecordedNode(name=name, final=True, heard=now)
                self.parts[name] = measured(nodes=(node,))

    def finish(self, now: float, _patience: float) -> None:
        self.read(now)


def measured(**known: Any) -> RunMeasurement:
    return RunMeasurement(0.0, 5.0, 0, None, Usage(5.0), **known)


@pytest.mark.parametrize(("ended", "missed"), [(5.0, 0), (0.7, 1)])
def test_a_launch_is_missed_if_it_ended_before_all_nodes_were_watched(
    monkeypatch: pytest.MonkeyPatch, ended: float, missed: int
) -> None:
    monkeypatch.setattr(node_watch, "_process_command_name", lambda _: "srun")
    watch = NodeWatch({}, 0.05, print)
    agents: Any = Agents({"n1": (1.0, 0.5), "n2": (3.0, 2.0)})
    watch._agents, watch._nodes, watch._launchers = agents, 2, {LAUNCHER: 0.2}
    now = 0.0
    run: Any = SimpleNamespace(
        elapsed=lambda: now, pids=lambda: [LAUNCHER] if now < ended else []
    )
    while now < 5.0:
        now += watch.look(run)

    missing = watch.finish(measured()).missing

    assert len([one for one in missing if "before any could be measured" in one]) == (
        missed
    )


def test_a_launcher_that_was_met_before_it_executed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {LAUNCHER: "mpirun", None: "mpirun"}
    monkeypatch.setattr(node_watch, "_process_command_name", names.get)
    monkeypatch.setattr(node_watch, "_parent_of", lambda _: None)
    monkeypatch.setattr(NodeWatch, "_start", lambda *_: None)
    watch = NodeWatch({}, 0.05, print)
    watch._starters = frozenset({"srun"})
    now = 0.0
    run: Any = SimpleNamespace(
        elapsed=lambda: now, pids=lambda: [LAUNCHER], leader=lambda: None
    )
    for name in ("mpirun", "mpirun", "mpirun", "srun"):
        names[LAUNCHER] = name
        now += watch.look(run)
    assert watch.has_launched
