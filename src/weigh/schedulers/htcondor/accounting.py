"""Read condor_history: the resources that a job requested and used."""

from weigh.errors import FormatError
from weigh.model.report import Accounted
from weigh.schedulers.htcondor.ads import Ad, ads_argv, number, read_ads
from weigh.schedulers.protocol import AccountingWords, Argv
from weigh.units import KIB

_POLLED = "polled now and then: a short job shows its start, not its peak"
WORDS = AccountingWords(
    memory="condor_history ResidentSetSize",
    unmeasured=_POLLED,
    below=f"{_POLLED}: trust weigh's",
    above="with control groups it includes the page cache",
    below_killed=_POLLED,
    above_killed="the size at which HTCondor ended the job",
    zero="the job ended before HTCondor first measured it",
    cpu_time="condor_history RemoteUserCpu + RemoteSysCpu",
    wall_time="condor_history RemoteWallClockTime",
)


def argv(job: str) -> Argv:
    """Return the command that lists a job with all its elements."""
    return ads_argv("condor_history", job)


def parse(out: str) -> tuple[Accounted, ...]:
    """Read condor_history, which lists the latest end of an element first."""
    try:
        found = {ad.proc_id: _accounted(ad) for ad in reversed(read_ads(out))}
    except FormatError:
        return ()
    return tuple(one for _, one in sorted(found.items()))


def _accounted(ad: Ad) -> Accounted:
    resident = number(ad.resident_set_size)
    return Accounted(
        element=ad.proc_id,
        state=ad.element().state,
        node=ad.node,
        wall_time=ad.remote_wall_clock_time,
        cpu_time=ad.remote_user_cpu + ad.remote_sys_cpu,
        max_rss=None if resident is None else resident * KIB,
        cpus=number(ad.request_cpus),
        gpus=number(ad.gpus),
        memory_asked=ad.memory,
        time_limit=number(ad.allowed_job_duration),
    )
