"""Where a verb works: made once by the command line, and passed down as it is."""

import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property

import msgspec

from weigh import config
from weigh.store import location
from weigh.units import Seconds


def notify_nobody(line: str) -> None:
    """Drop a note: the caller does not wait for anything."""
    del line


class Here(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The folder, environment and store that a verb works with, and who is notified.

    A verb is ``verb(here, options)``; what it calls gets the same ``here``, or one of
    another store or environment made from it.
    """

    cwd: str
    """The folder of the command line: relative paths start here."""
    env: Mapping[str, str]
    root: str
    """The store, existing or not."""
    notify: Callable[[str], None] = notify_nobody
    """Receives, line by line, what the user may wait for or should know at once."""
    clock: Callable[[], Seconds] = time.time
    """Seconds since the epoch."""

    @cached_property
    def settings(self) -> config.ConfigValues:
        """Return the settings of this folder.

        Raises:
            FormatError: a settings file is invalid.
        """
        return config.load_config(self.cwd, self.env)

    def at_store(self, root: str) -> "Here":
        """Return the same place, whose jobs and records are in the store *root*."""
        return msgspec.structs.replace(self, root=root)

    def in_folder(self, cwd: str) -> "Here":
        """Return the same store and environment, in the folder *cwd*."""
        return msgspec.structs.replace(self, cwd=cwd)


def here_of(
    cwd: str, env: Mapping[str, str], notify: Callable[[str], None] = notify_nobody
) -> Here:
    """Return the place of a verb that is called in the folder *cwd*."""
    return Here(cwd=cwd, env=env, root=location.locate_store(cwd, env), notify=notify)


def here_now(notify: Callable[[str], None] = notify_nobody) -> Here:
    """Return the place of this process: its folder and its environment."""
    return here_of(os.getcwd(), os.environ, notify)
