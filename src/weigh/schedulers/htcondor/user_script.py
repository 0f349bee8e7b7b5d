"""Jobs of HTCondor that weigh did not submit.

A submit description names a program of its own, and the number of its jobs in its last
line: weigh cannot run a part of them, or measure them, without changing the file.
"""

import posixpath
import re
from collections.abc import Sequence

from weigh.model.job import Submitted
from weigh.schedulers import absent
from weigh.schedulers.htcondor.ads import Ad, ads_argv, read_ads
from weigh.schedulers.htcondor.commands import parse_understood
from weigh.schedulers.protocol import Argv, KnownJob

OF_WHOLE_ARRAY = absent.OF_WHOLE_ARRAY
describe, with_flags, only = absent.describe, absent.with_flags, absent.only
submit_script_argv = absent.submit_script_argv
check_script_argv = absent.check_script_argv
raised, wrapper, wrapper_flags = absent.raised, absent.wrapper, absent.wrapper_flags
raw_argv, parse_raw = absent.raw_argv, absent.parse_raw
sent_argv, parse_sent = absent.sent_argv, absent.parse_sent
change_argvs, parse_refusal = absent.change_argvs, absent.parse_refusal
_NAME = re.compile(r"(\d{1,10})(?:\.(\d{1,9}))?")


def default_log(job: Submitted, index: int | None) -> str:
    """Return a name that no log has: a description without output writes none."""
    return f"{job.id}.{index or 0}.out"


def log(job: Submitted, index: int | None, node: str | None) -> str | None:  # noqa: ARG001
    """Return the path of an element's log, if the queue or history showed it."""
    return job.own.logs.get("" if index is None else str(index)) if job.own else None


def known_argvs(name: str) -> tuple[Argv, ...]:
    """Return the commands that describe a job: of the queue, of its history."""
    found = _NAME.fullmatch(name)
    if not found:
        return ()
    return (ads_argv("condor_q", found[1]), ads_argv("condor_history", found[1]))


def parse_known(name: str, outs: Sequence[str]) -> KnownJob | None:
    """Read a job from the descriptions (ads) of its elements."""
    found = _NAME.fullmatch(name)
    ads: dict[int, Ad] = {}
    for out in outs:
        for ad in read_ads(out):
            ads.setdefault(ad.proc_id, ad)
    if found is None or not ads:
        return None
    first = ads[min(ads)]
    total = first.total_submit_procs or len(ads)
    numbers = sorted(ads) if len(ads) >= total else range(total)
    return KnownJob(
        id=found[1],
        user=first.owner,
        name=first.job_batch_name or posixpath.basename(first.cmd),
        cwd=first.iwd,
        script=posixpath.join(first.iwd, first.cmd) if first.cmd else "",
        indices=",".join(map(str, numbers)),
        part=found[2] or "",
        submitted=float(first.q_date or 0),
        logs={
            str(n): posixpath.join(ad.iwd, ad.out) for n, ad in ads.items() if ad.out
        },
        request=next(filter(None, map(parse_understood, outs)), None),
    )
