"""Let weigh import its own packages, whatever PYTHONPATH or the current folder hold.

Modules of a cluster (EasyBuild, Spack) put packages for other Pythons on PYTHONPATH.
They are for the job: weigh only moves them behind its own packages, as it may itself
have been installed that way. This module imports only what the interpreter has loaded.
"""

import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def put_own_packages_first() -> None:
    """Change `sys.path`, and forget modules that came from foreign folders."""
    started_here = "" if sys.flags.safe_path else sys.path[0]
    foreign = foreign_folders(os.environ.get("PYTHONPATH", ""), started_here)
    if not foreign:
        return
    own = os.path.dirname(_PACKAGE)
    sys.path[:] = own_first(sys.path, foreign, own)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name == "__main__" or not isinstance(file, str):
            continue
        if _is_below(file, foreign - {own}) and not _is_below(file, frozenset((own,))):
            del sys.modules[name]


def foreign_folders(pythonpath: str, started_here: str) -> frozenset[str]:
    """Return the folders of PYTHONPATH, and the current one if `python -m` added it."""
    try:
        current = os.getcwd()
    except OSError:  # it was removed
        current = ""
    folders = pythonpath.split(os.pathsep)
    if started_here == current:
        folders.append(started_here)
    return frozenset(folder for folder in folders if folder)


def own_first(path: list[str], foreign: frozenset[str], own: str) -> list[str]:
    """Return *path* with the *foreign* folders last, of these weigh's own one first."""
    kept = [folder for folder in path if folder and folder not in foreign]
    moved = [folder for folder in path if folder in foreign]
    return [*kept, *sorted(moved, key=lambda folder: folder != own)]


def _is_below(file: str, folders: frozenset[str]) -> bool:
    return any(file.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)
