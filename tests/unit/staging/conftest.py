import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from staged_node import Node, Tools, path_without

collect_ignore_glob: list[str] = []
if sys.platform != "linux":
    collect_ignore_glob.append("test_*.py")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """Return a node of its own; nothing on it is left running after."""
    node = Node(tmp_path / "node")
    yield node
    node.close()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    """Return environments in which copies are made by one tool or the other."""
    folder = tmp_path_factory.getbasetemp()
    return {
        "rsync": {},
        "cp": {"PATH": path_without(folder, "rsync")},
        "no flock": {"PATH": path_without(folder, "flock")},
    }
