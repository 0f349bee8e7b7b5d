"""A road on each scheduler: on this machine in ``make test``, else in integrations."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rigs import acting_as
from roads import Road

from weigh.schedulers import KINDS


@pytest.fixture(scope="session")
def local() -> dict[str, str]:
    return {}


@pytest.fixture(
    params=[
        *(
            pytest.param(
                name, marks=[getattr(pytest.mark, name), pytest.mark.integrations]
            )
            for name in KINDS
        ),
        "local",
    ]
)
def road(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Road]:
    """A road of its own on each scheduler."""
    env: dict[str, str] = request.getfixturevalue(request.param)
    folder = tmp_path / "here"
    folder.mkdir()
    with acting_as(env.get("WEIGH_RIG_AS"), tmp_path):
        yield Road(folder, request.param, env)
