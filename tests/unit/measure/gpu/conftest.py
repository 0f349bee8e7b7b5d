import ctypes
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nvml_script import Script
from run_captured import run_captured

SOURCES = Path(__file__).parent


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    name = "libnvidia-ml.so.1"
    return _compiled("nvml_stub.c", name, tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def script(nvml_library: Path, tmp_path: Path) -> Script:
    return Script(tmp_path / "script", nvml_library)


@pytest.fixture
def nvml(script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """Let the probe in this very process meet the stub.

    A library that is loaded already answers to its soname, wherever it came from.
    """
    library = ctypes.CDLL(str(script.library))
    library.nvml_stub_reset()
    monkeypatch.setenv("NVML_STUB_SCRIPT", str(script.path))
    yield script
    library.nvml_stub_reset()


@pytest.fixture(scope="session")
def rsmi_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _compiled("rsmi_stub.c", "librocm_smi64.so", tmp_path_factory.mktemp("rsmi"))


def _compiled(source: str, name: str, folder: Path) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs gcc on Linux: a stand-in for a driver is compiled")
    library = folder / name
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC"]
    built = run_captured(
        [
            *(compiler, *flags, f"-Wl,-soname,{name}"),
            *("-o", str(library), str(SOURCES / source)),
        ]
    )
    assert built.returncode == 0, built.stderr
    return library
