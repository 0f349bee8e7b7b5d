"""Locks on the GPUs of a machine, which jobs of several users take in turn."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from weigh.flow.exec import options
from weigh.runner.build import ExecOptions
from weigh.runner.gpus import GpuClaims


def test_a_job_s_own_temporary_folder_holds_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Grid Engine gives each job a TMPDIR: locks there part nobody."""
    made: list[str] = []

    class Claims(GpuClaims):
        def __init__(self, folder: str) -> None:
            made.append(folder)
            super().__init__(folder)

    monkeypatch.setattr("weigh.runner.gpus.GpuClaims", Claims)
    env = {"TMPDIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}

    with ExitStack() as opened:
        options.choose_layout(ExecOptions(gpus=1), env, opened)

    assert made == ["/tmp"]
