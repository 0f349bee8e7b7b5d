"""NVIDIA's management library (NVML) through its C interface, which is stable.

No package is needed for it, so none that lies over another's module, as nvidia-ml-py3
does over nvidia-ml-py, can come between. Structures and numbers are from ``nvml.h``.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from ctypes import byref, c_char, c_uint, c_ulonglong, c_void_p, sizeof

from weigh.errors import GpuError, NoGpuError
from weigh.probe.driver import kernel_module_version

NO_PERMISSION, LOST = 4, 15  # of nvmlReturn_t
_TOO_SMALL, _DRIVER_NOT_LOADED, _NO_FUNCTION, _MISMATCH, _UNKNOWN = 7, 9, 13, 18, 999
_LIBRARY_NOT_FOUND = 12
# not supported or not permitted, no such function, no longer supported
FOR_GOOD = frozenset({3, NO_PERMISSION, _NO_FUNCTION, 25, 26})
_LONGEST_TEXT = 96  # bytes of a name or an identity
_MORE_PROCESSES = 16  # than there were at the call that counted them


class NvmlMemoryV1(ctypes.Structure):
    """The memory of a GPU, the driver's own in what is used."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))
    reserved = 0


class NvmlMemoryV2(ctypes.Structure):
    """The memory of a GPU, the driver's own apart."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class NvmlRates(ctypes.Structure):
    """Per cent of time in which kernels ran, and memory was read or written."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class NvmlViolation(ctypes.Structure):
    """Nanoseconds of reduced clocks."""

    _fields_ = (("reference", c_ulonglong), ("time", c_ulonglong))


class NvmlHolder(ctypes.Structure):
    """A process on a GPU."""

    _fields_ = (
        ("pid", c_uint),
        ("memory", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class NvmlAccounted(ctypes.Structure):
    """The driver's account of one process."""

    _fields_ = (
        ("gpu", c_uint),
        ("memory", c_uint),
        ("most", c_ulonglong),
        ("time", c_ulonglong),
        ("start", c_ulonglong),
        ("is_running", c_uint),
        ("reserved", c_uint * 5),
    )


class NvmlShare(ctypes.Structure):
    """A process's share of a GPU's time."""

    _fields_ = (
        ("pid", c_uint),
        ("time", c_ulonglong),
        ("sm", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class NvmlEvent(ctypes.Structure):
    """An event of a GPU; ``data`` of an error is its XID number."""

    _fields_ = (
        ("device", c_void_p),
        ("type", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class NvmlPci(ctypes.Structure):
    """The address of a GPU on the bus."""

    _fields_ = (
        ("legacy", c_char * 16),
        ("numbers", c_uint * 5),
        ("bus", c_char * 32),
    )


class NvmlError(GpuError):
    """A function failed, with NVML's number in ``value``."""

    def __init__(self, value: int, words: str) -> None:
        super().__init__(words)
        self.value = value


class NvmlLibrary:
    """The library, started.

    Raises:
        NoGpuError: the driver or its library is missing.
        GpuError: the driver does not start.
    """

    def __init__(self) -> None:
        self._library = _load_library()
        code = self._function("nvmlInitWithFlags")(0)
        if code:
            raise _start_error(code, self._words(code))

    def call(self, name: str, *words: object) -> None:
        """Call a function.

        Raises:
            NvmlError: it failed, or this driver is older than it.
        """
        code = self._function(name)(*words)
        if code:
            raise NvmlError(code, self._words(code))

    def text(self, name: str, *words: object) -> str:
        """Return the text that a function writes.

        Raises:
            NvmlError: as for `call`.
        """
        out = (c_char * _LONGEST_TEXT)()
        self.call(name, *words, out, c_uint(_LONGEST_TEXT))
        return out.value.decode("utf-8", "replace")

    def holders(self, name: str, handle: c_void_p) -> list[NvmlHolder]:
        """Return the processes on a GPU, of the list that *name* reads.

        Raises:
            NvmlError: as for `call`.
        """
        # a first call without room returns how many there are
        count = c_uint(0)
        try:
            self.call(name, handle, byref(count), None)
        except NvmlError as error:
            if error.value != _TOO_SMALL:
                raise
        if not count.value:
            return []
        room = c_uint(count.value + _MORE_PROCESSES)
        found = (NvmlHolder * room.value)()
        self.call(name, handle, byref(room), found)
        return list(found[: room.value])

    def shares(self, handle: c_void_p, since: int) -> list[NvmlShare]:
        """Return the shares of processes that the driver sampled after *since*.

        Raises:
            NvmlError: as for `call`.
        """
        name, count = "nvmlDeviceGetProcessUtilization", c_uint(0)
        try:
            self.call(name, handle, None, byref(count), c_ulonglong(since))
        except NvmlError as error:
            if error.value != _TOO_SMALL:
                raise
        if not count.value:
            return []
        found = (NvmlShare * count.value)()
        self.call(name, handle, found, byref(count), c_ulonglong(since))
        return list(found[: count.value])

    def pages(self, handle: c_void_p, cause: int) -> int:
        """Return how many pages were retired for *cause*.

        Raises:
            NvmlError: as for `call`.
        """
        count = c_uint(0)
        try:
            self.call("nvmlDeviceGetRetiredPages", handle, cause, byref(count), None)
        except NvmlError as error:
            if error.value != _TOO_SMALL:
                raise
        return count.value

    def _function(self, name: str) -> Callable[..., int]:
        function: Callable[..., int] | None = getattr(self._library, name, None)
        # an older driver lacks newer functions: the same as not supported
        return function or (lambda *_: _NO_FUNCTION)

    def _words(self, code: int) -> str:
        try:
            describe = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        # without it, the pointer would be cut to 32 bits
        describe.restype = ctypes.c_char_p
        return (describe(code) or b"").decode("utf-8", "replace")


def memory_v2() -> NvmlMemoryV2:
    """Return the structure to fill in, with its own size and version."""
    # NVML takes the size and the version of the structure from its first field
    return NvmlMemoryV2(version=sizeof(NvmlMemoryV2) | 2 << 24)


def read_driver_version() -> tuple[str | None, str | None]:
    """Return (driver, newest CUDA), such as ``("550.54.15", "12.4")``, or Nones.

    A broken driver is not an error here: the GPU probe reports it.
    """
    try:
        library = NvmlLibrary()
    except GpuError:
        return None, None
    number = ctypes.c_int()
    try:
        driver = library.text("nvmlSystemGetDriverVersion")
        library.call("nvmlSystemGetCudaDriverVersion_v2", byref(number))
        library.call("nvmlShutdown")
    except NvmlError:
        return None, None
    # 12040 stands for 12.4
    return driver, f"{number.value // 1000}.{number.value % 1000 // 10}"


def _load_library() -> ctypes.CDLL:
    if sys.platform == "win32":
        folder = os.environ.get("WINDIR", "C:/Windows")
        name = os.path.join(folder, "System32", "nvml.dll")
    else:
        # the name without a number comes with the developers' files only
        name = "libnvidia-ml.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise NoGpuError("no NVIDIA driver here") from error


def _start_error(code: int, words: str) -> GpuError:
    """Return the error for NVML's code at its start."""
    if code == _LIBRARY_NOT_FOUND:
        return NoGpuError("no NVIDIA driver here")
    if code == _DRIVER_NOT_LOADED:
        return NoGpuError("an NVIDIA driver is installed here, but not loaded: no GPU")
    if code == _MISMATCH:
        version = kernel_module_version()
        module = f" ({version})" if version else ""
        return GpuError(
            f"NVIDIA's kernel driver{module} and its library differ: "
            "report it to the admins"
        )
    if code == NO_PERMISSION:
        return GpuError("the NVIDIA driver is closed to you: /dev/nvidiactl")
    if code == _UNKNOWN:
        return GpuError(
            "the driver fails (NVML 999): use another node, report this to the admins"
        )
    return GpuError(f"the NVIDIA driver does not start: {words}")
