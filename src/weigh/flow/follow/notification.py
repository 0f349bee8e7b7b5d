"""Notify a command or an address of the end of a job, or of its healing, once."""

import os
import socket
import subprocess
import time
from collections.abc import Mapping

import msgspec

from weigh.flow.follow.view import View
from weigh.flow.submit.rounds import FOLDER as SENT
from weigh.flow.submit.rounds import Stopped
from weigh.flow.submit.submit_script import LOGS
from weigh.model.job import Submitted
from weigh.schedulers.job_script import NOTIFY_SCHEMA, is_url

SCHEMA = "weigh.healed/1"
_NOTIFY_TIME = 20  # seconds
_NOTIFIED = "notified"


def notify_once(view: View, target: str) -> None:
    """Notify *target* of the end of a job, unless somebody did: a link decides.

    Raises:
        OSError: it cannot be sent.
        subprocess.SubprocessError: the command failed or took too long.
    """
    job, host = view.job, socket.gethostname()
    mark = os.path.join(job.folder, LOGS, f".ended_{job.id}", _NOTIFIED)
    if job.own is not None:  # a script of the user's own has no directory of logs
        mark = os.path.join(job.folder, SENT, job.token, _NOTIFIED)
    os.makedirs(os.path.dirname(mark), exist_ok=True)
    try:
        os.symlink(host, mark)
    except FileExistsError:
        return
    states = [state.state for state in view.elements]
    failed = sum(state != "COMPLETED" for state in states)
    state = "unknown" if "UNKNOWN" in states else "failed" if failed else "completed"
    event = {
        "schema": NOTIFY_SCHEMA,
        "job": job.id,
        "name": job.name,
        "elements": job.elements,
        "failed": failed,
        "state": state,
        "host": host,
        "ended": round(time.time()),
    }
    _send(target, event, job, state)


def notify_end(target: str, job: Submitted, stopped: Stopped, done: int) -> None:
    """Send the summary of all rounds to a command or an address.

    Raises:
        OSError: it cannot be sent.
        subprocess.SubprocessError: the command failed or took too long.
    """
    event = {
        "schema": SCHEMA,
        "job": job.id,
        "name": job.name,
        "rounds": stopped.round,
        "done": done,
        "left": stopped.left,
        "why": stopped.why,
        "ended": stopped.time,
    }
    _send(target, event, job, "failed" if stopped.left else "completed")


def _send(target: str, event: Mapping[str, object], job: Submitted, state: str) -> None:
    line = msgspec.json.encode(event) + b"\n"
    if is_url(target):
        from urllib.request import Request, urlopen  # noqa: PLC0415 - rarely

        kind = {"Content-Type": "application/json"}
        urlopen(Request(target, line, kind), timeout=_NOTIFY_TIME).close()  # noqa: S310 - is_url
        return
    subprocess.run(
        ("/bin/bash", "-c", target),
        input=line,
        env={**os.environ, "WEIGH_JOB": job.id, "WEIGH_STATE": state},
        timeout=_NOTIFY_TIME,
        check=True,
    )
