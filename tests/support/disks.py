"""Which folders are on a disk."""

import os
from pathlib import Path


def is_on_a_disk(folder: Path) -> bool:
    """Tell whether the kernel counts writes to *folder* as storage traffic."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        return not any(
            line.split()[2] == number and " - tmpfs " in line for line in mounts
        )
