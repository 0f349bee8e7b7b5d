import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

# the real processes and terminals that the tests of `weigh run` share
sys.path.append(str(Path(__file__).parents[2] / "run"))

from processes import HASTY_WEIGH, Weigh

collect_ignore_glob: list[str] = []
if sys.platform != "linux":
    collect_ignore_glob.append("test_*.py")


@pytest.fixture
def weigh(tmp_path: Path) -> Iterator[Weigh]:
    """Return weigh in a folder of its own; afterwards nothing it started is left."""
    weigh = Weigh(tmp_path, program=HASTY_WEIGH)
    yield weigh
    weigh.close()


@pytest.fixture(scope="session")
def tqdm_loop() -> str:
    """Return a program with a real tqdm bar of 60 steps, 30 ms each."""
    if find_spec("tqdm") is None:
        pytest.skip("needs tqdm")
    return (
        "import time\n"
        "from tqdm import tqdm\n"
        "for _ in tqdm(range(60), mininterval=0.02): time.sleep(0.03)\n"
    )
