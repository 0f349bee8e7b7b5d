"""Find the Python that a command would start, and its torch, without importing it."""

import os
import re
from collections.abc import Mapping
from glob import escape, glob
from shutil import which

from weigh.model.doctor import PythonEnvironment, TorchBuild
from weigh.regular_file import file_head

# name = 'value', also with a type, or None
_VALUE = re.compile(
    r"""^(\w+)(?:\s*:[^=\n]*)?\s*=\s*(?:['"]([^'"\n]*)['"]|None)""", re.MULTILINE
)
_OF_CONDA = "conda-meta"


def find_python(env: Mapping[str, str]) -> str | None:
    """Find the ``python`` (or else ``python3``) that is first on PATH."""
    path = env.get("PATH", "")
    return which("python", path=path) or which("python3", path=path)


def environment_of(python: str | None) -> PythonEnvironment:
    """Describe the environment that *python* belongs to."""
    if python is None:
        return PythonEnvironment(kind="none")
    # python lies in the folder bin of its environment
    prefix = os.path.dirname(os.path.dirname(os.path.abspath(python)))
    # venv and virtualenv write this file
    if os.path.isfile(os.path.join(prefix, "pyvenv.cfg")):
        kind = "venv"
    elif os.path.isdir(os.path.join(prefix, _OF_CONDA)):
        kind = "conda"
    else:
        kind = "system"
    return PythonEnvironment(
        kind=kind,  # type: ignore[arg-type] # one of three literals
        prefix=prefix,
        name=os.path.basename(prefix),
        torch=_torch_build_at(prefix),
    )


def _torch_build_at(prefix: str) -> TorchBuild | None:
    """Read torch's own version file."""
    pattern = os.path.join(escape(prefix), "lib*", "python3*", "*-packages")
    for folder in sorted(glob(pattern)):
        version_file = os.path.join(folder, "torch", "version.py")
        text = file_head(version_file).decode(errors="replace")
        if text:
            return parse_torch(text)
    return None


def parse_torch(text: str) -> TorchBuild | None:
    """Read torch/version.py: ``__version__ = '2.4.0+cpu'``, ``cuda = None``."""
    values = dict(_VALUE.findall(text))
    version = values.get("__version__")
    if not version:
        return None
    return TorchBuild(version, values.get("cuda") or None, values.get("hip") or None)
