import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import PORTABLE_WEIGH, WEIGH, Weigh

collect_ignore_glob: list[str] = []
if sys.platform != "linux":
    collect_ignore_glob.append("test_*.py")

NOBODY = "65534"


@pytest.fixture
def weigh(tmp_path: Path) -> Iterator[Weigh]:
    """Give weigh in a folder of its own; afterwards nothing it started is left."""
    weigh = Weigh(tmp_path)
    yield weigh
    weigh.close()


@pytest.fixture(params=[WEIGH, PORTABLE_WEIGH], ids=["Linux", "psutil"])
def each_weigh(request: pytest.FixtureRequest, weigh: Weigh) -> Weigh:
    """Give weigh as it measures on Linux, and as elsewhere."""
    weigh.program = request.param
    return weigh


@pytest.fixture
def nobodys_weigh(as_nobody: tuple[str, ...]) -> Iterator[Weigh]:
    """Give an ordinary user's weigh, in a folder that is theirs."""
    folder = Path(tempfile.mkdtemp(prefix="weigh-test-"))
    if as_nobody:
        os.chown(folder, int(NOBODY), int(NOBODY))
    weigh = Weigh(folder, as_nobody)
    yield weigh
    weigh.close()
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def under_foreign_proc() -> tuple[str, ...]:
    """Return the words for a pid namespace that still shows the /proc outside it."""
    unshare = shutil.which("unshare")
    words = (unshare or "unshare", "--pid", "--fork")
    if unshare is None:
        pytest.skip("there is no unshare here")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    return words
