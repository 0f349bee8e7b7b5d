"""Notify a command or an address of the end of healing."""

import os
import subprocess

import msgspec

from weigh.flow.submit.rounds import StoppedHealer
from weigh.model.job import SubmittedJob
from weigh.schedulers.job_script import is_url

SCHEMA = "weigh.healed/1"
_NOTIFY_TIME = 20  # seconds


def notify_end(
    target: str, submitted_job: SubmittedJob, stopped: StoppedHealer, done: int
) -> None:
    """Send the summary of all rounds to a command or an address.

    Raises:
        OSError: it cannot be sent.
        subprocess.SubprocessError: the command failed or took too long.
    """
    event = {
        "schema": SCHEMA,
        "job": submitted_job.id,
        "name": submitted_job.name,
        "rounds": stopped.round,
        "done": done,
        "left": stopped.left,
        "why": stopped.why,
        "ended": stopped.time,
    }
    state = "failed" if stopped.left else "completed"
    # the body of the request, or the standard input of the command
    line = msgspec.json.encode(event) + b"\n"
    if is_url(target):
        from urllib.request import Request, urlopen  # noqa: PLC0415 - rarely

        kind = {"Content-Type": "application/json"}
        urlopen(Request(target, line, kind), timeout=_NOTIFY_TIME).close()  # noqa: S310 - is_url
        return
    subprocess.run(
        ("/bin/bash", "-c", target),
        input=line,
        env={**os.environ, "WEIGH_JOB": submitted_job.id, "WEIGH_STATE": state},
        timeout=_NOTIFY_TIME,
        check=True,
    )
