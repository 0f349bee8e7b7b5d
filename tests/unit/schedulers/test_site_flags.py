"""What a site wants in each request: memory per CPU, whole nodes, scratch, an account.

The oracle is sbatch(1): it multiplies --mem-per-cpu by the CPUs of a job on a node.
"""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from scheduler_scripts import SLURM, answering
from sessions import check_session
from some_requests import REQUESTS

from weigh.errors import UsageError
from weigh.flow.here import here_of
from weigh.flow.submit.interactive import interactive
from weigh.model.job import JobRequest
from weigh.model.record import Request, SiteFlags
from weigh.schedulers.slurm import TEXT
from weigh.units import MIB


def test_worked_examples_of_what_sites_want() -> None:
    check_session(Path(__file__).with_name("site_words.session"), {})


@given(request=REQUESTS)
def test_memory_per_cpu_is_the_same_memory(request: Request) -> None:
    flags = TEXT.directives(
        msgspec.structs.replace(request, site=SiteFlags(per_cpu=True))
    )

    assert not any(flag.startswith("--mem=") for flag in flags)
    if request.memory is not None:
        (each,) = (f for f in flags if f.startswith("--mem-per-cpu="))
        granted = TEXT.parse_memory(each.partition("=")[2]) * request.cpus
        assert granted >= request.memory
        assert granted - max(request.memory, request.cpus * MIB) < request.cpus * MIB


def test_a_site_that_requires_an_account_gets_no_job_without(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (tmp_path / "weigh.toml").write_text('[cluster]\nrequire = ["account"]\n')
    here, ask = here_of(str(tmp_path), env), answering(SLURM)

    with pytest.raises(UsageError, match="no account requested"):
        interactive(here, JobRequest(), (), scheduler="slurm", run_command=ask)
