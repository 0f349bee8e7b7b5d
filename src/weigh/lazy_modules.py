"""Modules that are imported when they are first used, to start without them.

A file that needs one writes below its imports::

    if TYPE_CHECKING:
        from weigh.render import columns
    else:  # each is imported when it is first used
        columns = lazy_module("weigh.render.columns")
"""

from importlib import import_module


class LazyModule:
    """Stands for a module until one of its names is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        """Return what the module calls *name*; import the module first if needed."""
        # not kept: import_module finds a loaded module in sys.modules at once
        return getattr(import_module(self._name), name)


def lazy_module(name: str) -> LazyModule:
    """Return the module *name*, which is imported when it is first used."""
    return LazyModule(name)
