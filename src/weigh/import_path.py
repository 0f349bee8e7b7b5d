"""Let weigh import its own packages, whatever PYTHONPATH or the current folder hold.

Modules of a cluster (EasyBuild, Spack) put packages for other Pythons on PYTHONPATH.
They are for the job: weigh only moves them behind its own packages, as it may itself
have been installed that way. This module imports only what the interpreter has loaded.
"""

import os
import sys

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.__file__)
_OF_PYTHON = {_LIBRARY, os.path.join(_LIBRARY, "lib-dynload")}  # named, and not foreign


def put_own_packages_first() -> None:
    """Change `sys.path`, and forget modules that came from foreign folders."""
    # python -P adds no folder; else the first is that of the script or the current one
    started_here = "" if sys.flags.safe_path else sys.path[0]
    foreign = foreign_folders(os.environ.get("PYTHONPATH", ""), started_here)
    if not foreign:
        return
    own = os.path.dirname(_PACKAGE)
    sys.path[:] = path_with_foreign_last(sys.path, foreign, own)
    # modules that were imported before the order was right: import them again from the
    # right place
    strange = {
        name
        for name, module in sys.modules.items()
        if _import_folder_of_module(name, getattr(module, "__file__", None))
        in foreign - {own}
    }
    for name in list(sys.modules):
        if name.partition(".")[0] in strange:
            # submodules with their package: a mixture of two versions would fail
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
    return frozenset(filter(None, folders)) - _OF_PYTHON


def path_with_foreign_last(
    path: list[str], foreign: frozenset[str], package_folder: str
) -> list[str]:
    """Return *path* with the *foreign* folders last, of these weigh's own one first."""
    # an empty entry is the current folder, which holds whatever the job left there
    kept = [folder for folder in path if folder and folder not in foreign]
    moved = [folder for folder in path if folder in foreign]
    return [*kept, *sorted(moved, key=lambda folder: folder != package_folder)]


def _import_folder_of_module(module_name: str, file: str | None) -> str | None:
    """Return the folder of `sys.path` in which a module was found; None if unknown.

    A folder above it is another matter: PYTHONPATH may name that of a project, and the
    interpreter lie below it.
    """
    if module_name == "__main__" or "." in module_name or not file:
        return None
    folder, base = os.path.split(file)
    return os.path.dirname(folder) if base.startswith("__init__.") else folder
