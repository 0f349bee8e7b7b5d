"""weigh as it measures on macOS, by psutil: ``python portable_weigh.py WORDS``."""

import sys
from types import SimpleNamespace

from weigh.cli.main import run_cli
from weigh.flow.run import run

if __name__ == "__main__":
    elsewhere = SimpleNamespace(platform="darwin", version=sys.version)
    setattr(run, "sys", elsewhere)  # noqa: B010 - it is no name of the module's own
    sys.exit(run_cli(sys.argv[1:], []))
