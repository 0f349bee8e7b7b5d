"""What real schedulers printed: Slurm 22.05.8 and Grid Engine 8.1.9, as captured.

The files of sacct are of jobs on the rig of ``ci/slurm-up.sh``, whose sizes are known.
The 25.05 files are written after that version's forms.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "captured"


def captured(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
