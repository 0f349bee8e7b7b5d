"""``weigh profile``: the command line of Scalene for a Python program."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from weigh.errors import CommandNotFoundError, UsageError, WeighError
from weigh.probe.driver import gpu_may_be_present, has_amd_driver
from weigh.schedulers import job_from_environment
from weigh.store import identity, location

PROFILES_FOLDER = "profiles"  # in the store
_EXAMPLE = "weigh profile -- python3 train.py"


def scalene_command(
    command: Sequence[str],
    *,
    environ: Mapping[str, str],
    output: str | None = None,
    force: bool = False,
) -> tuple[list[str], str]:
    """Return the command that profiles *command*, and the file it writes.

    Raises:
        UsageError: it is not a Python program, or this is a batch job without *force*.
        CommandNotFoundError: that Python does not exist.
        WeighError: that Python has no Scalene.
        StoreError: the store cannot be written.
    """
    job = job_from_environment(environ)
    if job is not None and not force:
        raise UsageError(
            f"in batch job {job.id} a profiler slows the real run: --force runs it"
        )
    python, *program = command
    if not os.path.basename(python).startswith("python"):
        raise UsageError(f"not a Python command: {python}   (write {_EXAMPLE})")
    # without a file there are no lines to show
    if not program or program[0] in {"-", "-c"}:
        raise UsageError(f"a profile needs a file or a module: {_EXAMPLE}")
    found = shutil.which(python)
    if found is None:
        raise CommandNotFoundError(f"command not found: {python}")
    _require_scalene(found)
    if output is None:
        store = location.locate_store(os.getcwd(), environ)
        folder = location.make_folder(store, PROFILES_FOLDER)
        output = os.path.relpath(os.path.join(folder, f"{identity.new_id()}.json"))
    # with a GPU, Scalene makes torch trace itself, which makes a program that uses
    # only the CPU many times slower and larger
    has_gpu = gpu_may_be_present(environ) or has_amd_driver()
    options = ["-o", output, *([] if has_gpu else ["--memory"])]
    return [found, "-m", "scalene", "run", *options, *program], output


def _require_scalene(python: str) -> None:
    tried = subprocess.run(
        [python, "-m", "scalene", "run", "--help"], capture_output=True, check=False
    )
    if tried.returncode != 0:
        raise WeighError(f"{python} has no Scalene 2: {python} -m pip install scalene")
