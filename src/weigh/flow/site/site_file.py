"""``weigh cluster --write-config``: write a site file for the current cluster."""

import os
from collections.abc import Mapping

from weigh.errors import StoreError, UsageError
from weigh.flow.site.ask import Ask, ask_scheduler
from weigh.flow.site.cluster import asking_environment, find_complexes, query_cluster
from weigh.render.cluster_lines import site_settings_text
from weigh.schedulers import KINDS

# variables for a user's scratch, then the usual directories
_VARIABLES = (
    "SCRATCH",
    *(name for kind in KINDS.values() for name in kind.variables.scratch),
)
_FOLDERS = ("/disk/scratch", "/scratch", "/local/scratch", "/lscratch", "/localscratch")


def site_file(
    env: Mapping[str, str], *, scheduler: str | None = None, ask: Ask = ask_scheduler
) -> tuple[str, tuple[str, ...]]:
    """Return the text of the site file, and notes on what could not be found.

    Raises:
        WeighError: there is no scheduler, or it does not answer.
    """
    seen = query_cluster(env, scheduler=scheduler, ask=ask)
    words = find_complexes(asking_environment(env), ask, seen.scheduler)
    return site_settings_text(seen, find_scratch(env), words), seen.notes


def find_scratch(env: Mapping[str, str], root: str = "") -> str | None:
    """Return this machine's scratch directory as written in a site file, if any."""
    for name in _VARIABLES:
        if os.path.isdir(root + env.get(name, "")) and env.get(name):
            return f"${name}"
    for folder in _FOLDERS:
        if os.path.isdir(root + folder):
            return f"{folder}/$USER"
    return None


def write_new(path: str, text: str) -> None:
    """Write *text* to *path*, which must not exist yet.

    Raises:
        UsageError: the file exists.
        StoreError: the file cannot be written.
    """
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already (choose another file)") from error
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
