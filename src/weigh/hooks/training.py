"""Phases and steps of a training loop, for the callbacks of frameworks."""

from contextlib import suppress
from math import isfinite, nan
from typing import TYPE_CHECKING

from weigh.flow.run.regions import event, phase
from weigh.measure.region.channel import clock
from weigh.measure.region.loops import LOOK_INTERVAL
from weigh.measure.region.tracker import current

if TYPE_CHECKING:
    from weigh.measure.region.tracker import MeasuredRegion, RunningLoop


class TrainingPhases:
    """Phases that are started and ended by name, and the steps of one loop."""

    def __init__(self) -> None:
        self._phases: list[MeasuredRegion] = []
        self._steps: RunningLoop | None = None  # None: no loop is running
        # when the step and its figures began, on the clock of regions
        self._since = self._flushed = 0.0

    def begin(self, name: str) -> None:
        """Start a phase within the open ones."""
        region = phase(name)
        region.__enter__()
        self._phases.append(region)

    def is_open(self, name: str) -> bool:
        """Return whether a phase of that name is open."""
        return any(region.name == name for region in self._phases)

    def end(self, name: str) -> None:
        """End a phase and those within it; do nothing if it is not open."""
        while self.is_open(name):
            self._phases.pop().__exit__(None, None, None)

    def begin_steps(self, size: int | None, total: int | None) -> None:
        """Start the loop. *size* is nominal, *total* in steps; None if unknown."""
        self.end_steps()
        self._steps = current().begin_loop(size, total)
        if self._steps is not None:
            self._steps.has_lengths = False  # a step may have several batches
        self._since = self._flushed = clock()

    def pause(self) -> None:
        """Exclude the time up to now from the next step."""
        self._since = clock()

    def step(self, batch: object = None) -> None:
        """End a step, which started at the end of the last one or of a pause."""
        if self._steps is None:
            return
        now, samples = clock(), nan
        with suppress(Exception):  # it is not known: the training must go on
            samples = self._steps.count(batch)
        self._steps.times.append(now - self._since)
        self._steps.samples += samples
        # not at each step, which may be short: passing them on takes time
        if now - self._flushed >= LOOK_INTERVAL:
            self._steps.flush()
            self._flushed = now
        # only now, so that the flush is not part of the next step
        self._since = clock()

    def end_steps(self) -> None:
        """End the loop."""
        if self._steps is not None:
            self._steps.end()
        self._steps = None

    def end_all(self) -> None:
        """End the loop and all open phases."""
        self.end_steps()
        while self._phases:
            self._phases.pop().__exit__(None, None, None)


_IN_A_ROW = 3  # gradients; mixed precision skips single steps with infinite ones


class NumberWatch:
    """Reports once each that a loss or gradient is not finite, printed or not."""

    def __init__(self) -> None:
        self._lost: dict[str, int] = {}  # by name: how often in a row it was not finite
        self._due = 0.0  # the time of the next look, on the clock of regions

    def is_due(self) -> bool:
        """Return whether to look: to read a number waits for the GPU."""
        now = clock()
        if now < self._due:
            return False
        self._due = now + LOOK_INTERVAL
        return True

    def look(self, step: int, **numbers: object) -> None:
        """Look at numbers, by their names; what is no number does not count."""
        for name, number in numbers.items():
            try:
                value = float(number)  # type: ignore[arg-type] # checked here
            # a tensor of several numbers raises RuntimeError or ValueError
            except (TypeError, ValueError, RuntimeError):
                continue
            row = 0 if isfinite(value) else self._lost.get(name, 0) + 1
            needed = _IN_A_ROW if "grad" in name else 1
            if self._lost.get(name, 0) >= needed:
                continue  # it was reported
            self._lost[name] = row
            if row == needed:
                event(f"{name} not finite", step)
                current().warn(f"{name} is {value} at step {step}")
