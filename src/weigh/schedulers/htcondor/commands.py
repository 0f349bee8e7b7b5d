"""HTCondor's commands: condor_submit, condor_q, condor_history, condor_rm.

A cluster of HTCondor's is a job of ours, its processes are the elements, from 0. A job
that breaks a rule is put on hold: it stays in the queue until somebody removes it.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from weigh.errors import FormatError, UsageError
from weigh.model.job import JobRequest, RecordedRequest, States, Submitted
from weigh.schedulers import absent
from weigh.schedulers.command import Ran
from weigh.schedulers.dialect import whole_number
from weigh.schedulers.htcondor import script as htcondor_script
from weigh.schedulers.htcondor import text
from weigh.schedulers.htcondor.ads import Ad, ads_argv, number, read_ads
from weigh.schedulers.job_script import request_of
from weigh.schedulers.protocol import Argv

NAME = text.NAME
LOGIN_HINT = "submit from an access point of the pool, or with --on local here"
NO_CLUSTER = re.compile(r"Neither the environment variable CONDOR_CONFIG")
SHOWS_TOKENS = False
OWN: Mapping[str, str] = {
    **dict.fromkeys(("executable", "arguments", "universe"), "the script is weigh's"),
    **dict.fromkeys(("output", "error"), "weigh logs shows the output"),
    "queue": "weigh plan makes the elements",
    "initialdir": "the job runs where it was submitted",
    "environment": "--setup 'export NAME=value' sets a variable",
    "should_transfer_files": "the nodes must share the plan's file system",
    "concurrency_limits": "--throttle limits it",
    **dict.fromkeys(("on_exit_remove", "periodic_remove"), "weigh resume, --requeue"),
}
render, log_name = htcondor_script.render_script, htcondor_script.log_name
parse_start, accounting_answer = absent.parse_start, absent.accounting_answer
session_argv = absent.session_argv
patience_argv, parse_patience = absent.patience_argv, absent.parse_patience
with_other_token = absent.with_other_token
from_nodes_argvs = absent.from_nodes_argvs
parse_from_nodes = absent.parse_from_nodes
slots_argv, parse_slots = absent.slots_argv, absent.parse_slots
_SUBMITTED = re.compile(r"^(\d{1,12})\.\d+ - \d+\.\d+\s*$", re.MULTILINE)
_REFUSED = re.compile(r"\bERROR: (.+)")
# the request may have arrived nevertheless
_LOST = re.compile(
    r"connect|commit|contact|address of|communicat|time[d ]*out|SECMAN|transaction",
    re.IGNORECASE,
)
_SHORT_ARRAY = 1000


def submit_argv(script: str) -> Argv:
    """Submit a script."""
    return ("condor_submit", "-terse", script)


def verify_argv(script: str) -> Argv:
    """Return the command that reads a script and submits nothing."""
    return ("condor_submit", "-dry-run", "/dev/null", script)


def parse_doubt(out: str) -> str | None:
    """Read why condor_submit would reject it."""
    found = _REFUSED.search(out)
    if found is None or _LOST.search(found[1]):
        return None
    return f"condor_submit would reject the job: {found[1].strip()}"


def understood_argv(job: str) -> Argv:
    """Return the command that shows the request of a job."""
    return ads_argv("condor_q", f"{job}.0")


def parse_understood(out: str) -> RecordedRequest | None:
    """Read the request as HTCondor understood it; None if no job is listed."""
    for ad in _read_or_none(out):
        return RecordedRequest(
            memory=ad.memory,
            cpus=number(ad.request_cpus),
            gpus=number(ad.gpus),
            time_limit=number(ad.allowed_job_duration),
            elements=ad.total_submit_procs,
        )
    return None


def parse_submitted(out: str) -> str | None:
    """Read ``42.0 - 42.9``; other text may come before."""
    found = _SUBMITTED.findall(out)
    return found[-1] if found else None


def is_unanswered(words: str) -> bool:
    """Return whether condor_submit failed while it talked to the queue."""
    return not words.strip() or _LOST.search(words) is not None


def queue_argv(user: str) -> Argv:
    """Return the command that lists the jobs of *user* in the queue."""
    owner = f"Owner == {json.dumps(user)}"
    return ads_argv("condor_q", "-allusers", "-constraint", owner)


def find_argv(user: str, name: str) -> Argv:  # noqa: ARG001 - users choose job names
    """Return the same command, which shows the token of each job."""
    return queue_argv(user)


def parse_found(ran: Ran, token: str) -> str | None:
    """Read the id of the job with the token.

    Raises:
        FormatError: condor_q failed, or its output is truncated.
    """
    if ran.code != 0:
        raise FormatError(f"condor_q: {ran.complaint()}")
    found = (ad.job for ad in read_ads(ran.out) if ad.weigh_token == token)
    return next(found, None)


def parse_queue(out: str) -> States:
    """Read condor_q.

    Raises:
        FormatError: the output is truncated, or a job has no number.
    """
    return _states(read_ads(out))


def ended_argvs(jobs: Sequence[str]) -> tuple[Argv, ...]:
    """Return one command for all jobs."""
    return (ads_argv("condor_history", *jobs),) if jobs else ()


def parse_ended(out: str) -> States:
    """Read condor_history, which lists the latest end first."""
    return _states(reversed(_read_or_none(out)))


def why_argv(job: str) -> Argv | None:
    """Return the command that shows why elements are on hold."""
    return ads_argv("condor_q", job)


def parse_why(out: str) -> str | None:
    """Read why an element is on hold."""
    return next((ad.hold_reason for ad in _read_or_none(out) if ad.hold_reason), None)


def gpu_types_argv() -> Argv | None:
    """Return the command that lists the names of GPUs."""
    return ("condor_status", "-af", "GPUs_DeviceName")


def parse_gpu_types(out: str) -> tuple[str, ...]:
    """Read the names of GPUs, one per line."""
    names = {line.strip() for line in out.splitlines()}
    return tuple(sorted(names - {"", "undefined"}))


def array_limit_argv(elements: int) -> Argv | None:
    """Return the command that shows the limit, if the usual default may be too low."""
    setting = "MAX_JOBS_PER_SUBMISSION"
    return ("condor_config_val", setting) if elements > _SHORT_ARRAY else None


def parse_array_limit(out: str) -> int | None:
    """Read how many jobs one submission may have."""
    return whole_number(out.strip())


def cancel_argv(job: Submitted, elements: Sequence[int] | None) -> Argv:
    """Return the command that removes a job or some of its elements."""
    some = (f"{job.id}.{element}" for element in elements or ())
    return ("condor_rm", *((job.id,) if elements is None else some))


def on_host_argv(job: str, host: str) -> Argv:
    """Return the command that lists where the elements of a job run."""
    here = json.dumps(f"@{host}([.]|$)")
    runs = f"ClusterId == {job} && regexp({here}, RemoteHost)"
    return ("condor_q", "-allusers", "-constraint", runs, "-af", "ClusterId")


def parse_on_host(out: str, job: str) -> bool:
    """Return whether the job is listed."""
    return job in out.split()


def session_flags(request: JobRequest) -> list[Argv]:
    """Refuse: only condor_submit opens a shell on a node, and needs sshd there.

    Raises:
        UsageError: always.
    """
    lines = " ".join(
        f"-append '{line}'" for line in text.directives(request_of(request))
    )
    raise UsageError(f"for a shell on a node: condor_submit -interactive {lines}")


def _read_or_none(out: str) -> Sequence[Ad]:
    try:
        return read_ads(out)
    except FormatError:
        return ()


def _states(ads: Iterable[Ad]) -> States:
    states: States = {}
    for ad in ads:
        states.setdefault(ad.job, {})[ad.proc_id] = ad.element()
    return states
