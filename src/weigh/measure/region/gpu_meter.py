"""The GPUs' memory as seen from inside a program, NVML's figure beside torch's own.

A driver may hang for good. So it is asked on a thread that can be left behind, a few
times a second at most, and not again once it did not answer.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from weigh.errors import WeighError
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.probe.gpu import GpuDevice, GpuProbe
from weigh.probe.torch_cuda import torch_number, torch_uuid
from weigh.units import Bytes, Seconds

ProbeFactory = Callable[[], GpuProbe | None]
_T = TypeVar("_T")
_OPENING = 10.0  # seconds; a driver that is not kept loaded takes some
_READING = 2.0
_DEVICE_SOURCE = "memory of the whole device, read as regions begin and end"


class GpuMark(NamedTuple):
    """One GPU at one moment; torch's figures are its peaks so far."""

    uuid: str
    used: Bytes | None
    torch_allocated: Bytes | None = None
    torch_reserved: Bytes | None = None


class GpuSpan:
    """What the GPUs held over a stretch of time."""

    __slots__ = ("_cards",)

    def __init__(self, marks: Iterable[GpuMark] = ()) -> None:
        self._cards: dict[str, GpuMemory] = {}
        self.fold(marks)

    def fold(self, marks: Iterable[GpuMark]) -> None:
        """Take in another moment of the same stretch."""
        self.merge(
            GpuMemory(
                uuid=mark.uuid,
                before=mark.used,
                after=mark.used,
                peak=mark.used,
                torch_allocated=mark.torch_allocated,
                torch_reserved=mark.torch_reserved,
            )
            for mark in marks
        )

    def merge(self, cards: Iterable[GpuMemory]) -> None:
        """Take in a later stretch."""
        for card in cards:
            old = self._cards.get(card.uuid)
            self._cards[card.uuid] = card if old is None else join(old, card)

    def cards(self) -> tuple[GpuMemory, ...]:
        """Give what was held, a card each."""
        return tuple(self._cards.values())


class GpuMeter:
    """Reads the GPUs that are mine; the probe is made when first needed.

    ``devices`` are in CUDA's order, which is torch's. ``first`` is what was in use
    before the first region; ``trouble`` says why reading ended, once it did. A driver
    gets *reading* seconds to answer.
    """

    def __init__(
        self,
        factory: ProbeFactory | None,
        clock: Callable[[], Seconds],
        reading: Seconds = _READING,
    ) -> None:
        self._factory = factory
        self._clock = clock
        self._reading = reading
        self._probe: GpuProbe | None = None
        self._marks: tuple[GpuMark, ...] = ()
        self._read_at = float("-inf")
        self.devices: tuple[GpuDevice, ...] = ()
        self.first: tuple[GpuMark, ...] = ()
        self.whole = GpuSpan()
        self.trouble: str | None = None

    def read(self, at_most_old: Seconds = 0.0) -> tuple[GpuMark, ...]:
        """Give every GPU's figures, those of the last look where they will do."""
        self._open()
        if self._probe is None or self._clock() - self._read_at < at_most_old:
            return self._marks
        try:
            marks = self._look(self._probe)
        except Exception as error:  # noqa: BLE001 - a driver's trouble is not the job's
            self._give_up(error)
            return self._marks
        if not self.first:
            self.first = marks
        self.whole.fold(marks)
        self._marks = marks
        self._read_at = self._clock()
        return marks

    def close(self) -> None:
        """Ask the driver no more."""
        self._factory = self._probe = None

    def usage(self) -> tuple[GpuUsage, ...]:
        """Sum up what was read of each card."""
        named = {device.uuid: device for device in self.devices}
        return tuple(
            GpuUsage(
                uuid=card.uuid,
                name=named[card.uuid].name,
                memory_total=named[card.uuid].memory_total,
                memory_before=card.before,
                peak_memory=card.peak,
                source=_DEVICE_SOURCE,
            )
            for card in self.whole.cards()
            if card.uuid in named
        )

    def _open(self) -> None:
        factory, self._factory = self._factory, None
        if factory is None:
            return
        try:
            self._probe = within(_OPENING, factory)
            if self._probe is not None:
                self.devices = within(self._reading, self._probe.devices)
        except Exception as error:  # noqa: BLE001 - as above
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        kind = "" if isinstance(error, WeighError) else f"{type(error).__name__}: "
        self.trouble = f"GPUs are not read: {kind}{error}"
        self._probe = None

    def _look(self, probe: GpuProbe) -> tuple[GpuMark, ...]:
        readings = within(self._reading, probe.read)
        used = {reading.uuid: reading.memory_used for reading in readings}
        return tuple(
            GpuMark(device.uuid, used.get(device.uuid), *torch_peaks(device, number))
            for number, device in enumerate(self.devices)
        )


def within(seconds: Seconds, call: Callable[[], _T]) -> _T:
    """Call on another thread; leave it behind when it does not come back.

    Raises:
        TimeoutError: it did not answer in time.
        Exception: what *call* raised.
    """
    answers: list[_T] = []
    errors: list[Exception] = []

    def ask() -> None:
        try:
            answers.append(call())
        except Exception as error:  # noqa: BLE001 - handed over
            errors.append(error)

    thread = threading.Thread(target=ask, name="weigh-gpu-reading", daemon=True)
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"the driver does not answer for {seconds:g} s")
    return answers[0]


def torch_peaks(device: GpuDevice, number: int) -> tuple[Bytes | None, Bytes | None]:
    """Give torch's own (allocated, reserved) peaks on *device*, my *number*-th.

    None where torch is not imported or has not used CUDA: it is never imported here,
    and asking too early would make a CUDA context.
    """
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None, None
    uuids = [torch_uuid(cuda, index) for index in range(cuda.device_count())]
    index = torch_number(device, number, uuids)
    if index is None:
        return None, None
    return int(cuda.max_memory_allocated(index)), int(cuda.max_memory_reserved(index))


def join(first: GpuMemory, later: GpuMemory) -> GpuMemory:
    """Make one stretch of two: the first's before, the later's after, both's peaks."""
    return GpuMemory(
        uuid=first.uuid,
        before=first.before,
        after=later.after,
        peak=most(first.peak, later.peak),
        torch_allocated=most(first.torch_allocated, later.torch_allocated),
        torch_reserved=most(first.torch_reserved, later.torch_reserved),
    )


def most(one: Bytes | None, other: Bytes | None) -> Bytes | None:
    """Give the larger of two figures, either of which may not have been measured."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
