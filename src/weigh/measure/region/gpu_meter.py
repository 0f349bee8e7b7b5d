"""GPU memory measured inside a program, with NVML's figures and torch's.

A driver may hang. It is therefore called in a separate thread, at most a few times per
second, and not again after it did not answer.
"""

import os
import sys
from collections.abc import Callable, Iterable

from weigh.answers_in_time import in_time
from weigh.errors import GpuError, NoGpuError, WeighError, is_raised_by_program
from weigh.measure.gpu_account import GpuAccount
from weigh.measure.gpu_sampler import ReadingBudget
from weigh.model.gpu import GpuMemory, GpuUsage
from weigh.probe.gpu import GpuProbe, GpuReading
from weigh.probe.gpu_libraries import read_torch, torch_number
from weigh.probe.proc import parse_stat
from weigh.regular_file import file_head
from weigh.units import Seconds

ProbeFactory = Callable[[], GpuProbe]
# seconds that a driver that hangs stops the program, once; one without persistence mode
# starts slowly
_PATIENCE: Seconds = 10.0
# of a program's time, what readings may take, and the seconds beyond it; then the last
# one counts. One takes some ms, but where other threads are busy in Python, each call
# of the driver waits for the interpreter: 0.5 s in all with four threads and four GPUs
_SHARE, _CREDIT = 0.05, 2.0
_EDGES = "read as regions begin and end: what was in use before, and the program's own"


class RegionGpuMeter:
    """Reads the visible GPUs; the probe is created when first needed.

    *warn* is called with the reason if reading ends early. The driver has *patience*
    seconds to answer.
    """

    def __init__(
        self,
        factory: ProbeFactory | None,
        clock: Callable[[], Seconds],
        warn: Callable[[str], None],
        patience: Seconds = _PATIENCE,
    ) -> None:
        self._factory = factory  # None: the driver is not called, or not any more
        self._clock = clock
        self._warn = warn
        self._patience = patience
        self._probe: GpuProbe | None = None
        # by UUID, in CUDA's and torch's order
        self.accounts: dict[str, GpuAccount] = {}
        self._moment: tuple[GpuMemory, ...] = ()
        # until the next one is due, the last reading counts
        self._budget = ReadingBudget(0.0, _SHARE, credit=_CREDIT)

    def read(self) -> tuple[GpuMemory, ...]:
        """Return all GPUs' figures.

        Of one moment: memory is what the program has on top of what was in use before
        it, or all that is in use where the driver hides processes. Torch's figures are
        peaks so far.
        """
        now = self._clock()
        if self._factory is None or now < self._budget.due_at:
            return self._moment
        try:
            self._take(now, self._readings(self._factory, now))
        except Exception as error:
            if is_raised_by_program(error):
                raise
            self.close()  # a driver's trouble is not the job's
            kind = "" if isinstance(error, WeighError) else f"{type(error).__name__}: "
            if not isinstance(error, NoGpuError):
                self._warn(f"GPUs are not read: {kind}{error}")
        end = self._clock()
        self._budget.pay(end - now, end)
        return self._moment

    def close(self) -> None:
        """Stop calling the driver."""
        self._factory = None

    def usage(self) -> tuple[GpuUsage, ...]:
        """Return the usage of each GPU."""
        return tuple(
            GpuUsage(
                uuid=uuid,
                name=account.device.name,
                memory_total=account.device.memory_total,
                memory_before=account.before,
                peak_memory=account.in_use()[1],
                source=_EDGES,
                index=account.device.index,
                device_peak_memory=account.device_peak,
            )
            for uuid, account in self.accounts.items()
            if account.last is not None
        )

    def _readings(self, factory: ProbeFactory, now: Seconds) -> tuple[GpuReading, ...]:
        """Read the memory of the GPUs where it has changed, which is cheap.

        Raises:
            GpuError: the driver does not answer.
        """

        def ask() -> tuple[GpuReading, ...]:
            if self._probe is None:
                self._probe = factory()
                # what is in use at the first reading is not the program's
                self.accounts = {
                    one.uuid: GpuAccount(one, now) for one in self._probe.devices()
                }
            return self._probe.read(activity=False)

        (readings,) = in_time([ask], patience=self._patience)
        if readings is None:
            raise GpuError(f"the driver does not answer for {self._patience:g} s")
        return readings

    def _take(self, now: Seconds, readings: Iterable[GpuReading]) -> None:
        changed = {reading.uuid: reading for reading in readings}
        torch_devices = read_torch(sys.modules.get("torch"))
        torch_uuids = [torch_device.uuid for torch_device in torch_devices]
        moment = []
        for number, (uuid, account) in enumerate(self.accounts.items()):
            # one whose memory has not changed, as under a caching allocator, keeps what
            # was read of it
            reading = changed.get(uuid)
            if reading is not None:
                listed = reading.process_memory or ()
                account.take(now, reading, [*filter(is_descendant, listed)])
            used, _ = account.in_use()
            index = torch_number(account.device, number, torch_uuids)
            peaks = (None, None) if index is None else torch_devices[index].peaks()
            moment.append(GpuMemory(uuid, used, used, used, *peaks))
        self._moment = tuple(moment)


def is_descendant(pid: int) -> bool:
    """Return whether *pid* is this process, or one that it or its children started."""
    own = os.getpid()
    while pid > 1 and pid != own:
        times = parse_stat(file_head(f"/proc/{pid}/stat", 1024))
        # it is gone, or there is no such system
        pid = 0 if times is None else times.parent
    return pid == own
