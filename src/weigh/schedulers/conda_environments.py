"""Whether conda has an environment of a name, by the files that conda keeps."""

import os
from collections.abc import Callable, Sequence


def lacks_conda_environment(
    name: str,
    roots: Sequence[str],
    home: str | None,
    text_of: Callable[[str], str],
    is_missing: Callable[[str], bool],
) -> bool:
    """Return whether no conda of *roots* has an environment *name*; False if unknown.

    *text_of* reads the start of a file, and is empty where there is none. Nothing is
    known where settings name other folders of environments.
    """
    of_user = f"{home}/.conda"
    with_settings = (home, of_user, f"{home}/.config/conda", "/etc/conda", *roots)
    if any("envs_dirs" in text_of(f"{one}/.condarc") for one in with_settings):
        return False
    # conda lists there what it made, in whichever folder; no others are looked at, as
    # a folder may be slow to answer
    listed = text_of(f"{of_user}/environments.txt").splitlines()
    folders = [f"{one}/envs/{name}" for one in (*roots, of_user)]
    folders += [path for path in listed if os.path.basename(path) == name]
    return all(map(is_missing, folders))
