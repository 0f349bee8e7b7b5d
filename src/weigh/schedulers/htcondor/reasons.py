"""HTCondor's reasons to wait are sentences; into a job's log it prints nothing."""

from weigh.schedulers.absent import MESSAGES, freed_by, in_words, is_hopeless

__all__ = ["MESSAGES", "freed_by", "in_words", "is_hopeless"]
