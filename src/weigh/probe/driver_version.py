"""Read the versions of the NVIDIA driver and of the CUDA that it is for."""

from importlib import import_module


def read_driver_version() -> tuple[str | None, str | None]:
    """Give (driver, newest CUDA), such as ``("550.54.15", "12.4")``; None if not told.

    A driver that is broken is no error here: the probe of the cards says so.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None, None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None, None
    try:
        driver = nvml.nvmlSystemGetDriverVersion()
        number = int(nvml.nvmlSystemGetCudaDriverVersion_v2())
    except nvml.NVMLError:
        return None, None
    finally:
        nvml.nvmlShutdown()
    text = driver.decode("ascii", "replace") if isinstance(driver, bytes) else driver
    return text, f"{number // 1000}.{number % 1000 // 10}"
