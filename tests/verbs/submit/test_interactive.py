"""``weigh submit --interactive``: a shell on a node, which ends when nobody types."""

import os
import subprocess

import pytest
from following import Weigh


def printed_in_idle_shell(real: Weigh, typed: bytes) -> str:
    words = ("--interactive=end-idle=1s", "--memory", "200M", "--dry-run")
    code, line, err = real("submit", "--on", "slurm", *words)
    assert code == 0, err

    with subprocess.Popen(
        ("script", "-qec", line.strip(), "/dev/null"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as terminal:
        assert terminal.stdin
        assert terminal.stdout
        printed = piece = b" "
        while piece:  # until it ends: its input is still open
            piece = os.read(terminal.stdout.fileno(), 1 << 16)
            printed += piece
            if printed.endswith((b"# ", b"$ ")):  # it waits for input
                terminal.stdin.write(typed)
                terminal.stdin.flush()
                typed = b""
    return printed.decode()


@pytest.mark.slurm
def test_a_shell_that_nobody_types_into_ends(real: Weigh) -> None:
    printed = printed_in_idle_shell(real, b"")
    assert "timed out waiting for input: auto-logout" in printed


@pytest.mark.slurm
def test_a_script_in_it_may_wait_longer_for_its_input(real: Weigh) -> None:
    reads = b"bash -c 'sleep 3 | (read x; echo read gave $?)'\r"
    assert "read gave 1\r\n" in printed_in_idle_shell(real, reads)
