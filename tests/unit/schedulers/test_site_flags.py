"""What a site wants in each request: memory per CPU, whole nodes, scratch, an account.

The oracle is sbatch(1): it multiplies --mem-per-cpu by the CPUs of a job on a node.
"""

import json
import os
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from scheduler_scripts import SLURM, answering
from some_requests import REQUESTS, a_submitted_job, some_job_script

from weigh.errors import FormatError, UsageError
from weigh.flow.check.script import check_here
from weigh.flow.here import here_of
from weigh.flow.site.cluster import in_site_words
from weigh.flow.submit.interactive import interactive
from weigh.flow.submit.job_request import differences
from weigh.model.job import JobRequest, RecordedRequest
from weigh.model.record import Request, SiteFlags
from weigh.review.advice import AdviceSubject, cpu_flag, memory_flag
from weigh.review.runs import ElementRequest
from weigh.schedulers import KINDS
from weigh.schedulers.slurm import TEXT
from weigh.units import GIB, MIB

PER_CPU = {"memory": "per-cpu"}


def script(kind: str, request: JobRequest) -> str:
    """Return the job script of one task, with this request."""
    return KINDS[kind].backend.render(some_job_script(request=request))


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


def test_a_job_script_has_what_the_site_wants() -> None:
    site = PER_CPU | {
        "exclusive": True,
        "constraint": "skylake&ib",
        "account": "physics",
        "qos": "normal",
    }
    flags = (("gres", "lscratch:90"), ("C", "ib"), ("requeue", ""))
    typed = JobRequest(cpus=4, memory=6 * GIB, gpus=1, extra=flags)

    text = script("slurm", in_site_words(typed, "slurm", site))

    wanted = [
        "--mem-per-cpu=1536M",
        "--gres=gpu:1,lscratch:90",
        "--exclusive",
        "-C ib",
        "--requeue",
        "--account=physics",
        "--qos=normal",
    ]
    assert [line for line in wanted if f"#SBATCH {line}\n" in text] == wanted
    assert "--mem=" not in text


def test_what_is_typed_wins_over_the_site() -> None:
    typed = JobRequest(account="mine", extra=(("constraint", "old"),))

    text = script(
        "slurm", in_site_words(typed, "slurm", {"account": "a", "constraint": "b"})
    )

    assert re.findall("--(?:account|constraint)=.*", text) == [
        "--account=mine",
        "--constraint=old",
    ]


def test_grid_engine_has_the_site_s_name_for_whole_nodes() -> None:
    site = {"exclusive": True, "gridengine": {"exclusive": "excl"}}

    text = script("gridengine", in_site_words(JobRequest(), "gridengine", site))

    assert "#$ -l excl=true\n" in text


def test_htcondor_has_an_expression_for_nodes() -> None:
    site = {"constraint": 'OpSysMajorVer >= 9 && Arch == "X86_64"'}

    text = script("htcondor", in_site_words(JobRequest(), "htcondor", site))

    assert 'requirements = (OpSysMajorVer >= 9 && Arch == "X86_64")' in text


def test_a_whole_node_needs_the_site_s_name_of_it() -> None:
    with pytest.raises(UsageError, match=re.escape("cluster.gridengine.exclusive")):
        in_site_words(JobRequest(), "gridengine", {"exclusive": True})


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("slurm", "memory", "per-core"),
        ("slurm", "exclusive", "yes"),
        ("slurm", "constraint", "two words"),
        ("gridengine", "constraint", "skylake"),
    ],
)
def test_an_invalid_setting_is_named(kind: str, key: str, value: str) -> None:
    with pytest.raises(FormatError, match=f"cluster.{key}"):
        in_site_words(JobRequest(), kind, {key: value})


def checked(folder: Path, text: str, site: dict[str, object]) -> dict[str, str]:
    (folder / "job.sh").write_text(f"#!/bin/bash\n{text}\necho hello\n")
    lines = [f"{key} = {json.dumps(value)}" for key, value in site.items()]
    (folder / "weigh.toml").write_text("\n".join(("[cluster]", *lines, "")))
    here = here_of(str(folder), {"PATH": "/bin"})
    found = check_here(here, "job.sh", form="slurm")
    return {one.rule: one.cure for one in found.findings}


def test_a_script_is_checked_for_what_the_site_wants(tmp_path: Path) -> None:
    text = "#SBATCH --mem=8G --cpus-per-task=4"

    found = checked(tmp_path, text, PER_CPU | {"require": ["account"]})

    assert found["site-memory"] == "--mem-per-cpu=2048M"
    assert "site-requires" in found


def test_a_site_that_requires_an_account_gets_no_job_without(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    (tmp_path / "weigh.toml").write_text('[cluster]\nrequire = ["account"]\n')

    with pytest.raises(UsageError, match="no account requested"):
        interactive(
            here_of(str(tmp_path), env),
            JobRequest(),
            (),
            scheduler="slurm",
            run_command=answering(SLURM),
        )


def test_the_scheduler_s_record_of_memory_per_cpu_is_no_difference() -> None:
    wanted = JobRequest(cpus=7, memory=GIB, site=SiteFlags(per_cpu=True))
    job = a_submitted_job(
        request=wanted,
    )
    recorded = RecordedRequest(memory=7 * -(-GIB // (7 * MIB)) * MIB, cpus=7)

    assert list(differences(job, recorded)) == []


def test_advice_to_such_a_job_is_per_cpu_as_well() -> None:
    requested = ElementRequest(scheduler="slurm", cpus=4, memory=8 * GIB, per_cpu=True)
    subject = AdviceSubject(elements=(), requested=requested, measures={})

    assert memory_flag(subject, 4 * GIB) == "--mem-per-cpu=1G"
    assert cpu_flag(subject, 4) == "--cpus-per-task=4 --mem-per-cpu=2G"


@pytest.mark.parametrize(
    ("scheduler", "passed", "read", "others"),
    [
        ("slurm", "mem=4G time=1:00:00", {"memory": 4 * GIB, "time_limit": 3600}, ""),
        ("slurm", "gres=gpu:v100:2", {"gpus": 2, "gpu_type": "v100"}, ""),
        ("slurm", "partition=a account=b qos=c", {"queue": "a", "account": "b"}, ""),
        ("slurm", "tmp=20G constraint=x nice=", {}, "tmp=20G constraint=x nice="),
        # what weigh would write only in part, and what the scheduler refuses
        ("slurm", "gres=gpu:1,lscratch:9", {"gpus": 0}, "gres=gpu:1,lscratch:9"),
        ("slurm", "mem=abc nosuch=3", {"memory": None}, "mem=abc nosuch=3"),
        # of each slot, and there are as many as CPUs
        ("gridengine", "l=h_vmem=2G", {"virtual_memory": 8 * GIB}, ""),
        ("gridengine", "l=h_rt=600,tmpfs=9G", {"time_limit": 600}, "l=tmpfs=9G"),
        ("gridengine", "q=short.q P=lab", {"queue": "short.q", "account": "lab"}, ""),
        ("gridengine", "pe=smp,4 l=ngpus=1 V=", {}, "pe=smp,4 l=ngpus=1 V="),
        ("htcondor", "rank=Memory", {}, "rank=Memory"),
    ],
)
def test_flags_that_are_passed_on_are_read_and_written_once(
    scheduler: str, passed: str, read: dict[str, object], others: str
) -> None:
    def pairs(text: str) -> tuple[tuple[str, str], ...]:
        split = (word.partition("=")[::2] for word in text.split())
        return tuple((flag, value.replace("smp,", "smp ")) for flag, value in split)

    typed = JobRequest(cpus=4, extra=pairs(passed))

    found = KINDS[scheduler].lint.read_flags(typed)

    assert {field: getattr(found, field) for field in read} == read
    assert found.extra == pairs(others)
