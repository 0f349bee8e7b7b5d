"""ci/rig.sh installs what the tests need, beside another apt."""

import subprocess
from pathlib import Path

CI = Path(__file__).parents[2] / "ci"
APT = """#!/bin/sh
echo "$*" >>{0}/asked
[ "$(wc -l <{0}/asked)" -gt 2 ] && exit {1}
echo "E: Could not get lock /var/lib/apt/lists/lock" >&2
exit 100
"""


def apt_in_turn(folder: Path, code: int, patience: int) -> tuple[int, int]:
    """Return the exit code, and how often apt-get was started."""
    (folder / "apt-get").write_text(APT.format(folder, code))
    (folder / "apt-get").chmod(0o755)
    line = f". {CI}/rig.sh; PATH={folder}:$PATH; sleep() {{ :; }}; apt_in_turn update"
    done = subprocess.run(
        ["bash", "-c", f"WEIGH_APT_PATIENCE={patience}; {line}"], check=False
    )
    return done.returncode, len((folder / "asked").read_text().splitlines())


def test_the_lock_of_another_apt_is_waited_for(tmp_path: Path) -> None:
    assert apt_in_turn(tmp_path, 0, patience=60) == (0, 3)


def test_a_lock_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    assert apt_in_turn(tmp_path, 0, patience=0) == (100, 1)


def test_another_error_of_apt_is_passed_on(tmp_path: Path) -> None:
    assert apt_in_turn(tmp_path, 7, patience=60) == (7, 3)
