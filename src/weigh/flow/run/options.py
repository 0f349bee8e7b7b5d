"""The options of one measured run."""

import msgspec

from weigh.model.mask import SecretMask


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one measured run; times in seconds.

    ``login_node``: whether this is one; None to find out. With ``progress`` the output
    to a terminal or pipe is read too; ``draws``: a line may be drawn on the terminal.
    An example of ``checkpoint_signal`` is USR1@10m.
    """

    label: str | None = None
    parameters: dict[str, int | float | str] = {}
    interval: float = 0.05  # shortest time between samples
    repeat: int = 1  # counted runs
    warmup: int = 0  # runs before those, not counted
    wait_orphans: bool = True  # False: stop processes that outlive the command
    login_node: bool | None = None
    output: str | None = None  # path; None: no file
    progress: bool = False
    draws: bool = False
    progress_patterns: tuple[str, ...] = ()  # regular expressions
    time_limit: float | None = None  # None: the job's limit
    checkpoint_signal: str | None = None  # None: no signal
    stalled_after: float = 600.0  # no output and no CPU time, or idle GPUs
    mask: SecretMask = SecretMask()
