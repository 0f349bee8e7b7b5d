"""Check cheaply whether a GPU driver may be present, without loading it."""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from weigh.errors import NoGpuError
from weigh.regular_file import file_head

if TYPE_CHECKING:
    from weigh.probe.gpu import GpuProbe


_LIBRARY = "libnvidia-ml.so.1"
_DEVICES = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")  # the last: WSL
_MODULES = "/sys/module"
# one of these exists while a driver is loaded
_LOADED = ("/sys/module/nvidia", "/proc/driver/nvidia", "/dev/dxg")
_LONGEST_CACHE = 4 << 20  # bytes; that of a machine with 3,000 libraries is 0.3 MB


def gpu_may_be_present(environment: Mapping[str, str], root: str = "") -> bool:
    """Return whether a GPU may be here; False only if certainly none is.

    A process to which CUDA shows no GPU needs no driver either.
    """
    if not any(may_be_here(environment, root) for may_be_here, *_ in _MAKERS):
        return False
    from weigh.probe.visible import names_none  # noqa: PLC0415 - few machines have one

    return not names_none(environment)


def _driver_may_be_here(environment: Mapping[str, str], root: str) -> bool:
    if _is_in_a_folder(_LIBRARY, environment):
        return True
    if _is_unloaded(root):
        return False
    if any(os.path.exists(root + path) for path in _DEVICES):
        return True
    # what the dynamic loader finds by name
    return _LIBRARY.encode() in file_head(f"{root}/etc/ld.so.cache", _LONGEST_CACHE)


def _is_unloaded(root: str) -> bool:
    """Return whether the kernel lists its modules, and NVIDIA's is not among them.

    Device files and libraries stay when a driver is removed, or an image is built on a
    machine with GPUs.
    """
    if not os.path.isdir(root + _MODULES):
        return False
    return not any(os.path.exists(root + path) for path in _LOADED)


def kernel_module_version(root: str = "") -> str | None:
    """Read the version of the NVIDIA kernel module that is loaded."""
    text = file_head(f"{root}/sys/module/nvidia/version", 64).strip()
    return text.decode("ascii", "replace") or None


def has_amd_driver(root: str = "") -> bool:
    """Return whether AMD's compute driver is loaded."""
    return os.path.exists(f"{root}/dev/kfd")


def _amd_may_be_here(environment: Mapping[str, str], root: str) -> bool:
    return has_amd_driver(root) or _is_in_a_folder("librocm_smi64.so", environment)


def _is_in_a_folder(library: str, environment: Mapping[str, str]) -> bool:
    folders = environment.get("LD_LIBRARY_PATH", "").split(":")
    return any(os.path.exists(os.path.join(f, library)) for f in folders if f)


# whether its driver may be here, and the module and class of its probe
_MAKERS = (
    (_driver_may_be_here, "weigh.probe.nvml", "NvmlProbe"),
    (_amd_may_be_here, "weigh.probe.rocm", "RocmProbe"),
)


def open_probe(environment: Mapping[str, str]) -> "GpuProbe":
    """Return a probe of the visible GPUs, of the first maker whose driver has any.

    Raises:
        NoGpuError: no driver is here, or none has a GPU.
        GpuError: a driver does not start.
    """
    absence = NoGpuError("no GPU driver here")
    for may_be_here, module, name in _MAKERS:
        if may_be_here(environment, ""):
            try:
                probe: GpuProbe = getattr(import_module(module), name)(environment)
            except NoGpuError as error:
                # another maker's driver may still have a GPU
                absence = error
                continue
            return probe
    raise absence


def visible_gpus() -> "GpuProbe":
    """Return a probe of the GPUs that this process can see.

    Raises:
        NoGpuError: there is none.
        GpuError: the driver does not start.
    """
    if not gpu_may_be_present(os.environ):
        raise NoGpuError("no GPU here")
    return open_probe(os.environ)
