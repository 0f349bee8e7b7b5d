"""What a job copies to the node's local disk before it runs, and back afterwards."""

import msgspec


class StagedInput(msgspec.Struct, frozen=True):
    """A file or directory on the shared disk, and its path in the working directory.

    ``path`` is absolute; ``place`` is relative, ``.`` for the contents of a directory.
    """

    path: str
    place: str


class EarlierAttempts(msgspec.Struct, frozen=True):
    """The earlier attempts that an element of a resumed job continues.

    ``labels`` name its attempts in other jobs, the newest first; ``job`` and
    ``element`` are the values of ``%j`` and ``%a`` in the first attempt.
    """

    labels: tuple[str, ...]
    job: str
    element: int


class StagingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs, where results go, on which disk, and the warning before the end.

    ``destination`` is absolute and may contain ``%a`` for the element, ``%j`` for the
    job, ``%%`` for a per cent sign; None is the directory that the script runs in.
    ``scratch`` may contain ``$NAME``, a variable of the node; None is the first usual
    one that exists. ``warn_signal`` is sent ``warn_time`` seconds before the time
    limit; the tasks then have ``grace`` seconds to end. ``continues`` lists, for each
    element of a resumed job, the attempts whose partial results are copied in first.
    """

    sources: tuple[StagedInput, ...] = ()
    destination: str | None = None
    scratch: str | None = None
    warn_signal: str = "USR1"
    warn_time: int = 120
    grace: int = 10
    continues: tuple[EarlierAttempts, ...] = ()
