"""Why a job waits, in plain English: squeue(1), JOB REASON CODES."""

_REASONS = {
    "Priority": "other jobs have a higher priority",
    "Resources": "next in line",
    "JobArrayTaskLimit": "the array's throttle",
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


def in_words(reason: str) -> str:
    """Return a reason in plain English; an unknown one unchanged."""
    plain = reason.strip("()").partition(",")[0]
    known = _BY_LETTERS.get(plain.replace(" ", "").replace("_", "").lower())
    if known is not None:
        return known
    for prefix, whose in (("QOS", "the QOS's"), ("Assoc", "your account's")):
        if plain.startswith(prefix):
            return f"{whose} limit: {plain}"
    return plain


def is_hopeless(reason: str) -> bool:
    """Return whether a job that waits for this reason can never start."""
    return in_words(reason).startswith("never")
