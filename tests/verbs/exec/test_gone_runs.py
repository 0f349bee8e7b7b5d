"""Which runs that pull from a queue have certainly ended."""

import os
import time
from pathlib import Path

import msgspec
import pytest

from weigh.flow.exec import pull
from weigh.flow.here import Here
from weigh.runner.shared_queue import QueueOwner
from weigh.store.identity import MachineIdentity, ProcessIdentity


@pytest.mark.parametrize(("silent_for", "gone"), [(5.0, set()), (90.0, {"w.1"})])
def test_a_run_of_an_earlier_boot_is_gone_only_when_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_for: float, gone: set[str]
) -> None:
    """A cloned node that runs looks like this one before a restart."""
    here = MachineIdentity("here", "m", "boot2", "p")
    monkeypatch.setattr(pull, "this_machine", lambda: here)
    owner = QueueOwner(
        name="w.1",
        joblog="a.joblog",
        run="r",
        machine=msgspec.structs.replace(here, boot_id="boot1"),
        process=ProcessIdentity(1, 1),
        folder=str(tmp_path),
    )
    lock, then = tmp_path / "a.joblog.lock", time.time() - silent_for
    lock.touch()
    os.utime(lock, (then, then))

    found = pull._gone(
        Here(cwd="/", env={}, root=str(tmp_path)), [owner], str(tmp_path), ()
    )

    assert found == gone
