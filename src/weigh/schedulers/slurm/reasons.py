"""Why a job waits (squeue(1), JOB REASON CODES), and what Slurm prints at its end."""

import re

from weigh.schedulers.backend import SchedulerReasons
from weigh.schedulers.protocol import EndMessages

# slurmstepd's messages, with control groups or by polling
_OVER_MEMORY = (
    r"slurmstepd(?:-\S+)?: error: .*"
    r"(?:exceeded memory limit|Exceeded job memory limit|oom.kill)"
)
_THROTTLE = "JobArrayTaskLimit"

_REASONS = {
    "Priority": "other jobs have a higher priority",
    "Resources": "next in line",
    _THROTTLE: "the array's throttle",
    "Dependency": "a job that it depends on has not ended",
    "DependencyNeverSatisfied": "never: a job that it depends on failed",
    "BeginTime": "its begin time has not come, or it was requeued a moment ago",
    "JobHeldUser": "held by you (scontrol release)",
    "JobHeldAdmin": "held by the site's administrators",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition starts no jobs now",
    "PartitionTimeLimit": "never: it requests more time than the partition allows",
    "PartitionNodeLimit": "never: it requests more nodes than the partition allows",
    "PartitionConfig": "never: it requests more than the partition allows",
    "BadConstraints": "never: no node has what it requests",
    "ReqNodeNotAvail": "the nodes it needs are down or reserved",
    "Reservation": "its reservation has not started",
    "Licenses": "no licence is free",
    "NodeDown": "a node it needs is down",
    "Cleaning": "the previous attempt is being cleaned up",
    "AssociationJobLimit": "your account's limit on jobs",
    "LaunchFailedRequeuedHeld": "held: it failed to start (scontrol release)",
    "JobHoldMaxRequeue": "held: it was requeued too often (scontrol release)",
    "JobRequeuedInHeldState": "held: it was requeued (scontrol release)",
    "UserEnvRetrievalFailedRequeuedHeld": "held: your login failed on its node",
    "QOSNotAllowed": "never: the partition does not accept its QOS",
    "AccountNotAllowed": "never: the partition does not accept your account",
    "InvalidAccount": "never: the account does not exist",
    "InvalidQOS": "never: the QOS does not exist",
    "MaxMemPerLimit": "never: it requests more memory than is allowed",
}
# some codes have blanks or underscores: (launch failed requeued held)
_BY_LETTERS = {name.lower(): words for name, words in _REASONS.items()}


def is_of_waiting(reason: str) -> bool:
    """Return whether this is a known reason why a job waits."""
    return _letters(_plain_slurm_reason(reason)) in _BY_LETTERS


def _plain_slurm_reason(reason: str) -> str:
    return reason.strip("()").partition(",")[0]


def _letters(plain: str) -> str:
    return plain.replace(" ", "").replace("_", "").lower()


class SlurmReasons(SchedulerReasons):
    """Slurm: its words on why jobs wait and end."""

    MESSAGES = EndMessages(
        over_memory=re.compile(_OVER_MEMORY),
        # in the output of the task that started the step, srun's messages, too
        step_over_memory=re.compile(
            rf"{_OVER_MEMORY}|srun: error: .*Out Of Memory", re.IGNORECASE
        ),
        ended=re.compile(
            r"slurmstepd(?:-\S+)?: error: \*\*\* JOB \d+ ON \S+ CANCELLED AT \S+"
            r"(?: DUE TO ([A-Z ]+)[^*]*)? \*\*\*"
        ),
        states={
            "TIME LIMIT": "TIMEOUT",
            "NODE FAILURE": "NODE_FAIL",
            "PREEMPTION": "PREEMPTED",
        },
    )

    def in_words(self, reason: str, throttle: int | None = None) -> str:
        """Return a reason in plain English; an unknown one unchanged.

        *throttle* is how many elements of the array may run at once, if that is known.
        """
        if reason == _THROTTLE and throttle:
            return f"{_REASONS[_THROTTLE]} of {throttle} at once"
        plain = _plain_slurm_reason(reason)
        if is_of_waiting(reason):
            return _BY_LETTERS[_letters(plain)]
        for prefix, whose in (("QOS", "the QOS's"), ("Assoc", "your account's")):
            if plain.startswith(prefix):
                return f"{whose} limit: {plain}"
        return plain

    def is_hopeless(self, reason: str) -> bool:
        """Return whether a job that waits for this reason can never start."""
        return self.in_words(reason).startswith("never")

    def freed_by(self, reason: str | None) -> str | None:
        """Return the command that releases an element which its user may release."""
        words = self.in_words(reason or "")
        held = words.startswith("held") and "administrators" not in words
        return "scontrol release {}" if held else None


REASONS = SlurmReasons()
