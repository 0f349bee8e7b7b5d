"""``weigh cluster --write-config``: a site's file, from the cluster as it is."""

import os
from collections.abc import Mapping

from weigh.errors import StoreError, UsageError
from weigh.flow.site.ask import Ask, ask_scheduler
from weigh.flow.site.cluster import asking_environment, cluster, find_complexes
from weigh.render.cluster_lines import render_site
from weigh.schedulers.gridengine import commands as gridengine_commands

# variables that name a user's own scratch, then the usual places
_VARIABLES = ("SCRATCH", "SLURM_TMPDIR")
_FOLDERS = ("/disk/scratch", "/scratch", "/local/scratch", "/lscratch", "/localscratch")


def site_file(
    env: Mapping[str, str], *, scheduler: str | None = None, ask: Ask = ask_scheduler
) -> tuple[str, tuple[str, ...]]:
    """Write the site file's text; give it with what could not be learnt.

    Raises:
        WeighError: there is no scheduler here, or it does not answer.
    """
    seen = cluster(env, scheduler=scheduler, ask=ask)
    words = (
        {}
        if seen.scheduler != gridengine_commands.NAME
        else find_complexes(asking_environment(env), ask)
    )
    return render_site(seen, find_scratch(env), words), seen.notes


def find_scratch(env: Mapping[str, str], root: str = "") -> str | None:
    """Find the scratch of this machine as a site would write it, if it has one."""
    for name in _VARIABLES:
        if os.path.isdir(root + env.get(name, "")) and env.get(name):
            return f"${name}"
    for folder in _FOLDERS:
        if os.path.isdir(root + folder):
            return f"{folder}/$USER"
    return None


def write_new(path: str, text: str) -> None:
    """Write *text* to *path*, which must not be there yet.

    Raises:
        UsageError: it is there.
        StoreError: it cannot be written.
    """
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already (name another --write)") from error
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
