"""NVIDIA's MPS control daemon, started for one run of weigh exec.

Programs that share a GPU through it run their kernels at the same time instead of in
turns. Its folder is the run's own, so it serves no other job; without MPS, a program
finds no daemon there and uses the GPU as usual.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress

from weigh.errors import GpuError, UsageError
from weigh.units import Seconds

_CONTROL = "nvidia-cuda-mps-control"
_PIPES, _LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_PATIENCE: Seconds = 20.0


def is_installed(env: Mapping[str, str]) -> bool:
    """Return whether the daemon can be started here."""
    return shutil.which(_CONTROL, path=env.get("PATH")) is not None


class Mps:
    """A running control daemon for *gpus*, which are UUIDs.

    The daemon would number them anew, and its clients would have to use its numbers.

    Raises:
        UsageError: the daemon is not installed.
        GpuError: it does not start.
    """

    def __init__(
        self, gpus: Sequence[str], env: Mapping[str, str], temporary: str
    ) -> None:
        control = shutil.which(_CONTROL, path=env.get("PATH"))
        if control is None:
            raise UsageError(f"--mps: {_CONTROL} is not installed here")
        self._control = control
        self._folder = tempfile.mkdtemp(prefix="weigh-mps-", dir=temporary)
        pipes, logs = (os.path.join(self._folder, name) for name in ("pipe", "log"))
        os.mkdir(pipes, 0o700)
        os.mkdir(logs, 0o700)
        self.variables = {_PIPES: pipes, _LOGS: logs}
        shown = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
        self._env = {**env, **self.variables, **shown}
        trouble = self._run("-d")
        if trouble is not None:
            self.close()
            raise GpuError(f"NVIDIA's MPS does not start: {trouble}")

    def close(self) -> None:
        """End the daemon and its servers, and remove its folder."""
        self._run(text="quit\n")
        with suppress(OSError):
            shutil.rmtree(self._folder)

    def _run(self, *words: str, text: str = "") -> str | None:
        """Run the control program; return what is wrong."""
        try:
            done = subprocess.run(
                [self._control, *words],
                input=text,
                env=self._env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                timeout=_PATIENCE,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            return None
        last = done.stderr.strip().rpartition("\n")[2]
        return last or f"exit {done.returncode}"
