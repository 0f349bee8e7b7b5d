"""Wait for work that this program has sent to its GPUs.

A kernel's launch returns before the kernel has run: without waiting, a clock counts
launches. Libraries are never imported here, and one that has not used a GPU is not
asked, because that would create a CUDA context.
"""

import sys
from contextlib import suppress
from typing import Any


def may_be_asynchronous() -> bool:
    """Return whether a library that only launches its work is imported."""
    return any(name in sys.modules for name in ("torch", "cupy", "jax"))


def wait_for_gpus(result: object = None) -> None:
    """Return when all work sent so far is done, that of *result* for jax.

    Raises:
        Exception: the error of that work.
    """
    _wait_for_torch(sys.modules.get("torch"))
    _wait_for_cupy(sys.modules.get("cupy"))
    _wait_for_jax(sys.modules.get("jax"), result)


def wait_quietly() -> None:
    """Return when all work is done; its errors are the program's to meet."""
    with suppress(Exception):
        wait_for_gpus()


def _wait_for_torch(torch: Any) -> None:  # noqa: ANN401 - not imported here
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    # older versions of torch do not have it
    is_capturing = getattr(cuda, "is_current_stream_capturing", None)
    if is_capturing is not None and is_capturing():  # waiting would break the graph
        return
    current = cuda.current_device()
    for index in range(cuda.device_count()):
        # a device on which it holds no memory has no work of it, and no context yet
        if index == current or cuda.memory_reserved(index):
            cuda.synchronize(index)


def _wait_for_cupy(cupy: Any) -> None:  # noqa: ANN401 - as above
    # a pool without memory: cupy has not used the GPU
    if cupy is not None and cupy.get_default_memory_pool().total_bytes():
        cupy.cuda.runtime.deviceSynchronize()


def _wait_for_jax(jax: Any, result: object) -> None:  # noqa: ANN401 - as above
    """Wait for *result*, or else for all arrays; one device works in order."""
    if jax is None:
        return
    if result is not None:
        jax.block_until_ready(result)
        return
    # a backend that has not started has no arrays, and asking would start it
    bridge = sys.modules.get("jax._src.xla_bridge")
    if bridge is not None and bridge.backends_are_initialized():
        jax.block_until_ready(
            [one for one in jax.live_arrays() if not one.is_deleted()]
        )
