"""The jobs that HTCondor prints, one description (ad) for each process of a cluster."""

from collections.abc import Sequence

import msgspec

from weigh.errors import FormatError
from weigh.model.job import STUCK, ElementState
from weigh.model.record import State
from weigh.schedulers.protocol import Argv
from weigh.units import MIB, Bytes

_REMOVED, _COMPLETED, _HELD = 3, 4, 5
_STATES: dict[int, tuple[State, str | None]] = {
    1: ("PENDING", None),
    2: ("RUNNING", None),
    _REMOVED: ("RUNNING", "being removed"),
    _HELD: ("PENDING", "on hold by its user"),
    6: ("RUNNING", "transferring output"),
    7: ("RUNNING", "suspended"),
}
_BY_USER = frozenset({1, 15})  # condor_hold; hold = true
# why a job is on hold, and the detail if it matters; the second is a site's own POLICY
_OVER: dict[tuple[int | None, int | None], tuple[State, str]] = {
    (34, None): ("OUT_OF_MEMORY", "over its memory request"),
    (21, 102): ("OUT_OF_MEMORY", "over its memory request"),
    (46, None): ("TIMEOUT", "over allowed_job_duration"),
    (47, None): ("TIMEOUT", "over allowed_execute_duration"),
}


class Ad(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """One process as condor_q and condor_history print it; MiB, KiB, seconds.

    What a user may write as an expression is of any type: see `number`.
    """

    cluster_id: int
    proc_id: int
    job_status: int = 0
    owner: str = ""
    job_batch_name: str = ""
    weigh_token: object = None
    cmd: str = ""
    iwd: str = ""
    out: str = ""
    q_date: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    hold_reason: str | None = None
    hold_reason_code: int | None = None
    hold_reason_sub_code: int | None = None
    last_hold_reason_code: int | None = None
    last_hold_reason_sub_code: int | None = None
    remove_reason: str | None = None
    remote_host: str | None = None
    last_remote_host: str | None = None
    job_current_start_date: int | None = None
    entered_current_status: int | None = None
    total_submit_procs: int | None = None
    request_memory: object = None
    request_cpus: object = None
    gpus: object = msgspec.field(default=None, name="RequestGPUs")
    allowed_job_duration: object = None
    remote_wall_clock_time: float | None = None
    remote_user_cpu: float = 0.0
    remote_sys_cpu: float = 0.0
    resident_set_size: object = msgspec.field(default=None, name="ResidentSetSize_RAW")

    @property
    def job(self) -> str:
        """Return the id of the job."""
        return str(self.cluster_id)

    @property
    def node(self) -> str | None:
        """Return the node of the slot ``slot1_2@node``."""
        slot = self.remote_host or self.last_remote_host or ""
        return slot.rpartition("@")[2] or None

    @property
    def memory(self) -> Bytes | None:
        """Return the requested memory."""
        mebibytes = number(self.request_memory)
        return None if mebibytes is None else mebibytes * MIB

    def element(self) -> ElementState:
        """Return the state of the element, in the queue or after its end."""
        state, reason = self._judged()
        one = ElementState(
            state=state,
            reason=reason,
            started=self.job_current_start_date,
            node=self.node,
        )
        if not one.is_final:
            return one
        return msgspec.structs.replace(
            one,
            exit_code=self.exit_code,
            signal=self.exit_signal,
            ended=self.entered_current_status,
        )

    def _judged(self) -> tuple[State, str | None]:
        if self.job_status == _HELD and self.hold_reason_code not in _BY_USER:
            over = _over(self.hold_reason_code, self.hold_reason_sub_code)
            return over or ("FAILED", STUCK)
        if self.job_status == _REMOVED and not self.remote_host:
            # weigh's jobs leave by themselves when they are on hold for using too much
            by_itself = "PeriodicRemove" in (self.remove_reason or "")
            over = _over(self.last_hold_reason_code, self.last_hold_reason_sub_code)
            return (over if by_itself else None) or ("CANCELLED", None)
        if self.job_status == _COMPLETED:
            return ("COMPLETED" if self.exit_code == 0 else "FAILED"), None
        return _STATES.get(self.job_status, ("UNKNOWN", None))


def _over(code: int | None, detail: int | None) -> tuple[State, str] | None:
    return _OVER.get((code, None)) or _OVER.get((code, detail))


def number(value: object) -> int | None:
    """Return a whole number; None for an expression, which is printed as text."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def ads_argv(command: str, *which: str) -> Argv:
    """Return *command*, condor_q or condor_history, for these jobs in JSON."""
    fields = ",".join(Ad.__struct_encode_fields__)
    return (command, *which, "-json", "-attributes", fields)


def read_ads(out: str) -> Sequence[Ad]:
    """Read the answer of either; condor_q prints nothing if there are no jobs.

    Raises:
        FormatError: it is truncated, or no list of jobs.
    """
    try:
        return msgspec.json.decode(out, type=list[Ad]) if out.strip() else []
    except (msgspec.DecodeError, UnicodeError) as error:
        raise FormatError("HTCondor's answer is cut off or no list of jobs") from error
