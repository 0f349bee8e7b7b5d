"""Weigh a job before you ship it to the cluster.

Importing this package imports nothing else: names are forwarded when first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from weigh.flow.api import run as run
    from weigh.model import Record as Record

__version__ = "0.1.0"
__all__ = ["Record", "__version__", "run"]

_HOMES = {"run": "weigh.flow.api", "Record": "weigh.model"}


def __getattr__(name: str) -> object:
    """Import a public name's home the first time it is asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'weigh' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - start-up time

    return getattr(import_module(home), name)
