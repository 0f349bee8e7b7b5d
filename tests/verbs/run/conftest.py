import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import WEIGH, Weigh

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


@pytest.fixture(scope="session")
def as_nobody() -> tuple[str, ...]:
    """Give the words that make what follows an ordinary user's; none where it is."""
    if os.geteuid() != 0:
        return ()
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("root, and no setpriv to become an ordinary user")
    words = (setpriv, "--reuid", NOBODY, "--regid", NOBODY, "--clear-groups")
    # through one more program: what setpriv starts has root's leave to be read
    trial = [*words, "sh", "-c", '"$@"', "sh", *WEIGH, "-V"]
    if subprocess.run(trial, capture_output=True, check=False).returncode != 0:
        pytest.skip(f"root, and nobody may not execute {sys.executable}")
    return words


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
def in_namespace() -> Callable[[str], tuple[str, ...]]:
    """Give the words that run a shell line in a mount namespace before what follows."""
    unshare = shutil.which("unshare")
    options = ["--mount"] if os.geteuid() == 0 else ["--map-root-user", "--mount"]
    start = (unshare or "unshare", *options, "sh", "-c")
    trial = "mount -t tmpfs -o size=16k none /mnt"
    if unshare is None or subprocess.run([*start, trial], check=False).returncode:
        pytest.skip("no leave to mount anything, not even in a namespace")
    return lambda line: (*start, f'{line} && exec "$@"', "sh")


@pytest.fixture(scope="session")
def under_foreign_proc() -> tuple[str, ...]:
    """Return the words for a pid namespace that still shows the /proc outside it."""
    unshare = shutil.which("unshare")
    words = (unshare or "unshare", "--pid", "--fork")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("a pid namespace without its own /proc needs root and unshare")
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    return words
