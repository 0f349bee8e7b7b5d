"""ci/rig.sh installs what the tests need, beside another apt."""

import subprocess
from pathlib import Path

import pytest

CI = Path(__file__).parents[2] / "ci"
APT = """#!/bin/sh
echo "$*" >>{0}/asked
[ "$(wc -l <{0}/asked)" -gt 2 ] && exit {1}
echo "E: Could not get lock /var/lib/apt/lists/lock" >&2
exit 100
"""


@pytest.mark.parametrize(
    ("code", "patience", "started"),
    [
        pytest.param(0, 60, 3, id="the lock of another apt is waited for"),
        pytest.param(100, 0, 1, id="though not forever"),
        pytest.param(7, 60, 3, id="another error is passed on"),
    ],
)
def test_apt_waits_in_turn(
    tmp_path: Path, code: int, patience: int, started: int
) -> None:
    (tmp_path / "apt-get").write_text(APT.format(tmp_path, code))
    (tmp_path / "apt-get").chmod(0o755)
    line = f". {CI}/rig.sh; PATH={tmp_path}:$PATH; sleep() {{ :; }}; apt_in_turn update"
    done = subprocess.run(
        ["bash", "-c", f"WEIGH_APT_PATIENCE={patience}; {line}"], check=False
    )
    assert done.returncode == code
    assert len((tmp_path / "asked").read_text().splitlines()) == started
