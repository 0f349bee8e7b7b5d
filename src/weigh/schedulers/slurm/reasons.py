"""Why a job waits, in plain words: the codes of squeue(1), JOB REASON CODES."""

_REASONS = {
    "Priority": "others come first",
    "Resources": "next in line",
    "JobArrayTaskLimit": "the array's own throttle",
    "Dependency": "the job it comes after has not ended",
    "DependencyNeverSatisfied": "never: the job it comes after failed",
    "BeginTime": "its time has not come: it was put back, or asked to begin later",
    "JobHeldUser": "held by you: scontrol release",
    "JobHeldAdmin": "held by the site's administrators",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition takes no jobs now",
    "PartitionTimeLimit": "never: it asks for more time than the partition allows",
    "PartitionNodeLimit": "never: it asks for more nodes than the partition allows",
    "PartitionConfig": "never: it asks for more than the partition allows",
    "BadConstraints": "never: no node has what it asks for",
    "ReqNodeNotAvail": "the nodes it needs are down or reserved",
    "Reservation": "its reservation has not begun",
    "Licenses": "no licence is free",
    "NodeDown": "a node it needs is down",
    "Cleaning": "it is being cleaned up to run again",
    "AssociationJobLimit": "your account's limit on jobs",
    "LaunchFailedRequeuedHeld": "held: it could not be started (scontrol release)",
    "JobHoldMaxRequeue": "held: it was put back too often (scontrol release)",
    "JobRequeuedInHeldState": "held: it was put back (scontrol release)",
    "UserEnvRetrievalFailedRequeuedHeld": "held: your login failed on its node",
    "QOSNotAllowed": "never: the partition does not take its QOS",
    "AccountNotAllowed": "never: the partition does not take your account",
    "InvalidAccount": "never: there is no such account",
    "InvalidQOS": "never: there is no such QOS",
    "MaxMemPerLimit": "never: it asks for more memory than is allowed",
}
# some are words with blanks, or underscores: (launch failed requeued held)
_BY_LETTERS = {name.lower(): words for name, words in _REASONS.items()}


def in_words(reason: str) -> str:
    """Write a reason so that it needs no manual; an unknown one as it is."""
    plain = reason.strip("()").partition(",")[0]
    known = _BY_LETTERS.get(plain.replace(" ", "").replace("_", "").lower())
    if known is not None:
        return known
    for prefix, whose in (("QOS", "the QOS's"), ("Assoc", "your account's")):
        if plain.startswith(prefix):
            return f"{whose} limit: {plain}"
    return plain


def is_hopeless(reason: str) -> bool:
    """Say whether a job that waits for this will never start."""
    return in_words(reason).startswith("never")
