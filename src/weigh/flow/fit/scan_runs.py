"""The runs of a scan, one after the other: told of, kept, and stopped when told to."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence

from weigh.estimate.readings import gpu_memory
from weigh.flow.run.weighed import Told, last_line, run_weighed
from weigh.model.record import Record
from weigh.store.location import make_folder
from weigh.store.scans import Scan
from weigh.sweep.fields import fill
from weigh.sweep.values import typed
from weigh.units import format_duration, format_size

_OUTPUT = "output"
_FAILED = 1
_SIGNAL_BASE = 128
_LONGEST_NAME = 80
_DONE = frozenset(("COMPLETED", "OUT_OF_MEMORY"))

Say = Callable[[str], None]
Texts = dict[str, str]


class ScanRuns:
    """The records of a scan as they come in, newest last."""

    def __init__(
        self,
        plan: Scan,
        root: str,
        env: Mapping[str, str],
        *,
        say: Say,
        known: Sequence[Record],
    ) -> None:
        self.plan = plan
        self.root = root
        self.env = {**env, "WEIGH_DIR": root}
        self.say = say
        self.records = list(known)
        self.exit_code = 0
        self._folder = make_folder(root, _OUTPUT, plan.label)

    def all(self, runs: Sequence[Texts], repeat: int) -> None:
        """Run what has not been measured yet, until one does not complete."""
        self.say(f"scan {self.plan.label}: output in {os.path.relpath(self._folder)}")
        try:
            for texts in runs:
                if self._count(texts) < repeat and not self.one(texts):
                    return
        except Told as told:
            self.exit_code = _SIGNAL_BASE + told.number
            self.say(f"stopped by {signal.Signals(told.number).name}; what ran is kept")

    def one(self, texts: Texts) -> bool:
        """Run one size; False where nothing larger is worth a try."""
        log = os.path.join(
            self._folder, f"{_file_name(texts)}.{self._number(texts)}.log"
        )
        record = run_weighed(
            fill(self.plan.command, texts),
            label=self.plan.label,
            texts=texts,
            log=log,
            root=self.root,
            cwd=self.plan.cwd,
            env=self.env,
        )
        self.records.append(record)
        self.say(_told(texts, record))
        if record.state == "OUT_OF_MEMORY":
            self.say("a larger one would not fit either: stopped here")
        elif record.state != "COMPLETED":
            self.exit_code = _exit_code(record)
            self.say(f"its last words: {last_line(log) or 'none'}")
            self.say(f"its output: {os.path.relpath(log)}")
        return record.state == "COMPLETED"

    def _count(self, texts: Texts) -> int:
        return sum(
            record.state in _DONE and _has(record, texts) for record in self.records
        )

    def _number(self, texts: Texts) -> int:
        return 1 + sum(_has(record, texts) for record in self.records)


def _has(record: Record, texts: Texts) -> bool:
    """Tell whether it ran at these sizes: ``1e2`` and ``100.0`` are the same."""
    there = record.parameters
    return all(key in there and there[key] == typed(t) for key, t in texts.items())


def _file_name(texts: Texts) -> str:
    name = "-".join(f"{key}-{text}" for key, text in texts.items())
    plain = "".join(c if c.isalnum() or c in "-._" else "_" for c in name)
    return plain[:_LONGEST_NAME]


def _exit_code(record: Record) -> int:
    code = record.exit_code
    if code is None:
        return _SIGNAL_BASE + (record.signal or 0)
    return code or _FAILED


def _told(texts: Texts, record: Record) -> str:
    name = " ".join(f"{key}={text}" for key, text in texts.items())
    usage = record.usage
    if usage is None:
        return f"{name}  {record.state}"
    words = [name, format_duration(usage.wall_time)]
    if usage.peak_memory is not None:
        words.append(f"{format_size(usage.peak_memory.value)} RAM")
    gpu = gpu_memory(usage)
    if gpu is not None:
        words.append(f"{format_size(gpu)} GPU")
    if record.state != "COMPLETED":
        words.append(record.state)
    return "  ".join(words)
