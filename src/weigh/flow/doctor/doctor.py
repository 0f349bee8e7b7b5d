"""``weigh doctor``: check this machine, and with ``--job`` a job before submission."""

from collections.abc import Callable

from weigh.flow.doctor import machine_checks
from weigh.flow.doctor.job_checks import job_checks
from weigh.flow.doctor.machine_checks import PATIENCE, disk_check, folders_to_check
from weigh.flow.here import Here
from weigh.flow.site.ask import CommandRunner, in_time, run_query_command
from weigh.model.doctor import DoctorCheck, DoctorDiagnosis
from weigh.probe.host import read_host

# twice: a check may run one command that has PATIENCE itself
_HUNG = f"has not answered for {2 * PATIENCE:g} s"
_HUNG_CURE = "is a file server or a driver down? ask the site's support"


def diagnose_machine(
    here: Here,
    *,
    job: str | None = None,
    run_command: CommandRunner = run_query_command,
) -> DoctorDiagnosis:
    """Check this machine and the plan or script *job*; what hangs is broken."""
    # looked for in a thread as well: HOME may be on a file server that is down
    (folders,) = in_time([lambda: folders_to_check(here)], patience=PATIENCE)
    looks: list[tuple[str, Callable[[], list[DoctorCheck]]]] = [
        ("scheduler", lambda: machine_checks.scheduler_checks(here.env, run_command)),
        ("nodes", lambda: machine_checks.nodes_checks(here.env)),
        ("environment", lambda: machine_checks.environment_checks(here.env)),
        ("torch", lambda: machine_checks.torch_checks(here.env)),
        ("GPU", lambda: machine_checks.gpu_checks(here.env)),
        *(
            (role, _disk_look(role, path))
            for role, path in folders or [("home", here.cwd)]
        ),
        ("records", lambda: machine_checks.records_checks(here)),
    ]
    if job is not None:
        looks.append(("script", lambda: list(job_checks(here, job, run_command))))
    # in parallel, as each may wait for a server or driver
    results = in_time([look for _, look in looks], patience=2 * PATIENCE)
    found = [
        [DoctorCheck(name, "broken", _HUNG, _HUNG_CURE)] if checks is None else checks
        for (name, _), checks in zip(looks, results, strict=True)
    ]
    of_job = found.pop() if job is not None else []
    # several folders on one disk that is fine are one line
    kept: dict[str, DoctorCheck] = {}
    for check in (check for checks in found for check in checks):
        kept.setdefault(check.text.partition(" left on ")[0], check)
    return DoctorDiagnosis(
        host=read_host().name, checks=tuple(kept.values()), job=tuple(of_job)
    )


def _disk_look(role: str, path: str) -> Callable[[], list[DoctorCheck]]:
    return lambda: [disk_check(role, path)]
