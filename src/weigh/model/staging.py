"""What a job copies to a node's own disk before it runs, and back afterwards."""

import msgspec


class Source(msgspec.Struct, frozen=True):
    """A file or folder of the shared disk, and its place in the working folder.

    ``path`` is absolute; ``place`` is relative, ``.`` for what is in a folder.
    """

    path: str
    place: str


class Earlier(msgspec.Struct, frozen=True):
    """What an element of a resumed job goes on from.

    ``labels`` name its attempts in other jobs, the newest first; ``job`` and
    ``element`` are what ``%j`` and ``%a`` were in the first of them.
    """

    labels: tuple[str, ...]
    job: str
    element: int


class Staging(msgspec.Struct, frozen=True, kw_only=True):
    """What goes in, where results go, on which disk, and how the end is announced.

    ``destination`` is absolute and may hold ``%a`` for the element, ``%j`` for the job,
    ``%%`` for a per cent sign; None is the folder that the script runs in. ``scratch``
    may hold ``$NAME``, which the node knows; None is the first of the usual ones.
    ``warn_signal`` comes ``warn_time`` seconds before the time limit; the tasks have
    ``grace`` seconds to end. ``continues`` says for each element of a job that resumes
    another whose partial results go in first.
    """

    sources: tuple[Source, ...] = ()
    destination: str | None = None
    scratch: str | None = None
    warn_signal: str = "USR1"
    warn_time: int = 120
    grace: int = 10
    continues: tuple[Earlier, ...] = ()
