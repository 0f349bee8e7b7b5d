import os
import subprocess
import sys
from pathlib import Path

import pytest

from weigh.model.doctor import TorchBuild
from weigh.probe.filesystem import file_system_of, read_disk
from weigh.probe.pages import parse_mountinfo
from weigh.probe.python_environment import (
    environment_at,
    environment_of,
    find_python,
    parse_torch,
)

MOUNTS = rb"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw,relatime shared:2 master:3 - nfs4 server:/home rw,vers=4.2
31 22 0:41 / /home/ann/my\040disk rw - fuse.sshfs ann@there:/ rw
32 22 0:42 / /scratch rw - autofs systemd-1 rw
33 32 0:43 / /scratch rw - lustre mds@o2ib:/scratch rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ann", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/ann", "ext4"),
        ("/home/ann/my disk/x", "fuse.sshfs"),
        ("/scratch/ann", "lustre"),
    ],
)
def test_a_path_is_on_the_nearest_mount_and_the_last_of_one_point(
    path: str, kind: str
) -> None:
    assert file_system_of(path, parse_mountinfo(MOUNTS)) == kind


def test_a_disk_is_as_df_shows(tmp_path: Path) -> None:
    disk = read_disk(str(tmp_path))
    argv = ["df", "-B1", "--output=size,fstype", str(tmp_path)]
    words = subprocess.check_output(argv, text=True).splitlines()[1].split()
    assert (str(disk.size), disk.kind) == tuple(words)


def test_a_folder_that_is_not_there_is_on_the_disk_of_the_one_above(
    tmp_path: Path,
) -> None:
    disk = read_disk(str(tmp_path / "a" / "b"))
    assert disk.size == read_disk(str(tmp_path)).size
    assert disk.writable


CPU_VERSION = """from typing import Optional
__version__ = '2.4.0+cpu'
debug = False
cuda: Optional[str] = None
hip: Optional[str] = None
"""


@pytest.mark.parametrize(
    ("text", "build"),
    [
        (CPU_VERSION, TorchBuild("2.4.0+cpu")),
        ("__version__ = '1.7.1'\ncuda = '10.2'\n", TorchBuild("1.7.1", "10.2")),
        (
            "__version__ = '2.3'\ncuda: Optional[str] = None\nhip = '6.0.3'\n",
            TorchBuild("2.3", None, "6.0.3"),
        ),
        ("nothing", None),
    ],
)
def test_torchs_version_file_reports_its_build(
    text: str, build: TorchBuild | None
) -> None:
    assert parse_torch(text) == build


def test_torch_is_never_imported(tmp_path: Path) -> None:
    torch = tmp_path / "lib" / "python3.11" / "site-packages" / "torch"
    torch.mkdir(parents=True)
    (torch / "__init__.py").write_text("raise SystemExit('imported')")
    (torch / "version.py").write_text("__version__ = '2.4.0'\ncuda = '12.1'\n")
    (tmp_path / "pyvenv.cfg").touch()
    found = environment_at(str(tmp_path))
    assert (found.kind, found.torch) == ("venv", TorchBuild("2.4.0", "12.1"))


def test_the_python_found_is_the_one_a_shell_would_start() -> None:
    shells = subprocess.check_output(["sh", "-c", "command -v python"], text=True)
    assert find_python(os.environ) == shells.strip()


def test_a_real_venv_is_known_as_one(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "v")]
    subprocess.run(argv, check=True, timeout=120)
    found = environment_of(str(tmp_path / "v" / "bin" / "python"))
    assert (found.kind, found.name) == ("venv", "v")
