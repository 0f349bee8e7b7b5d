"""``weigh submit --prefetch``: a job without a GPU that downloads data first."""

import os
from collections.abc import Sequence

import msgspec

from weigh.flow.plan.directory import FOLDER
from weigh.model.job import JobScript, JobSetup, SubmittedJob

# after the name of the job that waits for it
NAME = "-prefetch"
# of the download, which no record describes
MEMORY = "4G"


def setup_before(setup: JobSetup, cwd: str) -> JobSetup:
    """Return the set-up of the prefetch job, which may be what makes the environment.

    It activates none whose folder is not there yet, and imports nothing from it.
    """

    def there(path: str | None) -> str | None:
        # a bare name is one of conda's environments, which may be anywhere
        is_folder = path is not None and os.sep in path
        return (
            None
            if is_folder and not os.path.isdir(_path_below_folder(cwd, path))
            else path
        )

    return msgspec.structs.replace(
        setup, imports=(), venv=there(setup.venv), conda=there(setup.conda)
    )


def _path_below_folder(cwd: str, path: str | None) -> str:
    return os.path.join(cwd, os.path.expanduser(path or ""))


def free_name(name: str, cwd: str) -> str:
    """Return a name for the prefetch job that no plan has yet."""
    free, number = f"{name}{NAME}", 1
    while os.path.lexists(os.path.join(cwd, FOLDER, free)):
        number += 1
        free = f"{name}{NAME}-{number}"
    return free


def after_prefetch(
    job_scripts: Sequence[JobScript], first: SubmittedJob
) -> list[JobScript]:
    """Return the parts, to be started after *first* succeeded; same scheduler."""
    return [
        msgspec.structs.replace(
            part,
            request=msgspec.structs.replace(
                part.request, after=(*part.request.after, first.id)
            ),
            needs=(*part.needs, first.token),
        )
        for part in job_scripts
    ]
