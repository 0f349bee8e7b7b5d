"""``weigh submit --interactive``: a shell on a node, which ends when nobody types."""

import os
import subprocess

import pytest
from following import Weigh


@pytest.mark.slurm
def test_a_shell_that_nobody_types_into_ends_and_a_script_in_it_may_wait_longer(
    real: Weigh,
) -> None:
    words = ("--interactive=end-idle=3s", "--memory", "200M", "--dry-run")
    code, line, err = real("submit", "--on", "slurm", *words)
    assert code == 0, err
    typed = b"bash -c 'sleep 4 | (read x; echo read gave $?)'\r"

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

    assert b"read gave 1\r\n" in printed
    assert b"timed out waiting for input: auto-logout" in printed
