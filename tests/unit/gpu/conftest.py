import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_script import Script

SOURCE = Path(__file__).parent / "nvml_stub.c"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("the stub NVML needs a C compiler on Linux")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC"]
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    built = subprocess.run(
        [compiler, *flags, soname, "-o", str(library), str(SOURCE)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return library


@pytest.fixture
def script(nvml_library: Path, tmp_path: Path) -> Script:
    return Script(tmp_path / "script", nvml_library)


@pytest.fixture
def nvml(script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Let nvidia-ml-py in this very process meet the stub.

    A library that is loaded already answers to its soname, wherever it came from.
    """
    library = ctypes.CDLL(str(script.library))
    library.nvml_stub_reset()
    monkeypatch.setenv("NVML_STUB_SCRIPT", str(script.path))
    yield script
    library.nvml_stub_reset()
