"""Ordinary users, mount namespaces, memory groups: what starts processes meets them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from memory_groups import alone_in_a_group

WEIGH = (sys.executable, "-m", "weigh")
NOBODY = "65534"


@pytest.fixture(scope="session")
def as_nobody() -> tuple[str, ...]:
    """Return the words that make what follows an ordinary user's; none where it is."""
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


@pytest.fixture(scope="session")
def mount_namespace() -> tuple[str, ...]:
    """Return the words before a line of a shell that may mount folders."""
    unshare = shutil.which("unshare")
    options = ["--mount"] if os.geteuid() == 0 else ["--map-root-user", "--mount"]
    start = (unshare or "unshare", *options, "sh", "-c")
    trial = "mount -t tmpfs -o size=16k none /mnt"
    if unshare is None or subprocess.run([*start, trial], check=False).returncode:
        pytest.skip("no leave to mount anything, not even in a namespace")
    return start


@pytest.fixture(scope="session")
def in_namespace(mount_namespace: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    """Return the words that run a shell line in a mount namespace before a command."""
    return lambda line: (*mount_namespace, f'{line} && exec "$@"', "sh")


@pytest.fixture
def memory_group() -> Iterator[Callable[[int], tuple[str, ...]]]:
    """Give what makes a memory group of so many bytes: the words that run in it."""
    with ExitStack() as groups:
        yield lambda size: groups.enter_context(alone_in_a_group(size))
