"""``weigh doctor``: look at this machine, and at a job before it is shipped."""

from collections.abc import Mapping

import msgspec

from weigh.flow.doctor.checklist import MACHINE_CHECKS, checklist
from weigh.flow.doctor.facts import LIMIT_CHECKS, PATIENCE, gather
from weigh.flow.doctor.job import job_facts
from weigh.flow.site.ask import Ask, ask, in_time
from weigh.model.doctor import Diagnosis, Facts, JobFacts


def doctor(
    cwd: str, env: Mapping[str, str], *, job: str | None = None, ask: Ask = ask
) -> Diagnosis:
    """Look at everything there is to look at, and say how it is.

    *job* names a plan or script; empty, the one that is in *cwd*.
    """
    facts = gather(cwd, env, ask)
    if job is not None:
        facts = msgspec.structs.replace(facts, job=_job(job, cwd, env, ask))
    return diagnose(facts)


def diagnose(facts: Facts) -> Diagnosis:
    """Judge what was found out."""
    checks = (*MACHINE_CHECKS, *LIMIT_CHECKS)
    found = tuple(check for one in checks for check in one(facts))
    return Diagnosis(host=facts.host, checks=found, job=checklist(facts))


def _job(named: str, cwd: str, env: Mapping[str, str], ask: Ask) -> JobFacts:
    (found,) = in_time([lambda: job_facts(named, cwd, env, ask)], patience=2 * PATIENCE)
    if found is None:
        why = f"its disk has not answered for {2 * PATIENCE:g} s"
        return JobFacts(file=named or None, trouble=why, git_trouble=why)
    return found
