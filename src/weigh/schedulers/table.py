"""The table of schedulers: a new one is one folder and one line here."""

from weigh.schedulers.gridengine import GRIDENGINE
from weigh.schedulers.protocol import Kind
from weigh.schedulers.slurm import SLURM

_ALL: tuple[Kind, ...] = (SLURM, GRIDENGINE)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}
