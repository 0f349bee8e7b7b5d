"""How a task ended or stands, in words, in the order in which they are counted."""

from weigh.model.record import State

STATE_WORDS: dict[State, str] = {
    "COMPLETED": "completed",
    "FAILED": "failed",
    "OUT_OF_MEMORY": "out of memory",
    "TIMEOUT": "out of time",
    "NODE_FAIL": "lost with a node",
    "PREEMPTED": "preempted",
    "CANCELLED": "cancelled",
    "INTERRUPTED": "interrupted",
    "RUNNING": "running",
    "PENDING": "waiting",
    "UNKNOWN": "unknown",
}
