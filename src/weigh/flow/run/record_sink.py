"""Write a run's record: to the store, to checkpoints, to the file of ``-o``."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress

import msgspec

from weigh.errors import StoreError, writing
from weigh.model.record import Record, RunMeasurement
from weigh.store import identity, lines, location, shards


class WarningCollector:
    """Collects warnings, each once, to be shown after the job.

    ``losses`` are those on results that could not be written: `-q` prints them too.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.losses: list[str] = []

    def warn(self, line: str) -> None:
        """Add a line, unless it is there already."""
        if line not in self.lines:
            self.lines.append(line)

    def lose(self, line: str) -> None:
        """Add a line on a result that could not be written."""
        self.warn(line)
        self.losses.append(line)


class RecordOutputFile:
    """The file of ``-o``, opened before the job so that a typo wastes no run."""

    def __init__(self, path: str | None) -> None:
        """Raises StoreError when the file cannot be opened."""
        self._path = path
        self._file = None
        self._is_new = path is not None and not os.path.lexists(path)
        if path is None:
            return
        with writing(path, "choose another -o FILE"):
            # appending leaves an earlier record in place until the job has ended
            self._file = open(path, "ab")  # noqa: SIM115 - written after the job

    def write(self, record: Record, warner: WarningCollector) -> None:
        """Replace the content of the file with the record.

        One rank's part of a run does not replace the record of all.
        """
        if self._file is None or (
            record.part and os.fstat(self._file.fileno()).st_size
        ):
            return
        document = msgspec.json.format(lines.encode_record(record), indent=1) + b"\n"
        try:
            with self._file as file:
                # a pipe or terminal cannot be truncated
                if file.seekable():
                    file.truncate(0)
                file.write(document)
        except OSError as error:
            warner.lose(f"{self._path}: record not written: {error.strerror}")

    def close(self) -> None:
        """Remove the file if it is new and nothing was run: it would be no record."""
        if self._path is None or self._file is None or self._file.closed:
            return
        with self._file as file, suppress(OSError):
            if self._is_new and not os.fstat(file.fileno()).st_size:
                os.unlink(self._path)


class RecordKeeper:
    """Writes a run's record to the store; trouble there never affects the job."""

    def __init__(self, env: Mapping[str, str], warner: WarningCollector) -> None:
        self._warner = warner
        folder = current_folder() or "/"
        self._root = location.locate_store(folder, env)
        self._note = location.note_on_store(folder, env)
        self._machine = identity.this_machine()
        self._checkpointed = False
        self._trouble: str | None = None

    def follow(
        self, unfinished_record: Record
    ) -> Callable[[RunMeasurement, int | None], None]:
        """Return the function that writes checkpoints of *unfinished_record*."""
        return lambda seen, leader: self.checkpoint(
            unfinished_record.with_measurement(seen), leader
        )

    def checkpoint(self, record: Record, leader: int | None) -> None:
        """Write a run in progress, in case weigh is killed."""
        from weigh.store import checkpoint  # noqa: PLC0415 - not for the shortest runs

        seen = checkpoint.RunCheckpoint(
            machine=self._machine,
            weigh=identity.process_identity(os.getpid()),
            leader=None if leader is None else identity.process_identity(leader),
            record=record,
        )
        try:
            checkpoint.save_checkpoint(self._root, seen)
            self._checkpointed = True
        except StoreError as error:
            # reported at the end: the job's output is not interrupted
            self._trouble = str(error)

    def keep(self, record: Record) -> None:
        """Append the finished record and remove its checkpoint."""
        try:
            shards.append_record(self._root, record, self._machine)
        except StoreError as error:
            # the checkpoint stays, from which the record can still be made
            self._warner.lose(f"the record was not kept: {error}")
            return
        for line in (self._note, self._trouble):
            if line is not None:
                self._warner.warn(line)
        if self._checkpointed:
            self._drop_checkpoint(record)

    def _drop_checkpoint(self, record: Record) -> None:
        from weigh.store import checkpoint  # noqa: PLC0415 - as above

        try:
            checkpoint.remove_checkpoint(self._root, record.id, record.part)
        except StoreError as error:
            self._warner.warn(str(error))


def current_folder() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None
