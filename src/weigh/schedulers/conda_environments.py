"""Whether conda has an environment, by the files that conda keeps."""

import os
from collections.abc import Sequence

from weigh.model.lint import ScriptFacts

# one of them is set where homes are small, or settings are elsewhere
_PLACES_OF_CONDA = ("CONDA_ENVS_PATH", "CONDA_ENVS_DIRS", "CONDARC")


def conda_program(facts: ScriptFacts) -> str | None:
    """Return the path of conda's program on this machine; None if it is not here."""
    found = facts.commands.get("conda")
    return facts.variables.get("CONDA_EXE") or (found.path if found else None)


def lacks_conda_environment(
    name: str, facts: ScriptFacts, roots: Sequence[str]
) -> bool:
    """Return whether no conda of *roots* has the environment; False if unknown.

    *name* may be a path, as for conda. Nothing is known where variables or settings
    name other folders of environments.
    """
    if name in ("", "base") or any(map(facts.variables.get, _PLACES_OF_CONDA)):
        return False
    of_user = f"{facts.home}/.conda"
    if os.sep in name:
        home, rest = (facts.home, name[1:]) if name[0] == "~" else ("", name)
        if home is None or (home and rest[0] != os.sep):
            return False  # of an unknown home, such as ~alice
        folders = [os.path.normpath(os.path.join(facts.cwd, home + rest))]
    else:
        settings = (facts.home, of_user, f"{facts.home}/.config/conda", "/etc/conda")
        for place in (*settings, *roots):
            if "envs_dirs" in (facts.texts.get(f"{place}/.condarc") or ""):
                return False
        # conda lists there what it made, in whichever folder; no others are looked at,
        # as a folder may be slow to answer
        listed = (facts.texts.get(f"{of_user}/environments.txt") or "").splitlines()
        folders = [f"{one}/envs/{name}" for one in (*roots, of_user)]
        folders += [path for path in listed if os.path.basename(path) == name]
    return all(facts.paths.get(folder) == "missing" for folder in folders)
