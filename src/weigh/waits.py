"""How long weigh waits where no event wakes it, in seconds.

Who waits reads ``waits.times`` anew each time, so tests shorten all waits in one place.
"""

import msgspec

from weigh.units import Seconds


class WaitTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The waits that a user may notice; none is an option."""

    # the progress of a run, and of each task of weigh exec
    first_look: Seconds = 2.0  # shorter ones need no forecast
    between_looks: Seconds = 1.0  # the least: long ones are looked at less often
    longest_between_looks: Seconds = 5.0
    progress_file: Seconds = 10.0  # between its versions
    remaining_time: Seconds = 5.0  # between estimates of it
    # checkpoints of records, which survive a kill -9
    checkpoint_of_run: Seconds = 10.0
    idle_checkpoint: Seconds = 60.0  # of a tree that uses no CPU
    first_checkpoint_of_task: Seconds = 10.0
    checkpoint_of_task: Seconds = 60.0
    # the runner's files
    sign_of_life: Seconds = 10.0  # between touches of a lock by its holder
    silence: Seconds = 60.0  # then a holder on another machine counts as dead
    lock_without_name: Seconds = 3.0  # in which its creator writes its name into it
    look_at_files: Seconds = 1.0  # and at what tasks have left behind
    blocked_stream: Seconds = 5.0  # in all, for a reader of the output that stopped
    # ending tasks
    second_signal: Seconds = 3.0  # sooner, it is the first one, passed on by a shell
    orphans_reported: Seconds = 5.0  # after their task has ended
    orphans_of_run_killed: Seconds = 5.0  # after TERM, of the command of weigh run
    orphans_killed: Seconds = 2.0  # after TERM, of no task that runs
    survivors_killed: Seconds = 5.0  # after TERM, of tasks of an earlier run
    end_after_kill: Seconds = 15.0  # then a process cannot be killed


times = WaitTimes()
